/* All vectorised kernels that work on rows, for one instruction set and one T.
 * Included by rows_<T>_<isa>.c, which include vec_<isa>.h and define T, TYPE_IS_BF16 and FILL_ROWS.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "kernels/chunks.h"
#include "kernels/x86/fill.h"
#include "kernels/x86/vec_math.h"

/* Lanes from column c on: W, or what is left of C. */
static inline int64_t lanes(int64_t C, int64_t c) { return C - c < W ? C - c : W; }

static inline vf load(const T *p, int64_t n) {
    return TYPE_IS_BF16 ? vf_load_bf16(p, n) : vf_load(p, n);
}
static inline void store(T *p, vf x, int64_t n) {
    if (TYPE_IS_BF16) vf_store_bf16(p, x, n);
    else vf_store(p, x, n);
}

static inline vf sigmoid(vf x) { return TYPE_IS_BF16 ? vf_sigmoid_bf16(x) : vf_sigmoid(x); }

#include "kernels/x86/cross_entropy_body.h"
#include "kernels/x86/elementwise_body.h"
#include "kernels/x86/embed_body.h"
#include "kernels/x86/heads_body.h"
#include "kernels/x86/norm_body.h"

void FILL_ROWS(struct hl_kernels *k) {
    k->layernorm_fwd = layernorm_fwd;
    k->layernorm_again = layernorm_again;
    k->layernorm_bwd = layernorm_bwd;
    k->rmsnorm_fwd = rmsnorm_fwd;
    k->rmsnorm_again = rmsnorm_again;
    k->rmsnorm_bwd = rmsnorm_bwd;
    k->residual_add = residual_add;
    k->bias_add = bias_add;
    k->bias_bwd = bias_bwd;
    k->gelu_fwd = gelu_fwd;
    k->gelu_bwd = gelu_bwd;
    k->swiglu_fwd = swiglu_fwd;
    k->swiglu_bwd = swiglu_bwd;
    k->rope = rope;
    k->headnorm_fwd = headnorm_fwd;
    k->headnorm_bwd = headnorm_bwd;
    k->embed_fwd = embed_fwd;
    k->embed_bwd = embed_bwd;
    k->cross_entropy = cross_entropy;
}
