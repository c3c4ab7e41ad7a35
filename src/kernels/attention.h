/* Inner seam of attention: each instruction set fills its five entries of the table, for the
 * table's dtype. */
#ifndef HALLEY_KERNELS_ATTENTION_H
#define HALLEY_KERNELS_ATTENTION_H

#include "kernels/table.h"

/* Rows of the longest sequence. */
int64_t hl_attention_longest(const struct hl_attention *a);

#endif
