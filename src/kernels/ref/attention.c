/* Causal attention as its definition says, row by row; no T x T matrix exists, only one row of
 * scores at a time. attention_body.h is the code, once for each compute type. One task is one
 * key/value head of one sequence with all query heads that share it, so no two tasks write the same
 * element. Source: Vaswani et al. 2017; backward through the saved log-sum-exp as in
 * arXiv:2205.14135, appendix B.4. */
#include "kernels/attention.h"

#include <math.h>
#include <omp.h>
#include <string.h>

int64_t hl_attention_longest(const struct hl_attention *a) {
    int64_t longest = 0;
    for (int64_t s = 0; s < a->n_sequences; s++) {
        int64_t n = a->offsets[s + 1] - a->offsets[s];
        if (n > longest) longest = n;
    }
    return longest;
}

/* Per thread: a row of probabilities [T], dq [D], dk and dv [T, D]. */
static int64_t task_floats(const struct hl_attention *a) {
    int64_t T = hl_attention_longest(a);
    return T + a->head_dim + 2 * T * a->head_dim;
}

static size_t scratch_bytes(const struct hl_attention *a) {
    return (size_t)task_floats(a) * sizeof(float) * (size_t)omp_get_max_threads();
}

#define T float
#define NAME(x) x##_f32
#define LOAD(x) (x)
#define STORE(x) (x)
#include "kernels/ref/attention_body.h"
#undef T
#undef NAME
#undef LOAD
#undef STORE

#define T struct hl_bf16
#define NAME(x) x##_bf16
#define LOAD(x) hl_bf16_to_f32(x)
#define STORE(x) hl_bf16_from_f32(x)
#include "kernels/ref/attention_body.h"

void hl_attention_fill_ref(struct hl_kernels *table) {
    bool f32 = table->dtype == HL_F32;
    table->attention_scratch = scratch_bytes;
    table->attention_fwd = f32 ? forward_f32 : forward_bf16;
    table->attention_bwd = f32 ? backward_f32 : backward_bf16;
    table->attention_decode = f32 ? decode_f32 : decode_bf16;
}
