/* The loss of a bigram model, as the number that a transformer has to beat: p(b | a) = (count(a b)
 * + 1) / (count(a) + V), counted on the training split, in nats per token of the held-out one.
 *
 * Only pairs that occur in the held-out split are kept: a table of them, not V x V counts. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "text/dataset.h"

enum { ROWS = 64 };

struct pairs { /* open addressing; n_slots is a power of two */
    struct hl_mem *mem;
    uint64_t *keys; /* 1 + (a << 32 | b); 0 = free */
    uint64_t *held, *train;
    size_t n_slots, n;
};

static size_t slot_of(const struct pairs *pairs, uint64_t key) {
    size_t mask = pairs->n_slots - 1, i = (size_t)((key * 0x9E3779B97F4A7C15u) >> 20) & mask;
    while (pairs->keys[i] && pairs->keys[i] != key) i = (i + 1) & mask;
    return i;
}

static void pairs_free(struct pairs *pairs) {
    hl_free(pairs->mem, pairs->keys);
    hl_free(pairs->mem, pairs->held);
    hl_free(pairs->mem, pairs->train);
}

static bool pairs_init(struct pairs *pairs, struct hl_mem *mem, size_t n_slots) {
    *pairs = (struct pairs){.mem = mem, .n_slots = n_slots};
    pairs->keys = hl_alloc(mem, n_slots, sizeof(uint64_t));
    pairs->held = hl_alloc(mem, n_slots, sizeof(uint64_t));
    pairs->train = hl_alloc(mem, n_slots, sizeof(uint64_t));
    if (pairs->keys && pairs->held && pairs->train) return true;
    pairs_free(pairs);
    return false;
}

static bool pairs_grow(struct pairs *pairs) {
    struct pairs bigger;
    if (!pairs_init(&bigger, pairs->mem, pairs->n_slots * 2)) return false;
    for (size_t i = 0; i < pairs->n_slots; i++) {
        if (!pairs->keys[i]) continue;
        size_t to = slot_of(&bigger, pairs->keys[i]);
        bigger.keys[to] = pairs->keys[i];
        bigger.held[to] = pairs->held[i];
    }
    bigger.n = pairs->n;
    pairs_free(pairs);
    *pairs = bigger;
    return true;
}

struct counting {
    const struct hl_dataset *dataset;
    struct pairs pairs;
    uint64_t *context_V; /* count(a) in the training split */
    uint64_t n_held;
};

static uint64_t key_of(const struct hl_batch *batch, int64_t i) {
    return 1 + ((uint64_t)batch->token_N[i] << 32 | (uint64_t)batch->target_N[i]);
}

static bool count_held(struct counting *counting, const struct hl_batch *batch) {
    struct pairs *pairs = &counting->pairs;
    for (int64_t i = 0; i < batch->n_tokens; i++) {
        if (batch->target_N[i] < 0) continue;
        if (2 * pairs->n >= pairs->n_slots && !pairs_grow(pairs)) return false;
        size_t slot = slot_of(pairs, key_of(batch, i));
        pairs->n += !pairs->keys[slot];
        pairs->keys[slot] = key_of(batch, i);
        pairs->held[slot]++;
        counting->n_held++;
    }
    return true;
}

static bool count_train(struct counting *counting, const struct hl_batch *batch) {
    struct pairs *pairs = &counting->pairs;
    for (int64_t i = 0; i < batch->n_tokens; i++) {
        if (batch->target_N[i] < 0) continue;
        counting->context_V[batch->token_N[i]]++;
        size_t slot = slot_of(pairs, key_of(batch, i));
        pairs->train[slot] += pairs->keys[slot] != 0;
    }
    return true;
}

static bool each_batch(struct counting *counting, enum hl_split split,
                       bool (*count)(struct counting *counting, const struct hl_batch *batch)) {
    struct hl_loader *loader;
    if (hl_loader_new(counting->dataset->mem, counting->dataset, split, ROWS, &loader, NULL))
        return false;
    struct hl_batch batch;
    enum hl_status status;
    for (int64_t row = 0; !(status = hl_loader_plain_rows(loader, row, ROWS, &batch, NULL));
         row += ROWS)
        if (!count(counting, &batch)) break;
    hl_loader_free(loader);
    return status == HL_END;
}

static double mean_loss(const struct counting *counting) {
    const struct pairs *pairs = &counting->pairs;
    double sum = 0, n_vocab = (double)counting->dataset->vocab_size;
    for (size_t i = 0; i < pairs->n_slots; i++) {
        if (!pairs->keys[i]) continue;
        uint64_t context = counting->context_V[(pairs->keys[i] - 1) >> 32];
        sum -= (double)pairs->held[i] *
               log(((double)pairs->train[i] + 1) / ((double)context + n_vocab));
    }
    return sum / (double)counting->n_held;
}

double hl_dataset_bigram_loss(const struct hl_dataset *dataset) {
    struct counting counting = {.dataset = dataset};
    double loss = NAN;
    counting.context_V = hl_alloc(dataset->mem, (size_t)dataset->vocab_size, sizeof(uint64_t));
    if (counting.context_V && pairs_init(&counting.pairs, dataset->mem, 4096)) {
        if (each_batch(&counting, HL_SPLIT_VALIDATION, count_held) && counting.n_held &&
            each_batch(&counting, HL_SPLIT_TRAIN, count_train))
            loss = mean_loss(&counting);
        pairs_free(&counting.pairs);
    }
    hl_free(dataset->mem, counting.context_V);
    return loss;
}
