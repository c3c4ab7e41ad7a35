/* From what the user wrote behind --data to token stores: "weight:path" entries, globs, runs of
 * text files. */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "halley/text_number.h"
#include "os/glob.h"
#include "text/dataset.h"
#include "text/shard.h"
#include "text/text_store.h"

struct opening {
    struct hl_dataset *dataset;
    struct hl_text_job job;
};

/* "0.7:wiki*.txt" -> 0.7 and the rest. A file of exactly this name wins. */
static const char *parse_weight(const char *entry, double *weight) {
    *weight = 0;
    const char *colon = strchr(entry, ':');
    char number[64];
    if (!colon || (size_t)(colon - entry) >= sizeof number || !access(entry, F_OK)) return entry;
    memcpy(number, entry, (size_t)(colon - entry));
    number[colon - entry] = 0;
    double value;
    if (!hl_parse_f64(number, &value)) return entry;
    *weight = value;
    return colon + 1;
}

static enum hl_status new_store(struct hl_dataset *dataset, struct hl_store **out,
                                struct hl_diag *diag) {
    if (dataset->n_stores == dataset->store_capacity) {
        size_t capacity = dataset->store_capacity ? 2 * dataset->store_capacity : 16;
        struct hl_store **stores =
            hl_realloc(dataset->mem, dataset->stores, capacity, sizeof *stores);
        if (!stores)
            return hl_fail_memory(diag, capacity * sizeof *stores, "a list of token stores");
        dataset->stores = stores;
        dataset->store_capacity = capacity;
    }
    struct hl_store *store = hl_alloc(dataset->mem, 1, sizeof *store);
    if (!store) return hl_fail_memory(diag, sizeof *store, "a token store");
    dataset->stores[dataset->n_stores++] = store;
    *out = store;
    return HL_OK;
}

/* One document alone has no end-of-text token behind it: nothing follows that it could be told
 * from. */
static void drop_last_end(const struct hl_tokenizer *tokenizer, struct hl_store *store) {
    int32_t eos = hl_tokenizer_eos(tokenizer);
    if (store->n_documents == 1 && store->n_tokens > 1 && eos >= 0 &&
        hl_store_token(store, store->n_tokens - 1) == eos)
        store->n_tokens--;
}

static enum hl_status open_shard(const struct opening *opening, char *path, struct hl_store *store,
                                 struct hl_diag *diag) {
    const struct hl_tokenizer *tokenizer = opening->job.tokenizer;
    bool verify = hl_bytes_of_files(&path, 1) <= HL_VERIFY_BYTES;
    enum hl_status status =
        hl_shard_open(opening->job.mem, path, hl_tokenizer_eos(tokenizer), verify, store, diag);
    if (status) return status;
    if (store->tokenizer_hash && store->tokenizer_hash != hl_tokenizer_hash(tokenizer))
        return hl_fail_at(diag, HL_E_USER, path, 0, 0,
                          "the shard was made with another tokenizer (hash %016" PRIx64
                          ", this one has %016" PRIx64
                          "); give the tokenizer.json that stands beside it",
                          store->tokenizer_hash, hl_tokenizer_hash(tokenizer));
    if (store->max_token >= opening->dataset->vocab_size)
        return hl_fail_at(diag, HL_E_USER, path, 0, 0,
                          "the shard holds token %" PRId64 " but the tokenizer has only %" PRId64
                          " tokens: it was made with another one",
                          store->max_token, opening->dataset->vocab_size);
    return HL_OK;
}

static bool ends_with(const char *path, const char *end) {
    size_t n = strlen(path), k = strlen(end);
    return n >= k && !strcasecmp(path + n - k, end);
}

/* Files that begin with a shard's magic; and those whose name says so, so that a damaged one is not
 * read as text. */
static bool is_shard(const struct opening *opening, const char *path) {
    if (hl_shard_kind_of(path) != HL_SHARD_NONE) return true;
    return opening->job.options->text_format == HL_TEXT_AUTO &&
           (ends_with(path, ".hls") || ends_with(path, ".bin"));
}

/* Each shard is a store; text files that follow each other share one. */
static enum hl_status open_paths(const struct opening *opening, const struct hl_paths *paths,
                                 struct hl_source *source, struct hl_diag *diag) {
    struct hl_dataset *dataset = opening->dataset;
    source->first_store = dataset->n_stores;
    source->train.mem = source->validation.mem = dataset->mem;
    source->train.row_tokens = source->validation.row_tokens = dataset->row_tokens;
    enum hl_status status = HL_OK;
    for (size_t i = 0, end; i < paths->n && !status; i = end) {
        struct hl_store *store = NULL;
        bool shard = is_shard(opening, paths->items[i]);
        for (end = i + 1; !shard && end < paths->n && !is_shard(opening, paths->items[end]);) end++;
        status = new_store(dataset, &store, diag);
        if (status) break;
        if (shard) status = open_shard(opening, paths->items[i], store, diag);
        else status = hl_text_store_open(&opening->job, paths->items + i, end - i, store, diag);
        if (!status && !shard && paths->n == 1) drop_last_end(opening->job.tokenizer, store);
    }
    source->n_stores = dataset->n_stores - source->first_store;
    return status;
}

/* n entries (one with a weight, or all that have none) are one source. */
static enum hl_status open_source(const struct opening *opening, char *const *entries, size_t n,
                                  struct hl_source *source, struct hl_diag *diag) {
    struct hl_paths paths = {.mem = opening->dataset->mem};
    enum hl_status status = HL_OK;
    for (size_t i = 0; i < n && !status; i++)
        status = hl_glob(&paths, parse_weight(entries[i], &source->weight), diag);
    if (!status) status = open_paths(opening, &paths, source, diag);
    hl_paths_free(&paths);
    return status;
}

/* All entries have a weight or none has. n_weighted: how many do. */
static enum hl_status check_weights(const struct hl_string_list *data, size_t *n_weighted,
                                    struct hl_diag *diag) {
    const char *without = NULL;
    *n_weighted = 0;
    for (size_t i = 0; i < data->n; i++) {
        double weight;
        bool weighted = parse_weight(data->items[i], &weight) != data->items[i];
        if (weighted && !(weight > 0))
            return hl_fail(diag, HL_E_USER, "--data '%s': a weight must be greater than 0",
                           data->items[i]);
        if (weighted) ++*n_weighted;
        else without = data->items[i];
    }
    if (*n_weighted && without)
        return hl_fail(diag, HL_E_USER,
                       "--data '%s' has no weight but others have: write weight:%s", without,
                       without);
    return HL_OK;
}

/* Rows of each source in a block, by largest remainder. */
static enum hl_status set_quotas(struct hl_source *sources, size_t n, struct hl_diag *diag) {
    double sum = 0;
    int64_t given = 0;
    for (size_t s = 0; s < n; s++) sum += sources[s].weight;
    for (size_t s = 0; s < n; s++)
        given += sources[s].quota = (int64_t)(sources[s].weight / sum * HL_MIX_BLOCK);
    for (; given < HL_MIX_BLOCK; given++) {
        size_t best = 0;
        double most = -1;
        for (size_t s = 0; s < n; s++) {
            double missing = sources[s].weight / sum * HL_MIX_BLOCK - (double)sources[s].quota;
            if (missing > most) most = missing, best = s;
        }
        sources[best].quota++;
    }
    for (size_t s = 0; s < n; s++)
        if (!sources[s].quota)
            return hl_fail(diag, HL_E_USER,
                           "--data: source %zu has less than one in %d parts of the weights; "
                           "it would never be seen",
                           s + 1, HL_MIX_BLOCK);
    return HL_OK;
}

static enum hl_status open_list(const struct opening *opening, const struct hl_string_list *data,
                                struct hl_source **out, size_t *n_out, struct hl_diag *diag) {
    size_t n_weighted;
    enum hl_status status = check_weights(data, &n_weighted, diag);
    if (status) return status;
    size_t n = n_weighted ? n_weighted : 1;
    *out = hl_alloc(opening->dataset->mem, n, sizeof **out);
    if (!*out) return hl_fail_memory(diag, n * sizeof **out, "a list of sources");
    *n_out = n;
    if (!n_weighted) return open_source(opening, data->items, data->n, *out, diag);
    for (size_t s = 0; s < n && !status; s++)
        status = open_source(opening, &data->items[s], 1, &(*out)[s], diag);
    if (!status && n > 1) status = set_quotas(*out, n, diag);
    return status;
}

enum hl_status hl_sources_open(struct hl_dataset *dataset, const struct hl_data_options *options,
                               const struct hl_tokenizer *tokenizer, int n_threads,
                               struct hl_log *log, struct hl_diag *diag) {
    struct opening opening = {dataset, {dataset->mem, tokenizer, options, n_threads, log}};
    enum hl_status status =
        open_list(&opening, &options->data, &dataset->sources, &dataset->n_sources, diag);
    if (!status && options->validation_data.n) {
        status =
            open_list(&opening, &options->validation_data, &dataset->held, &dataset->n_held, diag);
        if (!status && dataset->held[0].weight > 0)
            status = hl_fail(
                diag, HL_E_USER,
                "--validation_data '%s': weights have no meaning there; every token counts once",
                options->validation_data.items[0]);
    }
    return status;
}
