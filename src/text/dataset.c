/* Data sets: what is in them, and where each position of the endless order leads. The stores come
 * from source.c, the splits from split.c, batches from loader.c. */
#include "text/dataset.h"

#include <assert.h>
#include <inttypes.h>
#include <xxhash.h>

#include "halley/rng.h"

static void free_sources(struct hl_mem *mem, struct hl_source *sources, size_t n) {
    for (size_t s = 0; s < n; s++) {
        hl_stream_free(&sources[s].train);
        hl_stream_free(&sources[s].validation);
    }
    hl_free(mem, sources);
}

void hl_dataset_free(struct hl_dataset *dataset) {
    if (!dataset) return;
    struct hl_mem *mem = dataset->mem;
    free_sources(mem, dataset->sources, dataset->n_sources);
    free_sources(mem, dataset->held, dataset->n_held);
    for (size_t i = 0; i < dataset->n_stores; i++) {
        hl_store_free(dataset->stores[i]);
        hl_free(mem, dataset->stores[i]);
    }
    hl_free(mem, dataset->stores);
    hl_free(mem, dataset);
}

/* ---- checks ---- */

static enum hl_status check_options(const struct hl_data_options *options, struct hl_diag *diag) {
    if (!options->data.n)
        return hl_fail(
            diag, HL_E_USER,
            "no data: name text files or shards with --data, for example --data corpus.txt");
    if (options->block_size < 1) return hl_fail(diag, HL_E_USER, "block_size must be at least 1");
    if (!(options->validation_split >= 0 && options->validation_split < 1))
        return hl_fail(diag, HL_E_USER, "validation_split must be in [0, 1)");
    return HL_OK;
}

static enum hl_status check_sizes(const struct hl_dataset *dataset,
                                  const struct hl_data_options *options, struct hl_diag *diag) {
    for (size_t s = 0; s < dataset->n_sources; s++) {
        const struct hl_text_stream *stream = &dataset->sources[s].train;
        const char *name = options->data.items[dataset->n_sources > 1 ? s : 0];
        if (!stream->n_tokens)
            return hl_fail(diag, HL_E_USER, "--data '%s' is empty: there is nothing to train on",
                           name);
        if (!options->to_score && hl_stream_n_targets(stream) < (uint64_t)dataset->row_tokens)
            return hl_fail(diag, HL_E_USER,
                           "--data '%s' has %" PRIu64
                           " tokens to train on, fewer than one row of block_size %" PRId64
                           ": give more text or a smaller --block_size",
                           name, stream->n_tokens, dataset->row_tokens);
    }
    if (dataset->n_held && !dataset->held[0].train.n_tokens)
        return hl_fail(diag, HL_E_USER, "--validation_data '%s' is empty",
                       options->validation_data.items[0]);
    return HL_OK;
}

static uint64_t hash_of(const struct hl_dataset *dataset, const struct hl_data_options *options) {
    uint64_t hash = XXH3_64bits(&options->validation_split, sizeof options->validation_split);
    for (size_t i = 0; i < dataset->n_stores; i++) {
        const uint64_t words[] = {dataset->stores[i]->checksum, dataset->stores[i]->n_tokens};
        hash = XXH3_64bits_withSeed(words, sizeof words, hash);
    }
    for (size_t s = 0; s < dataset->n_sources; s++) {
        const uint64_t words[] = {(uint64_t)dataset->sources[s].quota,
                                  dataset->sources[s].n_stores};
        hash = XXH3_64bits_withSeed(words, sizeof words, hash);
    }
    const uint64_t words[] = {(uint64_t)dataset->row_tokens, dataset->document_mask,
                              dataset->n_held, dataset->tokenizer_hash};
    return XXH3_64bits_withSeed(words, sizeof words, hash);
}

static enum hl_status fill(struct hl_dataset *dataset, const struct hl_data_options *options,
                           const struct hl_tokenizer *tokenizer, int n_threads, struct hl_log *log,
                           struct hl_diag *diag) {
    enum hl_status status = hl_sources_open(dataset, options, tokenizer, n_threads, log, diag);
    if (!status)
        status = hl_dataset_split(dataset, options->validation_split,
                                  options->validation_data.n > 0, log, diag);
    if (!status) status = check_sizes(dataset, options, diag);
    if (!status) dataset->hash = hash_of(dataset, options);
    return status;
}

enum hl_status hl_dataset_open(struct hl_mem *mem, const struct hl_data_options *options,
                               const struct hl_tokenizer *tokenizer, int n_threads,
                               struct hl_log *log, struct hl_dataset **out, struct hl_diag *diag) {
    enum hl_status status = check_options(options, diag);
    if (status) return status;
    struct hl_dataset *dataset = hl_alloc(mem, 1, sizeof *dataset);
    if (!dataset) return hl_fail_memory(diag, sizeof *dataset, "a data set");
    int32_t bos = hl_tokenizer_bos(tokenizer), eos = hl_tokenizer_eos(tokenizer);
    *dataset = (struct hl_dataset){.mem = mem,
                                   .row_tokens = options->block_size,
                                   .document_mask = options->document_mask,
                                   .seed = options->seed,
                                   .vocab_size = hl_tokenizer_vocab_size(tokenizer),
                                   .start_token = bos >= 0 ? bos : eos,
                                   .tokenizer_hash = hl_tokenizer_hash(tokenizer)};
    status = fill(dataset, options, tokenizer, n_threads, log, diag);
    if (status) hl_dataset_free(dataset);
    else *out = dataset;
    return status;
}

/* ---- what is in it ---- */

size_t hl_dataset_n_streams(const struct hl_dataset *dataset, enum hl_split split) {
    return split == HL_SPLIT_VALIDATION && dataset->n_held ? dataset->n_held : dataset->n_sources;
}

const struct hl_text_stream *hl_dataset_stream(const struct hl_dataset *dataset,
                                               enum hl_split split, size_t i) {
    assert(i < hl_dataset_n_streams(dataset, split));
    if (split == HL_SPLIT_TRAIN) return &dataset->sources[i].train;
    return dataset->n_held ? &dataset->held[i].train : &dataset->sources[i].validation;
}

int64_t hl_dataset_n_rows(const struct hl_dataset *dataset, enum hl_split split) {
    int64_t n = 0;
    for (size_t i = 0; i < hl_dataset_n_streams(dataset, split); i++)
        n += hl_stream_n_rows(hl_dataset_stream(dataset, split, i));
    return n;
}

int64_t hl_dataset_n_tokens(const struct hl_dataset *dataset, enum hl_split split) {
    uint64_t n = 0;
    for (size_t i = 0; i < hl_dataset_n_streams(dataset, split); i++)
        n += hl_dataset_stream(dataset, split, i)->n_tokens;
    return (int64_t)n;
}

int64_t hl_dataset_max_token(const struct hl_dataset *dataset) {
    int64_t most = -1;
    for (size_t i = 0; i < dataset->n_stores; i++)
        if (dataset->stores[i]->max_token > most) most = dataset->stores[i]->max_token;
    return most > dataset->start_token ? most : dataset->start_token;
}

uint64_t hl_dataset_hash(const struct hl_dataset *dataset) { return dataset->hash; }

/* ---- order ---- */

/* Row i of the endless order of one source: each epoch another permutation. */
static int64_t shuffled_row(const struct hl_dataset *dataset, size_t source, uint64_t i) {
    uint64_t n = (uint64_t)hl_stream_n_rows(&dataset->sources[source].train);
    uint64_t key = hl_rng_u64(dataset->seed, HL_RNG_DATA, (uint64_t)(source + 1) << 40 | i / n);
    return (int64_t)hl_permute(i % n, n, key);
}

static struct hl_place mixed_place(const struct hl_dataset *dataset, uint64_t position) {
    uint64_t block = position / HL_MIX_BLOCK;
    uint64_t key = hl_rng_u64(dataset->seed, HL_RNG_DATA,
                              block); /* block < 2^40: the keys of sources are others */
    int64_t j = (int64_t)hl_permute(position % HL_MIX_BLOCK, HL_MIX_BLOCK, key);
    size_t source = 0;
    while (j >= dataset->sources[source].quota) j -= dataset->sources[source++].quota;
    uint64_t i = block * (uint64_t)dataset->sources[source].quota + (uint64_t)j;
    return (struct hl_place){source, shuffled_row(dataset, source, i)};
}

struct hl_place hl_dataset_plain_place(const struct hl_dataset *dataset, enum hl_split split,
                                       int64_t position) {
    size_t i = 0;
    for (; i + 1 < hl_dataset_n_streams(dataset, split); i++) {
        int64_t n = hl_stream_n_rows(hl_dataset_stream(dataset, split, i));
        if (position < n) break;
        position -= n;
    }
    return (struct hl_place){i, position};
}

struct hl_place hl_dataset_place(const struct hl_dataset *dataset, int64_t position) {
    if (dataset->n_sources > 1) return mixed_place(dataset, (uint64_t)position);
    return (struct hl_place){0, shuffled_row(dataset, 0, (uint64_t)position)};
}
