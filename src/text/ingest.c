/* Batches of text and their encoding. See ingest.h. */
#include "text/ingest.h"

#include <assert.h>

#include "os/parallel.h"
#include "text/tokenizer_internal.h"

enum { MOST_THREADS = 64, MOST_ITEMS = 1 << 20 };

void hl_ingest_init(struct hl_ingest *ingest, struct hl_mem *mem,
                    const struct hl_tokenizer *tokenizer, struct hl_token_sink *sink,
                    struct hl_log *log) {
    *ingest = (struct hl_ingest){.mem = mem, .tokenizer = tokenizer, .sink = sink, .n_threads = 1};
    hl_text_reader_init(&ingest->reader, mem, log);
    ingest->reader.any_bytes = tokenizer->plain;
    ingest->text.mem = mem;
}

void hl_ingest_free(struct hl_ingest *ingest) {
    if (!ingest->mem) return;
    hl_text_reader_close(&ingest->reader);
    hl_buf_free(&ingest->text);
    hl_free(ingest->mem, ingest->items);
    hl_free(ingest->mem, ingest->item_end);
    for (int r = 0; ingest->tokens_R && r < MOST_THREADS; r++)
        if (ingest->tokens_R[r].mem) hl_tokens_free(&ingest->tokens_R[r]);
    hl_free(ingest->mem, ingest->tokens_R);
    *ingest = (struct hl_ingest){0};
}

/* ---- encoding ---- */

struct share { /* items [first, last) of one thread */
    size_t first, last;
    enum hl_status status;
    struct hl_diag diag;
};
struct encoding {
    struct hl_ingest *ingest;
    struct share shares[MOST_THREADS];
};

static void encode_share(void *context, int r) {
    struct encoding *encoding = context;
    struct hl_ingest *ingest = encoding->ingest;
    struct share *share = &encoding->shares[r];
    struct hl_tokens *tokens = &ingest->tokens_R[r];
    tokens->mem = ingest->mem;
    tokens->n = 0;
    for (size_t i = share->first; i < share->last && !share->status; i++) {
        const struct hl_ingest_item *item = &ingest->items[i];
        share->status = hl_tokenizer_encode(ingest->tokenizer, ingest->text.data + item->start,
                                            item->n, false, tokens, &share->diag);
        ingest->item_end[i] = tokens->n;
    }
}

/* Neighbouring items of about equal bytes per thread. */
static int make_shares(const struct hl_ingest *ingest, struct share *shares) {
    int n = ingest->n_threads < 1              ? 1
            : ingest->n_threads > MOST_THREADS ? MOST_THREADS
                                               : ingest->n_threads;
    size_t i = 0;
    for (int r = 0; r < n; r++) {
        size_t until = ingest->text.n / (size_t)n * (size_t)(r + 1);
        shares[r] = (struct share){.first = i};
        while (i < ingest->n_items && (r == n - 1 || ingest->items[i].start < until)) i++;
        shares[r].last = i;
    }
    return n;
}

static enum hl_status hand_over(struct hl_ingest *ingest, const struct encoding *encoding,
                                int n_shares, struct hl_diag *diag) {
    int32_t eos = hl_tokenizer_eos(ingest->tokenizer);
    struct hl_token_sink *sink = ingest->sink;
    enum hl_status status = HL_OK;
    for (int r = 0; r < n_shares; r++) {
        const int32_t *ids = ingest->tokens_R[r].ids;
        size_t from = 0;
        for (size_t i = encoding->shares[r].first; i < encoding->shares[r].last && !status; i++) {
            size_t n = ingest->item_end[i] - from;
            status = n ? sink->tokens(sink, ids + from, n, diag) : HL_OK;
            from += n;
            if (status || !ingest->items[i].ends_document) continue;
            ingest->n_documents++;
            if (eos >= 0) status = sink->tokens(sink, &eos, 1, diag);
            if (!status) status = sink->document_end(sink, diag);
        }
    }
    return status;
}

static enum hl_status flush(struct hl_ingest *ingest, struct hl_diag *diag) {
    if (!ingest->n_items) return HL_OK;
    struct encoding encoding = {.ingest = ingest};
    if (!ingest->tokens_R)
        ingest->tokens_R = hl_alloc(ingest->mem, MOST_THREADS, sizeof *ingest->tokens_R);
    if (!ingest->tokens_R)
        return hl_fail_memory(diag, MOST_THREADS * sizeof *ingest->tokens_R, "token lists");
    int n = make_shares(ingest, encoding.shares);
    hl_parallel(n, encode_share, &encoding);
    for (int r = 0; r < n; r++)
        if (encoding.shares[r].status) {
            if (diag) *diag = encoding.shares[r].diag;
            return encoding.shares[r].status;
        }
    enum hl_status status = hand_over(ingest, &encoding, n, diag);
    ingest->text.n = 0;
    ingest->n_items = 0;
    if (ingest->progress) ingest->progress(ingest->progress_context, ingest->reader.n_bytes);
    return status;
}

static enum hl_status item_room(struct hl_ingest *ingest, struct hl_diag *diag) {
    if (ingest->n_items < ingest->item_capacity) return HL_OK;
    size_t capacity = ingest->item_capacity ? 2 * ingest->item_capacity : 1024;
    struct hl_ingest_item *items = hl_realloc(ingest->mem, ingest->items, capacity, sizeof *items);
    if (items) ingest->items = items;
    size_t *ends = items ? hl_realloc(ingest->mem, ingest->item_end, capacity, sizeof *ends) : NULL;
    if (!ends) return hl_fail_memory(diag, capacity * sizeof *items, "a batch of text");
    ingest->item_end = ends;
    ingest->item_capacity = capacity;
    return HL_OK;
}

static enum hl_status add(struct hl_ingest *ingest, const struct hl_text_piece *piece,
                          struct hl_diag *diag) {
    enum hl_status status = item_room(ingest, diag);
    if (status) return status;
    ingest->items[ingest->n_items++] =
        (struct hl_ingest_item){ingest->text.n, piece->n, piece->ends_document};
    hl_buf_add(&ingest->text, piece->text, piece->n);
    if (ingest->text.failed) return hl_fail_memory(diag, piece->n, "a batch of text");
    size_t enough =
        ingest->reader.piece_bytes * (size_t)(ingest->n_threads < 1 ? 1 : ingest->n_threads);
    return ingest->text.n >= enough || ingest->n_items >= MOST_ITEMS ? flush(ingest, diag) : HL_OK;
}

enum hl_status hl_ingest_file(struct hl_ingest *ingest, const char *path, struct hl_diag *diag) {
    enum hl_status status = hl_text_reader_open(&ingest->reader, path, diag);
    struct hl_text_piece piece;
    while (!status && !(status = hl_text_reader_next(&ingest->reader, &piece, diag)))
        status = add(ingest, &piece, diag);
    if (status == HL_END) status = flush(ingest, diag);
    hl_text_reader_close(&ingest->reader);
    return status;
}
