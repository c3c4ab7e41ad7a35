/* Batches of text and their encoding; the readers of the formats are in ingest_document.c and ingest_lines.c. */
#include "text/ingest.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>
#include <strings.h>

#include "os/parallel.h"
#include "text/ingest_formats.h"
#include "text/tokenizer_internal.h"

enum { PIECE = 1 << 20, MOST_LINE = 256 << 20, MOST_THREADS = 64, SAY_FIRST = 3 };

void hl_ingest_init(struct hl_ingest *ingest, struct hl_mem *mem, const struct hl_tokenizer *tokenizer,
                    struct hl_token_sink *sink, struct hl_log *log) {
    *ingest = (struct hl_ingest){.mem = mem, .tokenizer = tokenizer, .sink = sink, .log = log, .text_key = "text",
                                 .n_threads = 1, .any_bytes = tokenizer->plain, .piece_bytes = PIECE, .most_bytes = MOST_LINE};
    ingest->text.mem = mem;
}

void hl_ingest_free(struct hl_ingest *ingest) {
    if (!ingest->mem) return;
    hl_buf_free(&ingest->text);
    hl_free(ingest->mem, ingest->items);
    hl_free(ingest->mem, ingest->item_end);
    for (int r = 0; ingest->tokens_R && r < MOST_THREADS; r++)
        if (ingest->tokens_R[r].mem) hl_tokens_free(&ingest->tokens_R[r]);
    hl_free(ingest->mem, ingest->tokens_R);
    *ingest = (struct hl_ingest){0};
}

enum hl_status hl_ingest_complain(struct hl_ingest *ingest, struct hl_complaints *complaints, const char *path,
                                  uint64_t line, uint64_t column, const char *what, struct hl_diag *diag) {
    if (ingest->strict)
        return hl_fail_at(diag, HL_E_FORMAT, path, (long)line, (long)column, "%s; without --strict it is skipped", what);
    if (complaints->n_said < SAY_FIRST) {
        complaints->n_said++;
        hl_log(ingest->log, HL_LOG_WARN, "%s:%" PRIu64 ":%" PRIu64 ": %s: skipped", path, line, column, what);
    }
    return HL_OK;
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
        share->status = hl_tokenizer_encode(ingest->tokenizer, ingest->text.data + item->start, item->n, false,
                                            tokens, &share->diag);
        ingest->item_end[i] = tokens->n;
    }
}

/* Neighbouring items of about equal bytes per thread. */
static int make_shares(const struct hl_ingest *ingest, struct share *shares) {
    int n = ingest->n_threads < 1 ? 1 : ingest->n_threads > MOST_THREADS ? MOST_THREADS : ingest->n_threads;
    size_t i = 0;
    for (int r = 0; r < n; r++) {
        size_t until = ingest->text.n / (size_t)n * (size_t)(r + 1);
        shares[r] = (struct share){.first = i};
        while (i < ingest->n_items && (r == n - 1 || ingest->items[i].start < until)) i++;
        shares[r].last = i;
    }
    return n;
}

static enum hl_status hand_over(struct hl_ingest *ingest, const struct encoding *encoding, int n_shares,
                                struct hl_diag *diag) {
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
    if (!ingest->tokens_R) ingest->tokens_R = hl_alloc(ingest->mem, MOST_THREADS, sizeof *ingest->tokens_R);
    if (!ingest->tokens_R) return hl_fail_memory(diag, MOST_THREADS * sizeof *ingest->tokens_R, "token lists");
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
    if (ingest->progress) ingest->progress(ingest, ingest->n_bytes);
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

enum hl_status hl_ingest_add(struct hl_ingest *ingest, const char *text, size_t n, bool ends_document,
                             struct hl_diag *diag) {
    enum hl_status status = item_room(ingest, diag);
    if (status) return status;
    ingest->items[ingest->n_items++] = (struct hl_ingest_item){ingest->text.n, n, ends_document};
    hl_buf_add(&ingest->text, text, n);
    if (ingest->text.failed) return hl_fail_memory(diag, n, "a batch of text");
    size_t enough = ingest->piece_bytes * (size_t)(ingest->n_threads < 1 ? 1 : ingest->n_threads);
    return ingest->text.n >= enough || ingest->n_items >= 1 << 20 ? flush(ingest, diag) : HL_OK;
}

/* ---- files ---- */

static bool ends_with(const char *path, const char *end) {
    size_t n = strlen(path), k = strlen(end);
    return n >= k && !strcasecmp(path + n - k, end);
}

int hl_text_format_of(int text_format, const char *path) {
    if (text_format != HL_TEXT_AUTO) return text_format;
    return ends_with(path, ".jsonl") || ends_with(path, ".ndjson") ? HL_TEXT_JSONL : HL_TEXT_DOCUMENT;
}

enum hl_status hl_ingest_file(struct hl_ingest *ingest, const char *path, struct hl_diag *diag) {
    struct hl_text_file file;
    enum hl_status status = hl_text_file_open(&file, ingest->mem, path, diag);
    if (status) return status;
    uint64_t before = ingest->n_bytes;
    int format = hl_text_format_of(ingest->text_format, path);
    if (format == HL_TEXT_DOCUMENT) status = hl_ingest_document(ingest, &file, diag);
    else status = hl_ingest_lines(ingest, &file, format == HL_TEXT_JSONL, diag);
    if (!status) status = flush(ingest, diag);
    ingest->n_bytes = before + file.n_read;
    hl_text_file_close(&file);
    return status;
}
