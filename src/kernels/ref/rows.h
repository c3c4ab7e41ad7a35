/* All reference kernels that work on rows, for one T. Included by rows_f32.c and rows_bf16.c, which
 * define T, get(x, i) -> float, put(x, i, float) and the name FILL_ROWS. */
#include <math.h>
#include <string.h>

#include "kernels/chunks.h"
#include "kernels/ref/fill.h"

#include "kernels/ref/cross_entropy_body.h"
#include "kernels/ref/elementwise_body.h"
#include "kernels/ref/embed_body.h"
#include "kernels/ref/heads_body.h"
#include "kernels/ref/norm_body.h"

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
