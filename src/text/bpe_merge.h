/* Byte-pair merging of one word.
 *
 * Main idea: of all neighbouring pairs that have a merge, the one with the lowest rank is merged,
 * leftmost first, until none is left. Words that are a token by themselves are found in one hash
 * lookup instead; the table holds exactly the words for which merging gives that one token, so it
 * never changes a result. Short words are merged in place by scanning, long ones with a heap (n log
 * n). No state is kept between words: tables are immutable and shared by threads. Source: Sennrich
 * et al. 2016 (arXiv:1508.07909); order of merges as in the `tokenizers` library. */
#ifndef HALLEY_TEXT_BPE_MERGE_H
#define HALLEY_TEXT_BPE_MERGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "halley/mem.h"
#include "halley/status.h"

struct hl_merge {
    int32_t left, right, result;
};

struct hl_bpe {
    struct hl_merge *merges; /* [n_merges], rank order */
    size_t n_merges;
    struct hl_pair_slot *pairs; /* [pair_mask + 1] */
    size_t pair_mask;
    int pair_shift;
    struct hl_word_slot *words; /* [word_mask + 1]; NULL: no table yet */
    size_t word_mask;
    const char *bytes; /* owner: the tokenizer */
    const size_t *start;
};
enum hl_status hl_bpe_init(struct hl_bpe *bpe, struct hl_mem *mem, const struct hl_merge *merges,
                           size_t n_merges, struct hl_diag *diag) HL_MUST_CHECK;
void hl_bpe_fini(struct hl_bpe *bpe, struct hl_mem *mem);

/* Working memory for long words; zero-initialise. */
struct hl_bpe_scratch {
    struct hl_bpe_node *nodes;
    struct hl_bpe_candidate *heap;
    size_t capacity, heap_capacity;
};
void hl_bpe_scratch_free(struct hl_bpe_scratch *scratch, struct hl_mem *mem);

/* Make the table of words that are one token: ids [0, n_ids) whose `wanted` flag is set. Token id
 * has the bytes [start[id], start[id + 1]). With `trusted` they are taken as they are, otherwise
 * only those that merging confirms. */
enum hl_status hl_bpe_index_words(struct hl_bpe *bpe, struct hl_mem *mem, const char *bytes,
                                  const size_t *start, const bool *wanted, size_t n_ids,
                                  const int32_t byte_id[256], bool trusted,
                                  struct hl_diag *diag) HL_MUST_CHECK;

/* The token that is exactly this word, or -1. */
int32_t hl_bpe_find_word(const struct hl_bpe *bpe, const char *word, size_t n);

/* Merge the ids of a word's bytes in place; returns how many are left through n. */
enum hl_status hl_bpe_merge(const struct hl_bpe *bpe, struct hl_mem *mem,
                            struct hl_bpe_scratch *scratch, int32_t *ids, size_t *n,
                            struct hl_diag *diag) HL_MUST_CHECK;

#endif
