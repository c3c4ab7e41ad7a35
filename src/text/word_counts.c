/* Counting words. See word_counts.h. Open addressing, at most half full. */
#include "text/word_counts.h"

#include <string.h>
#include <xxhash.h>

static void put_slot(uint32_t *slots, size_t mask, uint64_t hash, uint32_t index) {
    size_t at = (size_t)hash & mask;
    while (slots[at]) at = (at + 1) & mask;
    slots[at] = index + 1;
}

static enum hl_status grow_slots(struct hl_word_counts *counts, struct hl_diag *diag) {
    size_t n = counts->slots ? (counts->mask + 1) * 2 : 1024;
    uint32_t *slots = hl_alloc(counts->mem, n, sizeof *slots);
    if (!slots) return hl_fail_memory(diag, n * sizeof *slots, "counting words");
    for (size_t i = 0; i < counts->n_words; i++) {
        const struct hl_counted_word *word = &counts->words[i];
        put_slot(slots, n - 1, XXH3_64bits(counts->bytes + word->start, word->n), (uint32_t)i);
    }
    hl_free(counts->mem, counts->slots);
    counts->slots = slots;
    counts->mask = n - 1;
    return HL_OK;
}

/* Room for one more word of n bytes. */
static enum hl_status room(struct hl_word_counts *counts, size_t n, struct hl_diag *diag) {
    if (counts->n_words >= UINT32_MAX / 2 || n > UINT32_MAX)
        return hl_fail(diag, HL_E_UNSUPPORTED, "too many different words, or one of %zu bytes", n);
    if (counts->n_words == counts->words_capacity) {
        size_t capacity = counts->words_capacity ? counts->words_capacity * 2 : 512;
        void *words = hl_realloc(counts->mem, counts->words, capacity, sizeof *counts->words);
        if (!words) return hl_fail_memory(diag, capacity * sizeof *counts->words, "counting words");
        counts->words = words;
        counts->words_capacity = capacity;
    }
    if (n > counts->bytes_capacity - counts->n_bytes) {
        size_t capacity = (counts->n_bytes + n) * 2 + 4096;
        void *bytes = hl_realloc(counts->mem, counts->bytes, capacity, 1);
        if (!bytes) return hl_fail_memory(diag, capacity, "counting words");
        counts->bytes = bytes;
        counts->bytes_capacity = capacity;
    }
    if (!counts->slots || (counts->n_words + 1) * 2 > counts->mask + 1)
        return grow_slots(counts, diag);
    return HL_OK;
}

static bool find(const struct hl_word_counts *counts, const char *word, size_t n, uint64_t hash,
                 uint32_t *index_out) {
    if (!counts->slots) return false;
    for (size_t at = (size_t)hash & counts->mask; counts->slots[at]; at = (at + 1) & counts->mask) {
        uint32_t index = counts->slots[at] - 1;
        const struct hl_counted_word *other = &counts->words[index];
        if (other->tag != (uint32_t)(hash >> 32) || other->n != n) continue;
        if (memcmp(counts->bytes + other->start, word, n) != 0) continue;
        *index_out = index;
        return true;
    }
    return false;
}

enum hl_status hl_word_counts_add(struct hl_word_counts *counts, const char *word, size_t n,
                                  int64_t by, uint32_t *index_out, struct hl_diag *diag) {
    uint64_t hash = XXH3_64bits(word, n);
    uint32_t index;
    if (!find(counts, word, n, hash, &index)) {
        enum hl_status status = room(counts, n, diag);
        if (status != HL_OK) return status;
        index = (uint32_t)counts->n_words++;
        counts->words[index] =
            (struct hl_counted_word){counts->n_bytes, (uint32_t)n, (uint32_t)(hash >> 32), 0};
        if (n) memcpy(counts->bytes + counts->n_bytes, word, n);
        counts->n_bytes += n;
        put_slot(counts->slots, counts->mask, hash, index);
    }
    counts->words[index].count += by;
    *index_out = index;
    return HL_OK;
}

void hl_word_counts_free(struct hl_word_counts *counts) {
    hl_free(counts->mem, counts->bytes);
    hl_free(counts->mem, counts->words);
    hl_free(counts->mem, counts->slots);
    *counts = (struct hl_word_counts){.mem = counts->mem};
}
