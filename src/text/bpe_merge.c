/* Byte-pair merging of one word. See bpe_merge.h. */
#include "text/bpe_merge.h"

#include <string.h>
#include <xxhash.h>

enum { SHORT_WORD = 48, NO_RANK = INT32_MAX };

struct hl_pair_slot {
    int32_t left, right, rank, result;
}; /* rank NO_RANK: empty */
struct hl_word_slot {
    uint32_t tag;
    int32_t id;
}; /* id -1: empty */
struct hl_bpe_node {
    int32_t id, previous, next;
}; /* -1: no neighbour */
struct hl_bpe_candidate {
    int32_t rank, at, left, right;
}; /* stale when the ids at `at` are others by now */

/* ---- pairs ---- */

static size_t pair_home(const struct hl_bpe *bpe, int32_t left, int32_t right) {
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    return (size_t)(key * 0x9E3779B97F4A7C15u >> bpe->pair_shift);
}

static inline const struct hl_pair_slot *find_pair(const struct hl_bpe *bpe, int32_t left,
                                                   int32_t right) {
    size_t at = pair_home(bpe, left, right);
    for (;; at = (at + 1) & bpe->pair_mask) {
        const struct hl_pair_slot *slot = &bpe->pairs[at];
        if ((slot->left == left && slot->right == right) || slot->rank == NO_RANK) return slot;
    }
}

static void put_pair(struct hl_bpe *bpe, const struct hl_merge *merge, int32_t rank) {
    struct hl_pair_slot *slot = &bpe->pairs[find_pair(bpe, merge->left, merge->right) - bpe->pairs];
    *slot = (struct hl_pair_slot){merge->left, merge->right, rank, merge->result};
}

/* Slots for n entries at most half full: 2^bits. */
static int table_bits(size_t n) {
    int bits = 4;
    while (bits < 62 && ((size_t)1 << bits) / 2 < n) bits++;
    return bits;
}

enum hl_status hl_bpe_init(struct hl_bpe *bpe, struct hl_mem *mem, const struct hl_merge *merges,
                           size_t n_merges, struct hl_diag *diag) {
    *bpe = (struct hl_bpe){.n_merges = n_merges};
    int bits = table_bits(n_merges);
    size_t n_slots = (size_t)1 << bits;
    bpe->pair_mask = n_slots - 1;
    bpe->pair_shift = 64 - bits;
    bpe->merges = hl_alloc(mem, n_merges, sizeof *merges);
    bpe->pairs = hl_alloc(mem, n_slots, sizeof *bpe->pairs);
    if (!bpe->merges || !bpe->pairs)
        return hl_fail_memory(diag, n_slots * sizeof *bpe->pairs, "the merges");
    if (n_merges) memcpy(bpe->merges, merges, n_merges * sizeof *merges);
    for (size_t i = 0; i < n_slots; i++) bpe->pairs[i] = (struct hl_pair_slot){-1, -1, NO_RANK, -1};
    for (size_t i = 0; i < n_merges; i++) put_pair(bpe, &merges[i], (int32_t)i);
    return HL_OK;
}

void hl_bpe_fini(struct hl_bpe *bpe, struct hl_mem *mem) {
    hl_free(mem, bpe->merges);
    hl_free(mem, bpe->pairs);
    hl_free(mem, bpe->words);
    *bpe = (struct hl_bpe){0};
}

void hl_bpe_scratch_free(struct hl_bpe_scratch *scratch, struct hl_mem *mem) {
    hl_free(mem, scratch->nodes);
    hl_free(mem, scratch->heap);
    *scratch = (struct hl_bpe_scratch){0};
}

/* ---- short words: scan ---- */

static size_t merge_short(const struct hl_bpe *bpe, int32_t *ids, size_t n) {
    int32_t rank[SHORT_WORD], result[SHORT_WORD];
    for (size_t i = 0; i + 1 < n; i++) {
        const struct hl_pair_slot *pair = find_pair(bpe, ids[i], ids[i + 1]);
        rank[i] = pair->rank;
        result[i] = pair->result;
    }
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (rank[i] < rank[best]) best = i;
        if (rank[best] == NO_RANK) break;
        ids[best] = result[best];
        n--;
        size_t n_behind =
            n - 1 - best; /* ids behind the merged one; the pair arrays have one fewer */
        memmove(ids + best + 1, ids + best + 2, n_behind * sizeof *ids);
        if (n_behind) {
            memmove(rank + best + 1, rank + best + 2, (n_behind - 1) * sizeof *rank);
            memmove(result + best + 1, result + best + 2, (n_behind - 1) * sizeof *result);
            const struct hl_pair_slot *pair = find_pair(bpe, ids[best], ids[best + 1]);
            rank[best] = pair->rank;
            result[best] = pair->result;
        }
        if (best) {
            const struct hl_pair_slot *pair = find_pair(bpe, ids[best - 1], ids[best]);
            rank[best - 1] = pair->rank;
            result[best - 1] = pair->result;
        }
    }
    return n;
}

/* ---- long words: heap over a linked list ---- */

static bool before(const struct hl_bpe_candidate *a, const struct hl_bpe_candidate *b) {
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void heap_push(struct hl_bpe_candidate *heap, size_t *n, struct hl_bpe_candidate item) {
    size_t at = (*n)++;
    while (at && before(&item, &heap[(at - 1) / 2])) {
        heap[at] = heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap[at] = item;
}

static struct hl_bpe_candidate heap_pop(struct hl_bpe_candidate *heap, size_t *n) {
    struct hl_bpe_candidate top = heap[0], last = heap[--*n];
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= *n) break;
        if (child + 1 < *n && before(&heap[child + 1], &heap[child])) child++;
        if (!before(&heap[child], &last)) break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = last;
    return top;
}

static enum hl_status long_room(struct hl_bpe_scratch *scratch, struct hl_mem *mem, size_t n,
                                struct hl_diag *diag) {
    if (n <= scratch->capacity) return HL_OK;
    size_t n_heap; /* n - 1 pairs at first, and each of n - 1 merges adds at most two */
    if (n > INT32_MAX || !hl_size_mul(n, 3, &n_heap))
        return hl_fail(
            diag, HL_E_UNSUPPORTED,
            "a word of %zu bytes is too long for byte-pair merging; put line breaks into "
            "the text",
            n);
    hl_bpe_scratch_free(scratch, mem);
    scratch->nodes = hl_alloc(mem, n, sizeof *scratch->nodes);
    scratch->heap = hl_alloc(mem, n_heap, sizeof *scratch->heap);
    if (!scratch->nodes || !scratch->heap)
        return hl_fail_memory(diag, n_heap * sizeof *scratch->heap, "a long word");
    scratch->capacity = n;
    return HL_OK;
}

static void offer(const struct hl_bpe *bpe, struct hl_bpe_scratch *scratch, size_t *n_heap,
                  int32_t at) {
    struct hl_bpe_node *nodes = scratch->nodes;
    if (at < 0 || nodes[at].next < 0) return;
    int32_t left = nodes[at].id, right = nodes[nodes[at].next].id;
    const struct hl_pair_slot *pair = find_pair(bpe, left, right);
    if (pair->rank != NO_RANK)
        heap_push(scratch->heap, n_heap, (struct hl_bpe_candidate){pair->rank, at, left, right});
}

static void link_word(struct hl_bpe_node *nodes, const int32_t *ids, size_t n) {
    for (size_t i = 0; i < n; i++)
        nodes[i] = (struct hl_bpe_node){ids[i], (int32_t)i - 1, i + 1 < n ? (int32_t)i + 1 : -1};
}

static size_t merge_long(const struct hl_bpe *bpe, struct hl_bpe_scratch *scratch, int32_t *ids,
                         size_t n) {
    struct hl_bpe_node *nodes = scratch->nodes;
    size_t n_heap = 0, n_out = 0;
    link_word(nodes, ids, n);
    for (size_t i = 0; i + 1 < n; i++) offer(bpe, scratch, &n_heap, (int32_t)i);
    while (n_heap) {
        struct hl_bpe_candidate top = heap_pop(scratch->heap, &n_heap);
        struct hl_bpe_node *node = &nodes[top.at];
        if (node->id != top.left || node->next < 0 || nodes[node->next].id != top.right) continue;
        struct hl_bpe_node *eaten = &nodes[node->next];
        node->id = bpe->merges[top.rank].result;
        node->next = eaten->next;
        if (eaten->next >= 0) nodes[eaten->next].previous = top.at;
        *eaten = (struct hl_bpe_node){-1, -1, -1};
        offer(bpe, scratch, &n_heap, node->previous);
        offer(bpe, scratch, &n_heap, top.at);
    }
    for (int32_t at = 0; at >= 0; at = nodes[at].next) ids[n_out++] = nodes[at].id;
    return n_out;
}

enum hl_status hl_bpe_merge(const struct hl_bpe *bpe, struct hl_mem *mem,
                            struct hl_bpe_scratch *scratch, int32_t *ids, size_t *n,
                            struct hl_diag *diag) {
    if (*n <= SHORT_WORD) {
        *n = merge_short(bpe, ids, *n);
        return HL_OK;
    }
    enum hl_status status = long_room(scratch, mem, *n, diag);
    if (status == HL_OK) *n = merge_long(bpe, scratch, ids, *n);
    return status;
}

/* ---- words that are one token ---- */

int32_t hl_bpe_find_word(const struct hl_bpe *bpe, const char *word, size_t n) {
    uint64_t hash = XXH3_64bits(word, n);
    uint32_t tag = (uint32_t)(hash >> 32);
    for (size_t at = (size_t)hash & bpe->word_mask;; at = (at + 1) & bpe->word_mask) {
        const struct hl_word_slot *slot = &bpe->words[at];
        if (slot->id < 0) return -1;
        if (slot->tag != tag) continue;
        size_t start = bpe->start[slot->id];
        if (bpe->start[slot->id + 1] - start == n && memcmp(bpe->bytes + start, word, n) == 0)
            return slot->id;
    }
}

static void put_word(struct hl_bpe *bpe, int32_t id, const char *word, size_t n) {
    uint64_t hash = XXH3_64bits(word, n);
    size_t at = (size_t)hash & bpe->word_mask;
    while (bpe->words[at].id >= 0) at = (at + 1) & bpe->word_mask;
    bpe->words[at] = (struct hl_word_slot){(uint32_t)(hash >> 32), id};
}

/* Does merging the bytes of the token give the token? */
static enum hl_status confirm(const struct hl_bpe *bpe, struct hl_mem *mem,
                              struct hl_bpe_scratch *scratch, int32_t id, int32_t **ids,
                              size_t *capacity, const int32_t byte_id[256], bool *out,
                              struct hl_diag *diag) {
    const unsigned char *word = (const unsigned char *)bpe->bytes + bpe->start[id];
    size_t n = bpe->start[id + 1] - bpe->start[id];
    if (n > *capacity) {
        int32_t *grown = hl_realloc(mem, *ids, n * 2, sizeof **ids);
        if (!grown) return hl_fail_memory(diag, n * 2 * sizeof **ids, "a long token");
        *ids = grown;
        *capacity = n * 2;
    }
    *out = false;
    for (size_t i = 0; i < n; i++)
        if (((*ids)[i] = byte_id[word[i]]) < 0) return HL_OK;
    enum hl_status status = hl_bpe_merge(bpe, mem, scratch, *ids, &n, diag);
    *out = n == 1 && (*ids)[0] == id;
    return status;
}

enum hl_status hl_bpe_index_words(struct hl_bpe *bpe, struct hl_mem *mem, const char *bytes,
                                  const size_t *start, const bool *wanted, size_t n_ids,
                                  const int32_t byte_id[256], bool trusted, struct hl_diag *diag) {
    size_t n_slots = (size_t)1 << table_bits(n_ids);
    bpe->words = hl_alloc(mem, n_slots, sizeof *bpe->words);
    if (!bpe->words)
        return hl_fail_memory(diag, n_slots * sizeof *bpe->words, "the table of words");
    bpe->word_mask = n_slots - 1;
    bpe->bytes = bytes;
    bpe->start = start;
    for (size_t i = 0; i < n_slots; i++) bpe->words[i].id = -1;
    struct hl_bpe_scratch scratch = {0};
    int32_t *ids = NULL;
    size_t capacity = 0;
    enum hl_status status = HL_OK;
    for (size_t id = 0; id < n_ids && status == HL_OK; id++) {
        bool is_word = trusted;
        if (!wanted[id] || start[id + 1] == start[id]) continue;
        if (!trusted)
            status =
                confirm(bpe, mem, &scratch, (int32_t)id, &ids, &capacity, byte_id, &is_word, diag);
        if (status == HL_OK && is_word)
            put_word(bpe, (int32_t)id, bytes + start[id], start[id + 1] - start[id]);
    }
    hl_bpe_scratch_free(&scratch, mem);
    hl_free(mem, ids);
    return status;
}
