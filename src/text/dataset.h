/* Inside of struct hl_dataset, for the loader, the bigram model and the builder. */
#ifndef HALLEY_TEXT_DATASET_H
#define HALLEY_TEXT_DATASET_H

#include "halley/data.h"
#include "text/stream.h"

/* Samples of a mixture come in blocks: each block holds the same number of rows of a source. */
enum { HL_MIX_BLOCK = 1024 };

struct hl_source {
    double weight; /* as given; 0 when nothing is mixed */
    int64_t quota; /* rows in a block of HL_MIX_BLOCK; 0 when nothing is mixed */
    size_t first_store, n_stores;
    struct hl_text_stream train, validation;
};

struct hl_dataset {
    struct hl_mem *mem;
    struct hl_store **stores; /* each on its own: spans point at them */
    size_t n_stores, store_capacity;
    struct hl_source *sources;
    size_t n_sources;
    struct hl_source *held; /* sources of validation_data */
    size_t n_held;
    int64_t row_tokens; /* T */
    bool document_mask;
    uint64_t seed;
    int64_t vocab_size;
    int32_t start_token; /* bos, else eos, else -1 */
    uint64_t tokenizer_hash, hash;
};

size_t hl_dataset_n_streams(const struct hl_dataset *dataset, enum hl_split split);
const struct hl_text_stream *hl_dataset_stream(const struct hl_dataset *dataset,
                                               enum hl_split split, size_t i);

struct hl_place {
    size_t stream;
    int64_t row;
};
/* Where a position of the endless order of the training split leads. */
struct hl_place hl_dataset_place(const struct hl_dataset *dataset, int64_t position);
/* The row that stands at `position` when the streams of a split follow each other in plain order.
 */
struct hl_place hl_dataset_plain_place(const struct hl_dataset *dataset, enum hl_split split,
                                       int64_t position);
/* hl_loader_rows in plain order, of any split: each row once, then HL_END. */
enum hl_status hl_loader_plain_rows(struct hl_loader *loader, int64_t first_row, int64_t n,
                                    struct hl_batch *out, struct hl_diag *diag) HL_MUST_CHECK;

/* Divide each source's documents into the two splits (split.c). */
enum hl_status hl_dataset_split(struct hl_dataset *dataset, double validation_split,
                                bool has_validation_data, struct hl_log *log,
                                struct hl_diag *diag) HL_MUST_CHECK;
/* Open the files of `data` as sources (source.c). */
enum hl_status hl_sources_open(struct hl_dataset *dataset, const struct hl_data_options *options,
                               const struct hl_tokenizer *tokenizer, int n_threads,
                               struct hl_log *log, struct hl_diag *diag) HL_MUST_CHECK;

#endif
