/* Which documents are held out: a permutation with a fixed key, so that another training seed sees
 * the same split. */
#include <assert.h>
#include <inttypes.h>

#include "halley/rng.h"
#include "text/dataset.h"

enum { LEAST_DOCUMENTS = 20 }; /* fewer: the end of the token stream is held out instead */
static const uint64_t SPLIT_KEY = 0x68616c6c65790001u;

struct division {
    struct hl_dataset *dataset;
    struct hl_source *source;
    uint64_t n_documents, n_tokens;
};

static const struct hl_store *store_of(const struct division *division, size_t k) {
    return division->dataset->stores[division->source->first_store + k];
}

static uint64_t document_end(const struct hl_store *store, uint64_t d) {
    return d + 1 < store->n_documents ? store->document_D[d + 1] : store->n_tokens;
}

static enum hl_status deal_documents(const struct division *division, const uint8_t *held_bits,
                                     struct hl_diag *diag) {
    struct hl_source *source = division->source;
    for (size_t k = 0, d = 0; k < source->n_stores; k++) {
        const struct hl_store *store = store_of(division, k);
        for (uint64_t i = 0; i < store->n_documents; i++, d++) {
            bool held = held_bits[d / 8] >> d % 8 & 1;
            uint64_t start = store->document_D[i];
            enum hl_status status =
                hl_stream_add(held ? &source->validation : &source->train, store, start,
                              document_end(store, i) - start, diag);
            if (status) return status;
        }
    }
    source->train.first_input = source->validation.first_input = division->dataset->start_token;
    return HL_OK;
}

/* Document d is held out when hl_permute(d) < n_held. The permutation is asked backwards, for the
 * few that are: it costs more than reading a short line. */
static enum hl_status by_documents(const struct division *division, double fraction,
                                   struct hl_diag *diag) {
    struct hl_mem *mem = division->dataset->mem;
    uint64_t n = division->n_documents, n_held = (uint64_t)((double)n * fraction + 0.5);
    n_held = n_held < 1 ? 1 : n_held > n - 1 ? n - 1 : n_held;
    uint8_t *held_bits = hl_alloc(mem, n / 8 + 1, 1);
    if (!held_bits) return hl_fail_memory(diag, n / 8 + 1, "the list of held-out documents");
    for (uint64_t i = 0; i < n_held; i++) {
        uint64_t d = hl_permute_back(i, n, SPLIT_KEY);
        held_bits[d / 8] |= (uint8_t)(1 << d % 8);
    }
    enum hl_status status = deal_documents(division, held_bits, diag);
    hl_free(mem, held_bits);
    return status;
}

/* The last `n_held` tokens of the stream are held out; the token before them is their first input.
 */
static enum hl_status by_tokens(const struct division *division, uint64_t n_held,
                                struct hl_diag *diag) {
    uint64_t left = division->n_tokens - n_held;
    struct hl_source *source = division->source;
    source->train.first_input = source->validation.first_input = division->dataset->start_token;
    for (size_t k = 0; k < source->n_stores; k++) {
        const struct hl_store *store = store_of(division, k);
        uint64_t n = store->n_tokens < left ? store->n_tokens : left;
        enum hl_status status = hl_stream_add(&source->train, store, 0, n, diag);
        if (!status)
            status = hl_stream_add(&source->validation, store, n, store->n_tokens - n, diag);
        if (status) return status;
        left -= n;
        if (n && !left) source->validation.first_input = (int32_t)hl_store_token(store, n - 1);
    }
    return HL_OK;
}

static enum hl_status divide(struct hl_dataset *dataset, struct hl_source *source, double fraction,
                             struct hl_diag *diag) {
    struct division division = {.dataset = dataset, .source = source};
    for (size_t k = 0; k < source->n_stores; k++) {
        division.n_documents += store_of(&division, k)->n_documents;
        division.n_tokens += store_of(&division, k)->n_tokens;
    }
    if (fraction > 0 && division.n_documents >= LEAST_DOCUMENTS)
        return by_documents(&division, fraction, diag);
    return by_tokens(&division, fraction > 0 ? (uint64_t)((double)division.n_tokens * fraction) : 0,
                     diag);
}

enum hl_status hl_dataset_split(struct hl_dataset *dataset, double validation_split,
                                bool has_validation_data, struct hl_log *log,
                                struct hl_diag *diag) {
    enum hl_status status = HL_OK;
    double fraction = has_validation_data ? 0 : validation_split;
    for (size_t s = 0; s < dataset->n_sources && !status; s++)
        status = divide(dataset, &dataset->sources[s], fraction, diag);
    for (size_t s = 0; s < dataset->n_held && !status; s++)
        status = divide(dataset, &dataset->held[s], 0, diag);
    if (status) return status;
    int64_t n_train = hl_dataset_n_tokens(dataset, HL_SPLIT_TRAIN),
            n_held = hl_dataset_n_tokens(dataset, HL_SPLIT_VALIDATION);
    if (n_held)
        hl_log(log, HL_LOG_INFO, "data: %" PRId64 " tokens to train on, %" PRId64 " held out",
               n_train, n_held);
    else
        hl_log(log, fraction > 0 || has_validation_data ? HL_LOG_WARN : HL_LOG_INFO,
               "data: %" PRId64 " tokens to train on, nothing held out: no validation loss",
               n_train);
    return HL_OK;
}
