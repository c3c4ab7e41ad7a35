/* A matrix product as its definition says. Rows are shared out; each sum is one f32 in ascending k.
 */
#include "kernels/products.h"

static float load(const void *x, enum hl_dtype type, int64_t i) {
    return type == HL_F32 ? ((const float *)x)[i] : hl_bf16_to_f32(((const struct hl_bf16 *)x)[i]);
}

static void store(const struct hl_product *p, int64_t i, float sum) {
    if (p->out == HL_BF16) ((struct hl_bf16 *)p->C)[i] = hl_bf16_from_f32(sum);
    else ((float *)p->C)[i] = p->add ? ((float *)p->C)[i] + sum : sum;
}

void hl_product_ref(const struct hl_product *p) {
#pragma omp parallel for schedule(static) if (p->M * p->N * p->K > 100000)
    for (int64_t m = 0; m < p->M; m++)
        for (int64_t n = 0; n < p->N; n++) {
            float sum = 0;
            for (int64_t k = 0; k < p->K; k++)
                sum += load(p->A, p->in, p->ta ? k * p->lda + m : m * p->lda + k) *
                       load(p->B, p->in, p->tb ? n * p->ldb + k : k * p->ldb + n);
            store(p, m * p->ldc + n, sum);
        }
}
