/* Do all ranks run the same thing? Asked at the start, when a difference can still be told; later
 * it would show as a loss that nobody understands. */
#ifndef HALLEY_TRAIN_AGREE_H
#define HALLEY_TRAIN_AGREE_H

#include "halley/collective.h"

struct hl_agree_item {
    const char *key;
    char value[112]; /* as text; a longer one ends with its hash */
};
void hl_agree_set(struct hl_agree_item *item, const char *key, const char *value);
void hl_agree_set_hash(struct hl_agree_item *item, const char *key, uint64_t hash);

/* Every rank has the same keys in the same order, or another version of the program. Waits.
 * what: "configuration", ... for the message
 * errors HL_E_USER on all ranks: the first rank that differs from rank 0, the key, both values;
 *        HL_E_PEER, HL_E_TIMEOUT, HL_E_MEMORY */
enum hl_status hl_agree(struct hl_mem *mem, struct hl_group *group, const char *what,
                        const struct hl_agree_item *items, int n,
                        struct hl_diag *diag) HL_MUST_CHECK;

#endif
