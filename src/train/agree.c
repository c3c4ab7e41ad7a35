/* See agree.h. Fixed-size records, gathered by all: first how many, then the items themselves, so
 * that a message can show both values. */
#include "train/agree.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

/* What travels: no pointers. */
struct record {
    char key[48], value[112];
};

void hl_agree_set(struct hl_agree_item *item, const char *key, const char *value) {
    size_t n = strlen(value);
    *item = (struct hl_agree_item){.key = key};
    if (n < sizeof item->value) memcpy(item->value, value, n);
    else
        (void)snprintf(item->value, sizeof item->value, "%.60s... (%016" PRIx64 ")", value,
                       (uint64_t)XXH3_64bits(value, n));
}

void hl_agree_set_hash(struct hl_agree_item *item, const char *key, uint64_t hash) {
    *item = (struct hl_agree_item){.key = key};
    (void)snprintf(item->value, sizeof item->value, "%016" PRIx64, hash);
}

static enum hl_status gather(struct hl_group *group, void *data, size_t bytes_each,
                             struct hl_diag *diag) {
    struct hl_collective op;
    const struct hl_collective_args args = {.kind = HL_ALL_GATHER,
                                            .data = data,
                                            .n = (int64_t)bytes_each * hl_group_n_ranks(group),
                                            .element_bytes = 1,
                                            .unit = (int64_t)bytes_each};
    hl_collective_start(group, &args, &op);
    return hl_collective_wait(group, &op, diag);
}

/* Versions may have other keys: their number comes first. */
static enum hl_status same_number(struct hl_group *group, const char *what, int n,
                                  struct hl_diag *diag) {
    double all[HL_MAX_RANKS] = {0};
    all[hl_group_rank(group)] = n;
    enum hl_status status = hl_group_share(group, all, 1, diag);
    if (status != HL_OK) return status;
    for (int r = 1; r < hl_group_n_ranks(group); r++)
        if (all[r] != all[0])
            return hl_fail(diag, HL_E_USER,
                           "rank %d tells %d values of its %s and rank 0 tells %d: they run "
                           "different versions of halley",
                           r, (int)all[r], what, (int)all[0]);
    return HL_OK;
}

static enum hl_status compare(const struct record *all, int n_ranks, int n, const char *what,
                              struct hl_diag *diag) {
    for (int r = 1; r < n_ranks; r++)
        for (int i = 0; i < n; i++) {
            const struct record *first = &all[i], *other = &all[r * n + i];
            if (!memcmp(first, other, sizeof *first)) continue;
            return hl_fail(diag, HL_E_USER,
                           "the %s is not the same on all ranks: %.47s is %.111s on rank 0 and "
                           "%.111s on rank %d; start all ranks alike",
                           what, first->key, *first->value ? first->value : "empty",
                           *other->value ? other->value : "empty", r);
        }
    return HL_OK;
}

enum hl_status hl_agree(struct hl_mem *mem, struct hl_group *group, const char *what,
                        const struct hl_agree_item *items, int n, struct hl_diag *diag) {
    int n_ranks = hl_group_n_ranks(group);
    if (n_ranks == 1) return HL_OK;
    enum hl_status status = same_number(group, what, n, diag);
    if (status != HL_OK) return status;
    struct record *all = hl_alloc(mem, (size_t)n_ranks * (size_t)n, sizeof *all);
    if (!all) return hl_fail_memory(diag, (size_t)n_ranks * (size_t)n * sizeof *all, what);
    struct record *own = all + hl_group_rank(group) * n;
    for (int i = 0; i < n; i++) {
        (void)snprintf(own[i].key, sizeof own->key, "%s", items[i].key);
        memcpy(own[i].value, items[i].value, sizeof own->value);
    }
    status = gather(group, all, (size_t)n * sizeof *all, diag);
    if (status == HL_OK) status = compare(all, n_ranks, n, what, diag);
    hl_free(mem, all);
    return status;
}
