/* Streams over token stores. See stream.h. */
#include "text/stream.h"

#include <assert.h>

enum hl_status hl_stream_add(struct hl_text_stream *stream, const struct hl_store *store,
                             uint64_t start, uint64_t n, struct hl_diag *diag) {
    if (!n) return HL_OK;
    struct hl_span *last = stream->n_spans ? &stream->spans[stream->n_spans - 1] : NULL;
    if (last && last->store == store && last->start + last->n == start) {
        last->n += n;
        stream->n_tokens += n;
        return HL_OK;
    }
    if (stream->n_spans == stream->capacity) {
        size_t capacity = stream->capacity ? 2 * stream->capacity : 16;
        struct hl_span *spans = hl_realloc(stream->mem, stream->spans, capacity, sizeof *spans);
        if (!spans) return hl_fail_memory(diag, capacity * sizeof *spans, "the index of a split");
        stream->spans = spans;
        stream->capacity = capacity;
    }
    stream->spans[stream->n_spans++] = (struct hl_span){store, start, stream->n_tokens, n};
    stream->n_tokens += n;
    return HL_OK;
}

void hl_stream_free(struct hl_text_stream *stream) {
    if (stream->mem) hl_free(stream->mem, stream->spans);
    *stream = (struct hl_text_stream){0};
}

uint64_t hl_stream_n_targets(const struct hl_text_stream *stream) {
    if (stream->first_input >= 0 || !stream->n_tokens) return stream->n_tokens;
    return stream->n_tokens - 1;
}

int64_t hl_stream_n_rows(const struct hl_text_stream *stream) {
    uint64_t row = (uint64_t)stream->row_tokens, n = hl_stream_n_targets(stream);
    return (int64_t)(n / row + (n % row != 0));
}

int64_t hl_stream_row_size(const struct hl_text_stream *stream, int64_t row) {
    uint64_t from = (uint64_t)row * (uint64_t)stream->row_tokens,
             left = hl_stream_n_targets(stream) - from;
    return left < (uint64_t)stream->row_tokens ? (int64_t)left : stream->row_tokens;
}

struct hl_piece hl_stream_piece(const struct hl_text_stream *stream, uint64_t at, uint64_t n_most) {
    assert(at < stream->n_tokens);
    size_t low = 0, high = stream->n_spans; /* the last span with span.at <= at */
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (stream->spans[middle].at <= at) low = middle;
        else high = middle;
    }
    const struct hl_span *span = &stream->spans[low];
    uint64_t skip = at - span->at, left = span->n - skip;
    return (struct hl_piece){span->store, span->start + skip,
                             (size_t)(left < n_most ? left : n_most)};
}
