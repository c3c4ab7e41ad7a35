/* See inspect.h. */
#include "text/inspect.h"

#include <inttypes.h>
#include <stdio.h>

#include "halley/text_number.h"
#include "text/shard.h"
#include "text/unicode.h"

static void put_bytes(struct hl_buf *out, const char *label, uint64_t bytes) {
    char text[32];
    hl_print_bytes(text, sizeof text, bytes);
    hl_buf_printf(out, "%-12s%" PRIu64 " bytes (%s)\n", label, bytes, text);
}

static void put_documents(struct hl_buf *out, const struct hl_store *store) {
    uint64_t least = UINT64_MAX, most = 0;
    for (uint64_t d = 0; d < store->n_documents; d++) {
        uint64_t end = d + 1 < store->n_documents ? store->document_D[d + 1] : store->n_tokens;
        uint64_t n = end - store->document_D[d];
        least = n < least ? n : least;
        most = n > most ? n : most;
    }
    if (!store->n_documents) return;
    char mean[40];
    hl_print_fixed(mean, sizeof mean, (double)store->n_tokens / (double)store->n_documents, 1);
    hl_buf_printf(out, "%-12s%" PRIu64 ", of %" PRIu64 " to %" PRIu64 " tokens, mean %s\n",
                  "documents", store->n_documents, least, most, mean);
}

/* One quoted line; what is not printable text is escaped. */
static void put_text(struct hl_buf *out, const char *text, size_t n) {
    hl_buf_puts(out, "\"");
    for (size_t i = 0; i < n;) {
        unsigned char c = (unsigned char)text[i];
        size_t k = c < 0x80                                         ? 1
                   : hl_utf8_valid(text + i, n - i < 4 ? n - i : 4) ? (c < 0xE0   ? 2
                                                                       : c < 0xF0 ? 3
                                                                                  : 4)
                                                                    : 0;
        if (c == '\n') hl_buf_puts(out, "\\n");
        else if (c == '"' || c == '\\') hl_buf_printf(out, "\\%c", c);
        else if (!k || c < 0x20 || c == 0x7F) hl_buf_printf(out, "\\x%02x", (unsigned)c);
        else hl_buf_add(out, text + i, k);
        i += k ? k : 1;
    }
    hl_buf_puts(out, "\"\n");
}

static enum hl_status put_tokens(struct hl_mem *mem, const struct hl_store *store,
                                 const struct hl_tokenizer *tokenizer, size_t n_tokens,
                                 struct hl_buf *out, struct hl_diag *diag) {
    size_t n = store->n_tokens < n_tokens ? (size_t)store->n_tokens : n_tokens;
    int32_t *ids = hl_alloc(mem, n, sizeof *ids);
    if (!ids) return hl_fail_memory(diag, n * sizeof *ids, "the first tokens");
    hl_store_copy(store, 0, n, ids);
    hl_buf_printf(out, "%-12s", "begins");
    for (size_t i = 0; i < n; i++)
        hl_buf_printf(out, "%" PRId32 "%s", ids[i], i + 1 < n ? " " : "\n");
    enum hl_status status = HL_OK;
    if (tokenizer) {
        struct hl_buf text = {.mem = mem};
        status = hl_tokenizer_decode(tokenizer, ids, n, true, &text, diag);
        hl_buf_printf(out, "%-12s", "as text");
        if (!status) put_text(out, text.data ? text.data : "", text.n);
        hl_buf_free(&text);
    }
    hl_free(mem, ids);
    return status;
}

static enum hl_status describe(struct hl_mem *mem, const char *path, const struct hl_store *store,
                               const struct hl_tokenizer *tokenizer, size_t n_tokens,
                               struct hl_buf *out, struct hl_diag *diag) {
    hl_buf_printf(out, "%-12s%s\n", "file", path);
    hl_buf_printf(out, "%-12s%s\n", "format", hl_shard_kind_name(hl_shard_kind_of(path)));
    put_bytes(out, "size", store->map.n_bytes);
    hl_buf_printf(out, "%-12s%" PRIu64 " of %d bytes, largest %" PRId64 "\n", "tokens",
                  store->n_tokens, store->width, store->max_token);
    put_documents(out, store);
    if (store->tokenizer_hash)
        hl_buf_printf(out, "%-12s%016" PRIx64 "\n", "tokenizer", store->tokenizer_hash);
    else hl_buf_printf(out, "%-12snot recorded\n", "tokenizer");
    bool known = tokenizer &&
                 (!store->tokenizer_hash || store->tokenizer_hash == hl_tokenizer_hash(tokenizer));
    if (tokenizer && !known)
        hl_buf_printf(out, "%-12sthe tokenizer given is another one (%016" PRIx64 ")\n", "",
                      hl_tokenizer_hash(tokenizer));
    enum hl_status status =
        store->n_tokens ? put_tokens(mem, store, known ? tokenizer : NULL, n_tokens, out, diag)
                        : HL_OK;
    if (status) return status;
    bool good = hl_store_checksum(store) == store->checksum;
    hl_buf_printf(out, "%-12s%016" PRIx64 " %s\n", "checksum", store->checksum,
                  good ? "holds" : "DIFFERS");
    if (!good)
        return hl_fail_at(
            diag, HL_E_FORMAT, path, 0, 0,
            "the shard's tokens are damaged: the checksum differs; copy or build it again");
    return HL_OK;
}

enum hl_status hl_shard_describe(struct hl_mem *mem, const char *path,
                                 const struct hl_tokenizer *tokenizer, size_t n_tokens,
                                 struct hl_buf *out, struct hl_diag *diag) {
    struct hl_store store;
    int32_t eos = tokenizer ? hl_tokenizer_eos(tokenizer) : -1;
    enum hl_status status = hl_shard_open(mem, path, eos, false, &store, diag);
    if (status) return status;
    status = describe(mem, path, &store, tokenizer, n_tokens, out, diag);
    if (!status && out->failed) status = hl_fail_memory(diag, out->n, "a description");
    hl_store_free(&store);
    return status;
}
