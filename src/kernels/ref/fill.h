/* The two instances of the reference for rows. */
#ifndef HALLEY_KERNELS_REF_FILL_H
#define HALLEY_KERNELS_REF_FILL_H

#include "halley/kernels.h"

void hl_rows_fill_ref_f32(struct hl_kernels *k);
void hl_rows_fill_ref_bf16(struct hl_kernels *k);

#endif
