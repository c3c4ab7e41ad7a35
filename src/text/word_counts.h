/* How often each different word occurs: a growing hash table from bytes to a count. Indices are in
 * order of first appearance and never change. */
#ifndef HALLEY_TEXT_WORD_COUNTS_H
#define HALLEY_TEXT_WORD_COUNTS_H

#include <stddef.h>
#include <stdint.h>

#include "halley/mem.h"
#include "halley/status.h"

struct hl_counted_word {
    size_t start; /* in bytes */
    uint32_t n, tag;
    int64_t count;
};

struct hl_word_counts { /* zero-initialise with .mem set */
    struct hl_mem *mem;
    char *bytes;
    size_t n_bytes, bytes_capacity;
    struct hl_counted_word *words;
    size_t n_words, words_capacity;
    uint32_t *slots; /* index + 1, 0 empty */
    size_t mask;
};

/* Add `by` to the count of a word and give its index. */
enum hl_status hl_word_counts_add(struct hl_word_counts *counts, const char *word, size_t n,
                                  int64_t by, uint32_t *index_out,
                                  struct hl_diag *diag) HL_MUST_CHECK;
void hl_word_counts_free(struct hl_word_counts *counts);

#endif
