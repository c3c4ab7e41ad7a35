/* Attention against a direct softmax in f64, and its gradient against finite differences of that. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "halley/rng.h"
#include "kernels/attention.h"

/* out [N, H*D] in f64 straight from the definition. */
static void direct(const struct hl_attention *a, const double *qkv, double *out) {
    int64_t H = a->n_heads, K = a->n_kv_heads, D = a->head_dim, E = (H + 2 * K) * D;
    for (int64_t s = 0; s < a->n_sequences; s++)
        for (int64_t i = a->offsets[s]; i < a->offsets[s + 1]; i++)
            for (int64_t h = 0; h < H; h++) {
                int64_t kv = h / (H / K);
                double top = -INFINITY, sum = 0, *o = out + (i * H + h) * D, p[400];
                assert_true(i - a->offsets[s] < 400);
                for (int64_t j = a->offsets[s]; j <= i; j++) {
                    double x = 0;
                    for (int64_t d = 0; d < D; d++) x += qkv[i * E + h * D + d] * qkv[j * E + (H + kv) * D + d];
                    p[j - a->offsets[s]] = x * (double)a->scale;
                    top = fmax(top, p[j - a->offsets[s]]);
                }
                for (int64_t d = 0; d < D; d++) o[d] = 0;
                for (int64_t j = a->offsets[s]; j <= i; j++) {
                    double e = exp(p[j - a->offsets[s]] - top);
                    sum += e;
                    for (int64_t d = 0; d < D; d++) o[d] += e * qkv[j * E + (H + K + kv) * D + d];
                }
                for (int64_t d = 0; d < D; d++) o[d] /= sum;
            }
}

static void test_ref_gradient(void **state) {
    (void)state;
    const int64_t offsets[] = {0, 1, 6, 9};
    struct hl_attention a = {3, offsets, 4, 2, 3, 0.6F};
    enum { N = 9, E = 24, O = 12 };
    float qkv[N * E], out[N * O], lse[N * 4], dout[N * O], dqkv[N * E];
    double x[N * E], y[N * O], up[N * O], down[N * O];
    for (int i = 0; i < N * E; i++) x[i] = (double)(qkv[i] = (float)hl_rng_normal(5, HL_RNG_INIT, (uint64_t)i));
    for (int i = 0; i < N * O; i++) dout[i] = (float)hl_rng_normal(6, HL_RNG_INIT, (uint64_t)i);
    struct hl_kernels table = {.dtype = HL_F32};
    hl_attention_fill_ref(&table);
    void *scratch = malloc(table.attention_scratch(&a));
    table.attention_fwd(&a, qkv, out, lse, scratch);
    table.attention_bwd(&a, qkv, out, lse, dout, dqkv, scratch);
    direct(&a, x, y);
    for (int i = 0; i < N * O; i++) assert_true(fabs(y[i] - (double)out[i]) < 1e-5);
    for (int i = 0; i < N * E; i++) {
        const double step = 1e-5, old = x[i];
        double want = 0;
        x[i] = old + step;
        direct(&a, x, up);
        x[i] = old - step;
        direct(&a, x, down);
        x[i] = old;
        for (int o = 0; o < N * O; o++) want += (up[o] - down[o]) / (2 * step) * (double)dout[o];
        if (fabs(want - (double)dqkv[i]) > 2e-5 * (1 + fabs(want))) fail_msg("%d: %g, not %g", i, (double)dqkv[i], want);
    }
    free(scratch);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ref_gradient)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
