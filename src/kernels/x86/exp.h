/* exp over an array with each instruction set: for tests that measure its error over all floats. */
#ifndef HALLEY_KERNELS_X86_EXP_H
#define HALLEY_KERNELS_X86_EXP_H

#include <stdint.h>

void hl_exp_avx2(int64_t n_floats, const float *x, float *y);
void hl_exp_avx512(int64_t n_floats, const float *x, float *y);

#endif
