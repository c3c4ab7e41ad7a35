/* The instances of the row kernels of this processor family. */
#ifndef HALLEY_KERNELS_X86_FILL_H
#define HALLEY_KERNELS_X86_FILL_H

#include "halley/kernels.h"

void hl_rows_fill_f32_avx2(struct hl_kernels *k);
void hl_rows_fill_bf16_avx2(struct hl_kernels *k);
void hl_rows_fill_f32_avx512(struct hl_kernels *k);
void hl_rows_fill_bf16_avx512(struct hl_kernels *k);

#endif
