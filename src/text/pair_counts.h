/* How often each pair of neighbouring tokens occurs, in which words, and which pair is the most
 * frequent.
 *
 * Main idea: a heap whose entries may be out of date. When a pair is merged, the only new pairs are
 * those of the new token; counts of all others can only fall. A fallen count is noticed when its
 * entry comes to the top, and is put back with the present count. So the top is always right, and
 * most changes cost nothing. */
#ifndef HALLEY_TEXT_PAIR_COUNTS_H
#define HALLEY_TEXT_PAIR_COUNTS_H

#include <stddef.h>
#include <stdint.h>

#include "halley/mem.h"
#include "halley/status.h"

#define HL_NO_LINK UINT32_MAX

struct hl_pair {
    int32_t left, right;
    int64_t count;
    uint32_t links; /* words that may hold it: first of a list, HL_NO_LINK at its end */
};
struct hl_pair_link {
    uint32_t word, next;
};
struct hl_pair_entry {
    int64_t count;
    uint32_t pair;
};

struct hl_pair_counts { /* zero-initialise with .mem set, .free_links = HL_NO_LINK */
    struct hl_mem *mem;
    struct hl_pair *pairs;
    size_t n_pairs, n_settled, pairs_capacity;
    uint32_t *slots; /* index + 1, 0 empty */
    size_t mask;
    struct hl_pair_link *links;
    size_t n_links, links_capacity;
    uint32_t free_links;
    struct hl_pair_entry *heap;
    size_t n_heap, heap_capacity;
};

/* The pair stands `by` more times (> 0) in the word. Not for pairs that are settled. */
enum hl_status hl_pair_counts_raise(struct hl_pair_counts *counts, int32_t left, int32_t right,
                                    int64_t by, uint32_t word, struct hl_diag *diag) HL_MUST_CHECK;
/* ... and fewer times. The pair must be known. */
void hl_pair_counts_lower(struct hl_pair_counts *counts, int32_t left, int32_t right, int64_t by);
/* Put the pairs that are new since the last call into the heap. */
enum hl_status hl_pair_counts_settle(struct hl_pair_counts *counts,
                                     struct hl_diag *diag) HL_MUST_CHECK;
/* Index of the most frequent pair: highest count, then smaller left, then smaller right. HL_END:
 * none with count >= least. */
enum hl_status hl_pair_counts_best(struct hl_pair_counts *counts, int64_t least,
                                   uint32_t *pair_out);
/* Forget where the pair occurs. */
void hl_pair_counts_clear(struct hl_pair_counts *counts, uint32_t pair);
void hl_pair_counts_free(struct hl_pair_counts *counts);

#endif
