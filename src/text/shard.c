/* Reading shards. See shard.h and docs/formats/shards.md. */
#include "text/shard.h"

#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "text/shard_format.h"

enum { LLMC_HEADER_BYTES = 1024 };
struct llmc_kind {
    enum hl_shard_kind kind;
    uint32_t magic, version;
    int width;
};
static const struct llmc_kind llmc_kinds[] = {{HL_SHARD_LLMC16, 20240520, 1, 2},
                                              {HL_SHARD_LLMC32, 20240801, 7, 4}};
enum { N_LLMC_KINDS = sizeof llmc_kinds / sizeof *llmc_kinds };

struct input {
    struct hl_mem *mem;
    const char *name, *bytes;
    size_t n;
    int32_t eos;
    bool verify;
};

static enum hl_shard_kind kind_of(const void *bytes, size_t n) {
    uint32_t magic;
    if (n >= 8 && !memcmp(bytes, HL_SHARD_MAGIC, 8)) return HL_SHARD_HALLEY;
    if (n < 8) return HL_SHARD_NONE;
    memcpy(&magic, bytes, 4);
    for (int i = 0; i < N_LLMC_KINDS; i++)
        if (magic == llmc_kinds[i].magic) return llmc_kinds[i].kind;
    return HL_SHARD_NONE;
}

enum hl_shard_kind hl_shard_kind_of(const char *path) {
    char first[8];
    struct stat info;
    if (stat(path, &info) || !S_ISREG(info.st_mode))
        return HL_SHARD_NONE; /* looking must not empty a pipe */
    FILE *file = fopen(path, "rbe");
    if (!file) return HL_SHARD_NONE;
    size_t n = fread(first, 1, sizeof first, file);
    fclose(file);
    return kind_of(first, n);
}

const char *hl_shard_kind_name(enum hl_shard_kind kind) {
    switch (kind) {
    case HL_SHARD_HALLEY: return "halley shard, version 1";
    case HL_SHARD_LLMC16: return "llm.c shard, uint16";
    case HL_SHARD_LLMC32: return "llm.c shard, uint32";
    case HL_SHARD_NONE: break;
    }
    return "not a shard";
}

/* ---- our own ---- */

static enum hl_status check_header(const struct input *in, const struct hl_shard_header *head,
                                   struct hl_diag *diag) {
    if (head->version != HL_SHARD_VERSION)
        return hl_fail_at(
            diag, HL_E_UNSUPPORTED, in->name, 0, 0,
            "shard version %" PRIu32
            "; this halley reads version %d: build the shard again with 'halley data'",
            head->version, HL_SHARD_VERSION);
    if (XXH3_64bits(head, offsetof(struct hl_shard_header, header_checksum)) !=
        head->header_checksum)
        return hl_fail_at(diag, HL_E_FORMAT, in->name, 0, 0,
                          "the shard's header is damaged: its checksum differs");
    if (head->file_bytes != in->n)
        return hl_fail_at(diag, HL_E_FORMAT, in->name, 0, 0,
                          "the shard is %zu bytes long, %" PRIu64
                          " were written: it was cut off or changed; copy it again",
                          in->n, head->file_bytes);
    return HL_OK;
}

/* The parts follow each other and fill the file. */
static bool layout_holds(const struct hl_shard_header *head) {
    uint64_t width = head->token_bytes, room = head->file_bytes;
    if ((width != 2 && width != 4) || head->tokens_at != HL_SHARD_HEADER_BYTES ||
        room < HL_SHARD_HEADER_BYTES)
        return false;
    if (head->n_tokens > room / width || head->n_documents > room / 8) return false;
    uint64_t end = (HL_SHARD_HEADER_BYTES + head->n_tokens * width + 7) / 8 * 8;
    if (head->documents_at != end || end + head->n_documents * 8 != room) return false;
    if ((head->n_tokens == 0) != (head->n_documents == 0)) return false;
    for (int i = 0; i < 5; i++)
        if (head->reserved[i]) return false;
    return head->max_token <= INT32_MAX && (width == 4 || head->max_token <= UINT16_MAX);
}

static bool padding_is_zero(const struct input *in, const struct hl_shard_header *head) {
    for (uint64_t i = head->tokens_at + head->n_tokens * head->token_bytes; i < head->documents_at;
         i++)
        if (in->bytes[i]) return false;
    return true;
}

static bool documents_ascend(const struct hl_store *store) {
    if (!store->n_documents) return true;
    if (store->document_D[0] != 0 || store->document_D[store->n_documents - 1] >= store->n_tokens)
        return false;
    for (uint64_t d = 1; d < store->n_documents; d++)
        if (store->document_D[d] <= store->document_D[d - 1]) return false;
    return true;
}

static enum hl_status parse_halley(const struct input *in, struct hl_store *store,
                                   struct hl_diag *diag) {
    struct hl_shard_header head;
    if (in->n < sizeof head)
        return hl_fail_at(diag, HL_E_FORMAT, in->name, 0, 0, "the shard ends inside its header");
    memcpy(&head, in->bytes, sizeof head);
    enum hl_status status = check_header(in, &head, diag);
    if (status) return status;
    if (!layout_holds(&head) || !padding_is_zero(in, &head))
        return hl_fail_at(diag, HL_E_FORMAT, in->name, 0, 0,
                          "the shard's header contradicts itself");
    *store = (struct hl_store){.width = (int)head.token_bytes,
                               .tokens = in->bytes + head.tokens_at,
                               .n_tokens = head.n_tokens,
                               .document_D =
                                   (const uint64_t *)(const void *)(in->bytes + head.documents_at),
                               .n_documents = head.n_documents,
                               .max_token = head.n_tokens ? (int64_t)head.max_token : -1,
                               .checksum = head.checksum,
                               .tokenizer_hash = head.tokenizer_hash,
                               .mem = in->mem};
    if (!documents_ascend(store))
        return hl_fail_at(diag, HL_E_FORMAT, in->name, 0, 0,
                          "the shard's document index is damaged: starts do not ascend");
    if (in->verify && hl_store_checksum(store) != store->checksum)
        return hl_fail_at(
            diag, HL_E_FORMAT, in->name, 0, 0,
            "the shard's tokens are damaged: the checksum differs; copy or build it again");
    return HL_OK;
}

/* ---- llm.c's ---- */

/* A document ends with each eos; what follows the last one is a document too. */
static enum hl_status index_documents(const struct input *in, struct hl_store *store,
                                      struct hl_diag *diag) {
    uint64_t n = 1, d = 0;
    for (uint64_t i = 0; i + 1 < store->n_tokens; i++) {
        int64_t token = hl_store_token(store, i);
        n += token == in->eos;
        if (token > store->max_token) store->max_token = token;
    }
    if (!store->n_tokens) return HL_OK;
    int64_t last = hl_store_token(store, store->n_tokens - 1);
    if (last > store->max_token) store->max_token = last;
    store->own_documents = hl_alloc(in->mem, n, sizeof(uint64_t));
    if (!store->own_documents)
        return hl_fail_memory(diag, n * sizeof(uint64_t), "the document index of a shard");
    store->document_D = store->own_documents;
    store->n_documents = n;
    for (uint64_t i = 0; i + 1 < store->n_tokens; i++)
        if (hl_store_token(store, i) == in->eos) store->own_documents[++d] = i + 1;
    return HL_OK;
}

static enum hl_status parse_llmc(const struct input *in, const struct llmc_kind *kind,
                                 struct hl_store *store, struct hl_diag *diag) {
    if (in->n < LLMC_HEADER_BYTES)
        return hl_fail_at(diag, HL_E_FORMAT, in->name, 0, 0, "the shard ends inside its header");
    int32_t head[3];
    memcpy(head, in->bytes, sizeof head);
    if ((uint32_t)head[1] != kind->version)
        return hl_fail_at(diag, HL_E_UNSUPPORTED, in->name, 0, 0,
                          "llm.c shard version %" PRId32 "; version %" PRIu32 " is understood",
                          head[1], kind->version);
    uint64_t want = LLMC_HEADER_BYTES + (uint64_t)(uint32_t)head[2] * (uint64_t)kind->width;
    if (head[2] < 0 || want != in->n)
        return hl_fail_at(diag, HL_E_FORMAT, in->name, 0, 0,
                          "the llm.c shard is %zu bytes long, its header says %" PRIu64
                          ": it was cut off or changed; copy it again",
                          in->n, want);
    *store = (struct hl_store){.width = kind->width,
                               .tokens = in->bytes + LLMC_HEADER_BYTES,
                               .n_tokens = (uint64_t)head[2],
                               .max_token = -1,
                               .mem = in->mem};
    enum hl_status status = index_documents(in, store, diag);
    if (status) return status;
    store->checksum = hl_store_checksum(store);
    return HL_OK;
}

/* ---- both ---- */

static bool is_little_endian(void) { return *(const unsigned char *)&(const uint16_t){1} == 1; }

static enum hl_status parse(const struct input *in, struct hl_store *out, struct hl_diag *diag) {
    if (!is_little_endian())
        return hl_fail_at(diag, HL_E_UNSUPPORTED, in->name, 0, 0,
                          "shards are little-endian and this machine is not");
    enum hl_shard_kind kind = kind_of(in->bytes, in->n);
    if (kind == HL_SHARD_HALLEY) return parse_halley(in, out, diag);
    for (int i = 0; i < N_LLMC_KINDS; i++)
        if (kind == llmc_kinds[i].kind) return parse_llmc(in, &llmc_kinds[i], out, diag);
    if (in->n > 30 && !memcmp(in->bytes, "version https://git-lfs", 23))
        return hl_fail_at(diag, HL_E_FORMAT, in->name, 0, 0,
                          "is a Git LFS pointer, not the file itself; fetch it: git lfs pull");
    return hl_fail_at(
        diag, HL_E_FORMAT, in->name, 0, 0,
        "is neither a halley shard nor one of llm.c; if it is text, say --text_format document");
}

enum hl_status hl_shard_parse(struct hl_mem *mem, const void *bytes, size_t n, const char *name,
                              int32_t eos, bool verify, struct hl_store *out,
                              struct hl_diag *diag) {
    struct hl_store store = {0};
    enum hl_status status = parse(&(struct input){mem, name, bytes, n, eos, verify}, &store, diag);
    if (status) hl_store_free(&store);
    else *out = store;
    return status;
}

enum hl_status hl_shard_open(struct hl_mem *mem, const char *path, int32_t eos, bool verify,
                             struct hl_store *out, struct hl_diag *diag) {
    struct hl_map map = {0};
    enum hl_status status = hl_map_open(path, &map, diag);
    if (status) return status;
    status =
        hl_shard_parse(mem, map.data ? map.data : "", map.n_bytes, path, eos, verify, out, diag);
    if (status) hl_map_close(&map);
    else out->map = map;
    return status;
}
