/* Counts of pairs with a lazy heap. See pair_counts.h. */
#include "text/pair_counts.h"

#include <assert.h>

/* Room for one more item of a growing array. */
static enum hl_status grow(struct hl_mem *mem, void *array, size_t n, size_t *capacity, size_t size,
                           void **out, struct hl_diag *diag) {
    *out = array;
    if (n < *capacity) return HL_OK;
    if (n >= UINT32_MAX / 2)
        return hl_fail(diag, HL_E_UNSUPPORTED, "too much text to learn merges from");
    size_t more = *capacity ? *capacity * 2 : 1024;
    void *grown = hl_realloc(mem, array, more, size);
    if (!grown) return hl_fail_memory(diag, more * size, "counting pairs");
    *capacity = more;
    *out = grown;
    return HL_OK;
}

#define GROW(counts, array, n, capacity, diag)                                                     \
    grow((counts)->mem, (counts)->array, (counts)->n, &(counts)->capacity,                         \
         sizeof *(counts)->array, (void **)&(counts)->array, diag)

/* ---- table ---- */

static size_t home(const struct hl_pair_counts *counts, int32_t left, int32_t right) {
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    return (size_t)(key * 0x9E3779B97F4A7C15u >> 32) & counts->mask;
}

/* The pair's slot, or the empty one where it belongs. */
static uint32_t *find_slot(const struct hl_pair_counts *counts, int32_t left, int32_t right) {
    for (size_t at = home(counts, left, right);; at = (at + 1) & counts->mask) {
        uint32_t *slot = &counts->slots[at];
        if (!*slot) return slot;
        const struct hl_pair *pair = &counts->pairs[*slot - 1];
        if (pair->left == left && pair->right == right) return slot;
    }
}

static enum hl_status grow_slots(struct hl_pair_counts *counts, struct hl_diag *diag) {
    size_t n = counts->slots ? (counts->mask + 1) * 2 : 4096;
    uint32_t *slots = hl_alloc(counts->mem, n, sizeof *slots);
    if (!slots) return hl_fail_memory(diag, n * sizeof *slots, "counting pairs");
    hl_free(counts->mem, counts->slots);
    counts->slots = slots;
    counts->mask = n - 1;
    for (size_t i = 0; i < counts->n_pairs; i++)
        *find_slot(counts, counts->pairs[i].left, counts->pairs[i].right) = (uint32_t)i + 1;
    return HL_OK;
}

static enum hl_status find_or_add(struct hl_pair_counts *counts, int32_t left, int32_t right,
                                  uint32_t *pair_out, struct hl_diag *diag) {
    enum hl_status status = HL_OK;
    if (!counts->slots || (counts->n_pairs + 1) * 2 > counts->mask)
        status = grow_slots(counts, diag);
    if (status != HL_OK) return status;
    uint32_t *slot = find_slot(counts, left, right);
    if (!*slot) {
        status = GROW(counts, pairs, n_pairs, pairs_capacity, diag);
        if (status != HL_OK) return status;
        counts->pairs[counts->n_pairs++] = (struct hl_pair){left, right, 0, HL_NO_LINK};
        *slot = (uint32_t)counts->n_pairs;
    }
    *pair_out = *slot - 1;
    return HL_OK;
}

/* ---- words that hold a pair ---- */

static enum hl_status link_word(struct hl_pair_counts *counts, struct hl_pair *pair, uint32_t word,
                                struct hl_diag *diag) {
    if (pair->links != HL_NO_LINK && counts->links[pair->links].word == word) return HL_OK;
    uint32_t at = counts->free_links;
    if (at != HL_NO_LINK) counts->free_links = counts->links[at].next;
    else {
        enum hl_status status = GROW(counts, links, n_links, links_capacity, diag);
        if (status != HL_OK) return status;
        at = (uint32_t)counts->n_links++;
    }
    counts->links[at] = (struct hl_pair_link){word, pair->links};
    pair->links = at;
    return HL_OK;
}

void hl_pair_counts_clear(struct hl_pair_counts *counts, uint32_t pair) {
    uint32_t first = counts->pairs[pair].links, last = first;
    if (first == HL_NO_LINK) return;
    while (counts->links[last].next != HL_NO_LINK) last = counts->links[last].next;
    counts->links[last].next = counts->free_links;
    counts->free_links = first;
    counts->pairs[pair].links = HL_NO_LINK;
}

/* ---- counts ---- */

enum hl_status hl_pair_counts_raise(struct hl_pair_counts *counts, int32_t left, int32_t right,
                                    int64_t by, uint32_t word, struct hl_diag *diag) {
    uint32_t index;
    enum hl_status status = find_or_add(counts, left, right, &index, diag);
    if (status != HL_OK) return status;
    struct hl_pair *pair = &counts->pairs[index];
    assert(index >= counts->n_settled);
    pair->count += by;
    return link_word(counts, pair, word, diag);
}

void hl_pair_counts_lower(struct hl_pair_counts *counts, int32_t left, int32_t right, int64_t by) {
    uint32_t *slot = find_slot(counts, left, right);
    assert(*slot);
    counts->pairs[*slot - 1].count -= by;
}

/* ---- heap ---- */

static bool better(const struct hl_pair_counts *counts, struct hl_pair_entry a,
                   struct hl_pair_entry b) {
    if (a.count != b.count) return a.count > b.count;
    const struct hl_pair *p = &counts->pairs[a.pair], *q = &counts->pairs[b.pair];
    return p->left != q->left ? p->left < q->left : p->right < q->right;
}

static void push(struct hl_pair_counts *counts, struct hl_pair_entry entry) {
    struct hl_pair_entry *heap = counts->heap;
    size_t at = counts->n_heap++;
    for (; at && better(counts, entry, heap[(at - 1) / 2]); at = (at - 1) / 2)
        heap[at] = heap[(at - 1) / 2];
    heap[at] = entry;
}

static struct hl_pair_entry pop(struct hl_pair_counts *counts) {
    struct hl_pair_entry *heap = counts->heap, top = heap[0], last = heap[--counts->n_heap];
    size_t at = 0, n = counts->n_heap;
    for (size_t child = 1; child < n; child = 2 * at + 1) {
        if (child + 1 < n && better(counts, heap[child + 1], heap[child])) child++;
        if (!better(counts, heap[child], last)) break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = last;
    return top;
}

enum hl_status hl_pair_counts_settle(struct hl_pair_counts *counts, struct hl_diag *diag) {
    for (; counts->n_settled < counts->n_pairs; counts->n_settled++) {
        enum hl_status status = GROW(counts, heap, n_heap, heap_capacity, diag);
        if (status != HL_OK) return status;
        int64_t count = counts->pairs[counts->n_settled].count;
        push(counts, (struct hl_pair_entry){count, (uint32_t)counts->n_settled});
    }
    return HL_OK;
}

enum hl_status hl_pair_counts_best(struct hl_pair_counts *counts, int64_t least,
                                   uint32_t *pair_out) {
    while (counts->n_heap) {
        struct hl_pair_entry top = pop(counts);
        int64_t now = counts->pairs[top.pair].count;
        if (top.count == now && now >= least) {
            *pair_out = top.pair;
            return HL_OK;
        }
        if (now >= least) push(counts, (struct hl_pair_entry){now, top.pair});
    }
    return HL_END;
}

void hl_pair_counts_free(struct hl_pair_counts *counts) {
    hl_free(counts->mem, counts->pairs);
    hl_free(counts->mem, counts->slots);
    hl_free(counts->mem, counts->links);
    hl_free(counts->mem, counts->heap);
    *counts = (struct hl_pair_counts){.mem = counts->mem, .free_links = HL_NO_LINK};
}
