/* Batches: rows of streams as ragged sequences. A row is one sequence, or with document_mask one
 * sequence per document in it. There the first token of a document is predicted from the start
 * token (bos, else eos), never from another document: the input in front of it is replaced, so
 * nothing is lost. A tokenizer without such a token has nothing to predict it from: that target
 * becomes -1 and the document's sequence begins one token later.
 *
 * Assembling a row is one copy out of the store: no thread reads ahead. */
#include <assert.h>
#include <inttypes.h>

#include "text/dataset.h"

struct hl_loader {
    struct hl_mem *mem;
    const struct hl_dataset *dataset;
    enum hl_split split;
    int64_t n_rows, rows_per_batch;
    int32_t *token_N, *target_N, *position_N;
    int64_t *offsets;
    /* being filled */
    int64_t n_tokens, n_sequences;
};

static bool take_arrays(struct hl_loader *loader, size_t n) {
    struct hl_mem *mem = loader->mem;
    return (loader->token_N = hl_alloc(mem, n, sizeof(int32_t))) &&
           (loader->target_N = hl_alloc(mem, n, sizeof(int32_t))) &&
           (loader->position_N = hl_alloc(mem, n, sizeof(int32_t))) &&
           (loader->offsets = hl_alloc(mem, n + 1, sizeof(int64_t)));
}

enum hl_status hl_loader_new(struct hl_mem *mem, const struct hl_dataset *dataset,
                             enum hl_split split, int64_t rows_per_batch, struct hl_loader **out,
                             struct hl_diag *diag) {
    size_t n = 0;
    if (rows_per_batch < 1) return hl_fail(diag, HL_E_USER, "a batch must have at least one row");
    bool fits =
        hl_size_mul((size_t)rows_per_batch, (size_t)dataset->row_tokens, &n) && n < SIZE_MAX / 16;
    struct hl_loader *loader = fits ? hl_alloc(mem, 1, sizeof *loader) : NULL;
    if (!loader) return hl_fail_memory(diag, n, "a data loader");
    *loader = (struct hl_loader){.mem = mem,
                                 .dataset = dataset,
                                 .split = split,
                                 .rows_per_batch = rows_per_batch,
                                 .n_rows = hl_dataset_n_rows(dataset, split)};
    if (!take_arrays(loader, n)) {
        hl_loader_free(loader);
        return hl_fail_memory(diag, n * 20,
                              "a batch; fewer rows per batch or a smaller block_size need less");
    }
    *out = loader;
    return HL_OK;
}

void hl_loader_free(struct hl_loader *loader) {
    if (!loader) return;
    hl_free(loader->mem, loader->token_N);
    hl_free(loader->mem, loader->target_N);
    hl_free(loader->mem, loader->position_N);
    hl_free(loader->mem, loader->offsets);
    hl_free(loader->mem, loader);
}

static void begin_sequence(struct hl_loader *loader, int64_t at) {
    if (loader->n_sequences && loader->offsets[loader->n_sequences - 1] == at) return;
    loader->offsets[loader->n_sequences++] = at;
}

/* Document starts among targets [at, at + piece.n) of the batch cut sequences. */
static void cut_at_documents(struct hl_loader *loader, int64_t at, int64_t end,
                             const struct hl_piece *piece) {
    int32_t start_token = loader->dataset->start_token;
    const struct hl_store *store = piece->store;
    for (uint64_t d = hl_store_document_from(store, piece->start); d < store->n_documents; d++) {
        uint64_t start = store->document_D[d];
        if (start >= piece->start + piece->n) break;
        int64_t i = at + (int64_t)(start - piece->start);
        if (start_token >= 0) {
            loader->token_N[i] = start_token;
            begin_sequence(loader, i);
        } else {
            loader->target_N[i] = -1;
            if (i + 1 < end) begin_sequence(loader, i + 1);
        }
    }
}

/* The token in front of stream token `at`. */
static int32_t input_before(const struct hl_text_stream *stream, uint64_t at) {
    if (!at) return stream->first_input;
    struct hl_piece piece = hl_stream_piece(stream, at - 1, 1);
    return (int32_t)hl_store_token(piece.store, piece.start);
}

static enum hl_status add_row(struct hl_loader *loader, const struct hl_text_stream *stream,
                              int64_t row, struct hl_diag *diag) {
    int64_t n = hl_stream_row_size(stream, row), base = loader->n_tokens, filled = 0;
    uint64_t at = (uint64_t)row * (uint64_t)stream->row_tokens + (stream->first_input < 0);
    uint32_t most = 0;
    begin_sequence(loader, base);
    loader->token_N[base] = input_before(stream, at);
    while (filled < n) {
        struct hl_piece piece =
            hl_stream_piece(stream, at + (uint64_t)filled, (uint64_t)(n - filled));
        uint32_t largest =
            hl_store_copy(piece.store, piece.start, piece.n, loader->target_N + base + filled);
        most = largest > most ? largest : most;
        int64_t copied = (int64_t)piece.n, last = filled + copied == n;
        for (int64_t i = 0; i < copied - last; i++)
            loader->token_N[base + filled + 1 + i] = loader->target_N[base + filled + i];
        if (loader->dataset->document_mask)
            cut_at_documents(loader, base + filled, base + n, &piece);
        filled += copied;
    }
    if (most >= (uint64_t)loader->dataset->vocab_size)
        return hl_fail(diag, HL_E_FORMAT,
                       "a shard holds token %" PRIu32 ", beyond the tokenizer's %" PRId64
                       ": it is damaged; look with: halley data --inspect",
                       most, loader->dataset->vocab_size);
    loader->n_tokens += n;
    return HL_OK;
}

static int64_t count_supervised(const struct hl_loader *loader) {
    int64_t n = 0;
    for (int64_t i = 0; i < loader->n_tokens; i++) n += loader->target_N[i] >= 0;
    return n;
}

static void finish(struct hl_loader *loader, struct hl_batch *out) {
    loader->offsets[loader->n_sequences] = loader->n_tokens;
    for (int64_t s = 0; s < loader->n_sequences; s++)
        for (int64_t i = loader->offsets[s]; i < loader->offsets[s + 1]; i++)
            loader->position_N[i] = (int32_t)(i - loader->offsets[s]);
    *out = (struct hl_batch){.n_tokens = loader->n_tokens,
                             .n_supervised = count_supervised(loader),
                             .token_N = loader->token_N,
                             .target_N = loader->target_N,
                             .position_N = loader->position_N,
                             .n_sequences = loader->n_sequences,
                             .offsets = loader->offsets};
}

static enum hl_status load(struct hl_loader *loader, int64_t first_row, int64_t n, bool plain,
                           struct hl_batch *out, struct hl_diag *diag) {
    assert(first_row >= 0 && n >= 1 && n <= loader->rows_per_batch);
    if (plain && first_row >= loader->n_rows) return HL_END;
    if (plain && n > loader->n_rows - first_row) n = loader->n_rows - first_row;
    loader->n_tokens = loader->n_sequences = 0;
    for (int64_t i = 0; i < n; i++) {
        struct hl_place place =
            plain ? hl_dataset_plain_place(loader->dataset, loader->split, first_row + i)
                  : hl_dataset_place(loader->dataset, first_row + i);
        const struct hl_text_stream *stream =
            hl_dataset_stream(loader->dataset, loader->split, place.stream);
        enum hl_status status = add_row(loader, stream, place.row, diag);
        if (status) return status;
    }
    finish(loader, out);
    return HL_OK;
}

enum hl_status hl_loader_rows(struct hl_loader *loader, int64_t first_row, int64_t n,
                              struct hl_batch *out, struct hl_diag *diag) {
    return load(loader, first_row, n, loader->split == HL_SPLIT_VALIDATION, out, diag);
}

enum hl_status hl_loader_plain_rows(struct hl_loader *loader, int64_t first_row, int64_t n,
                                    struct hl_batch *out, struct hl_diag *diag) {
    return load(loader, first_row, n, true, out, diag);
}
