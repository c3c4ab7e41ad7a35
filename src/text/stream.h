/* A stream: the tokens of one split of one source, in order, as pieces of token stores; and rows
 * cut from it.
 *
 * Every token of the stream is a target exactly once. Target i has token i - 1 as its input; the
 * first one has `first_input`: the tokenizer's start token (bos, else eos), or the token that
 * stands before the stream in its file. When there is neither, the first token is an input only.
 * Row r holds targets [r T, (r + 1) T) of them; the last row may be shorter. */
#ifndef HALLEY_TEXT_STREAM_H
#define HALLEY_TEXT_STREAM_H

#include "text/store.h"

struct hl_span {
    const struct hl_store *store;
    uint64_t start; /* first token in the store */
    uint64_t at;    /* first token in the stream */
    uint64_t n;
};

struct hl_text_stream {
    struct hl_mem *mem;
    struct hl_span *spans;
    size_t n_spans, capacity;
    uint64_t n_tokens;
    int32_t first_input; /* -1: none */
    int64_t row_tokens;  /* T */
};

/* Append tokens [start, start + n) of a store; a span that continues the last one is merged. */
enum hl_status hl_stream_add(struct hl_text_stream *stream, const struct hl_store *store,
                             uint64_t start, uint64_t n, struct hl_diag *diag) HL_MUST_CHECK;
void hl_stream_free(struct hl_text_stream *stream);
uint64_t hl_stream_n_targets(const struct hl_text_stream *stream);
int64_t hl_stream_n_rows(const struct hl_text_stream *stream);
/* Targets of row r, in [1, T]. */
int64_t hl_stream_row_size(const struct hl_text_stream *stream, int64_t row);

/* A part of a row that lies in one store. */
struct hl_piece {
    const struct hl_store *store;
    uint64_t start;
    size_t n;
};
/* The piece that holds stream token `at`, cut to at most n_most tokens. at < n_tokens. */
struct hl_piece hl_stream_piece(const struct hl_text_stream *stream, uint64_t at, uint64_t n_most);

#endif
