/* exp over an array with AVX-512. */
#include "kernels/x86/vec_avx512.h"

#include "kernels/x86/exp.h"
#include "kernels/x86/vec_math.h"

void hl_exp_avx512(int64_t n_floats, const float *x, float *y) {
    for (int64_t i = 0; i < n_floats; i += W) {
        const int64_t n = n_floats - i < W ? n_floats - i : W;
        vf_store(y + i, vf_exp(vf_load(x + i, n)), n);
    }
}
