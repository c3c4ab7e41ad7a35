/* Inner seam of attention: each instruction set fills its five entries of the table, for the table's dtype. */
#ifndef HALLEY_KERNELS_ATTENTION_H
#define HALLEY_KERNELS_ATTENTION_H

#include "halley/kernels.h"

void hl_attention_fill_ref(struct hl_kernels *table);

/* Rows of the longest sequence. */
int64_t hl_attention_longest(const struct hl_attention *a);

#endif
