/* Text files become tokens in a sink: a reader's texts are gathered into batches, which several
 * threads encode. Neither the size of a piece nor the number of threads changes a token. Each
 * document ends with the tokenizer's eos if it has one. */
#ifndef HALLEY_TEXT_INGEST_H
#define HALLEY_TEXT_INGEST_H

#include "text/store.h"
#include "text/text_reader.h"

struct hl_ingest_item {
    size_t start, n;
    bool ends_document;
};

struct hl_ingest {
    struct hl_mem *mem;
    const struct hl_tokenizer *tokenizer;
    struct hl_token_sink *sink;
    struct hl_text_reader
        reader; /* set its fields for the format; its counts are those of all files */
    int n_threads;
    void (*progress)(void *context, uint64_t n_bytes); /* after each batch; NULL = silent */
    void *progress_context;
    uint64_t n_documents;

    /* A batch that waits for encoding. */
    struct hl_buf text;
    struct hl_ingest_item *items;
    size_t n_items, item_capacity;
    struct hl_tokens *tokens_R; /* one per thread */
    size_t *item_end;           /* tokens of item i end here in its thread's list */
};

/* Every pointer is borrowed. n_threads is 1; the reader keeps invalid UTF-8 when the tokenizer is
 * the one of bytes. */
void hl_ingest_init(struct hl_ingest *ingest, struct hl_mem *mem,
                    const struct hl_tokenizer *tokenizer, struct hl_token_sink *sink,
                    struct hl_log *log);
enum hl_status hl_ingest_file(struct hl_ingest *ingest, const char *path,
                              struct hl_diag *diag) HL_MUST_CHECK;
void hl_ingest_free(struct hl_ingest *ingest);

#endif
