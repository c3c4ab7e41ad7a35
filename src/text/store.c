/* Token stores in memory. See store.h. */
#include "text/store.h"

#include <assert.h>
#include <string.h>

#define XXH_STATIC_LINKING_ONLY /* the state lives on the stack */
#include <xxhash.h>

int hl_token_width(int64_t vocab_size) { return vocab_size <= 65536 ? 2 : 4; }

void hl_tokens_narrow(const int32_t *ids, size_t n, int width, void *out) {
    if (width == 4) {
        if (n) memcpy(out, ids, n * 4);
        return;
    }
    uint16_t *narrow = out;
    for (size_t i = 0; i < n; i++) narrow[i] = (uint16_t)ids[i];
}

void hl_store_free(struct hl_store *store) {
    if (store->mem) {
        hl_free(store->mem, store->own_tokens);
        hl_free(store->mem, store->own_documents);
    }
    hl_map_close(&store->map);
    *store = (struct hl_store){0};
}

int64_t hl_store_token(const struct hl_store *store, uint64_t i) {
    assert(i < store->n_tokens);
    if (store->width == 2) return ((const uint16_t *)store->tokens)[i];
    return ((const uint32_t *)store->tokens)[i];
}

uint32_t hl_store_copy(const struct hl_store *store, uint64_t start, size_t n, int32_t *out) {
    assert(start <= store->n_tokens && n <= store->n_tokens - start);
    uint32_t most = 0;
    if (store->width == 2) {
        const uint16_t *from = (const uint16_t *)store->tokens + start;
        for (size_t i = 0; i < n; i++) {
            most = from[i] > most ? from[i] : most;
            out[i] = from[i];
        }
        return most;
    }
    const uint32_t *from = (const uint32_t *)store->tokens + start;
    for (size_t i = 0; i < n; i++) {
        most = from[i] > most ? from[i] : most;
        out[i] = (int32_t)from[i];
    }
    return most;
}

uint64_t hl_store_document_from(const struct hl_store *store, uint64_t token) {
    uint64_t low = 0, high = store->n_documents;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (store->document_D[middle] < token) low = middle + 1;
        else high = middle;
    }
    return low;
}

uint64_t hl_store_checksum(const struct hl_store *store) {
    XXH3_state_t state;
    XXH3_INITSTATE(&state);
    XXH3_64bits_reset(&state);
    if (store->n_tokens)
        XXH3_64bits_update(&state, store->tokens, store->n_tokens * (size_t)store->width);
    if (store->n_documents)
        XXH3_64bits_update(&state, store->document_D, store->n_documents * sizeof(uint64_t));
    return XXH3_64bits_digest(&state);
}

/* ---- builder ---- */

static enum hl_status grow(struct hl_mem *mem, void **data, size_t *capacity, size_t need,
                           size_t size, const char *what, struct hl_diag *diag) {
    size_t wanted = *capacity + *capacity / 2;
    if (wanted < need) wanted = need;
    void *grown = hl_realloc(mem, *data, wanted, size);
    if (!grown) return hl_fail_memory(diag, (unsigned long long)wanted * size, what);
    *data = grown;
    *capacity = wanted;
    return HL_OK;
}

static enum hl_status open_document(struct hl_store_builder *builder, struct hl_diag *diag) {
    struct hl_store *store = &builder->store;
    if (store->n_documents == builder->document_capacity) {
        void *data = store->own_documents;
        enum hl_status status =
            grow(store->mem, &data, &builder->document_capacity, store->n_documents + 256,
                 sizeof(uint64_t), "the document index", diag);
        if (status) return status;
        store->own_documents = data;
    }
    store->own_documents[store->n_documents++] = store->n_tokens;
    builder->document_open = true;
    return HL_OK;
}

static enum hl_status add_tokens(struct hl_token_sink *sink, const int32_t *ids, size_t n,
                                 struct hl_diag *diag) {
    struct hl_store_builder *builder = (struct hl_store_builder *)sink;
    struct hl_store *store = &builder->store;
    if (!n) return HL_OK;
    if (!builder->document_open) {
        enum hl_status status = open_document(builder, diag);
        if (status) return status;
    }
    size_t need = store->n_tokens + n;
    if (need > builder->token_capacity) {
        size_t room = builder->expect_tokens > need ? builder->expect_tokens : need;
        enum hl_status status =
            grow(store->mem, &store->own_tokens, &builder->token_capacity, room,
                 (size_t)store->width, "tokens; --cache_dir keeps them on disk", diag);
        if (status) return status;
    }
    for (size_t i = 0; i < n; i++)
        if (ids[i] > store->max_token) store->max_token = ids[i];
    hl_tokens_narrow(ids, n, store->width,
                     (char *)store->own_tokens + store->n_tokens * (size_t)store->width);
    store->n_tokens = need;
    return HL_OK;
}

static enum hl_status end_document(struct hl_token_sink *sink, struct hl_diag *diag) {
    (void)diag;
    ((struct hl_store_builder *)sink)->document_open = false;
    return HL_OK;
}

void hl_store_builder_init(struct hl_store_builder *builder, struct hl_mem *mem, int64_t vocab_size,
                           uint64_t expect_tokens) {
    *builder = (struct hl_store_builder){.sink = {add_tokens, end_document}};
    builder->store.mem = mem;
    builder->store.width = hl_token_width(vocab_size);
    builder->store.max_token = -1;
    builder->expect_tokens = (size_t)expect_tokens;
}

void hl_store_builder_finish(struct hl_store_builder *builder, struct hl_store *out) {
    struct hl_store *store = &builder->store;
    store->tokens = store->own_tokens;
    store->document_D = store->own_documents;
    store->checksum = hl_store_checksum(store);
    *out = *store;
    *builder = (struct hl_store_builder){0};
}

void hl_store_builder_free(struct hl_store_builder *builder) { hl_store_free(&builder->store); }
