/* A shard from any bytes: refused or readable to its last token. Tried as it is, and with the
 * header's checksum and length made right, since a fuzzer never finds those by itself. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "fuzz_target.h"
#include "text/shard.h"
#include "text/shard_format.h"

static void seal(void *bytes, size_t n) {
    struct hl_shard_header *head = bytes;
    if (n < sizeof *head) return;
    head->file_bytes = n;
    head->header_checksum = XXH3_64bits(head, offsetof(struct hl_shard_header, header_checksum));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    struct hl_mem *mem = hl_mem_default();
    void *bytes = hl_alloc(mem, n, 1); /* aligned as a mapped file is */
    struct hl_store store;
    if (n) memcpy(bytes, data, n);
    for (int turn = 0; turn < 3; turn++) {
        bool verify = turn == 1;
        if (turn == 2) seal(bytes, n);
        if (hl_shard_parse(mem, bytes, n, "fuzz.hls", 3, verify, &store, NULL)) continue;
        int64_t most = -1;
        for (uint64_t i = 0; i < store.n_tokens; i++)
            most = hl_store_token(&store, i) > most ? hl_store_token(&store, i) : most;
        for (uint64_t d = 0; d < store.n_documents; d++)
            if (hl_store_document_from(&store, store.document_D[d]) != d) abort();
        if (store.n_tokens && store.document_D[store.n_documents - 1] >= store.n_tokens) abort();
        hl_store_free(&store);
    }
    hl_free(mem, bytes);
    return 0;
}
