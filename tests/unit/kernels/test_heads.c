/* Rotary positions and per-head RMSNorm: every instruction set against the reference, the reference
 * against f64. */
#include "rig.h"

enum { INVERSE = 1, ADD = 1, MAX_POSITION = 16 };

/* shape: N, H, K, D */

static void positions(int64_t n, int32_t *position) {
    for (int64_t i = 0; i < n; i++) position[i] = (int32_t)(i * 7 % MAX_POSITION);
}

static void rope_case(struct rig *r, const int64_t *shape, int variant) {
    const int64_t N = shape[0], H = shape[1], K = shape[2], D = shape[3];
    void *qkv = rig_t(r, N * (H + 2 * K) * D);
    const float *cos = rig_f(r, MAX_POSITION * (D / 2)), *sin = rig_f(r, MAX_POSITION * (D / 2));
    int32_t position[256];
    assert_true(N <= 256);
    positions(N, position);
    r->k->rope(N, H, K, D, qkv, position, cos, sin, variant & INVERSE);
}

static void headnorm_fwd_case(struct rig *r, const int64_t *shape, int variant) {
    (void)variant;
    const int64_t N = shape[0], H = shape[1], K = shape[2], D = shape[3], E = (H + 2 * K) * D;
    const void *in = rig_t(r, N * E), *wq = rig_t(r, D), *wk = rig_t(r, D);
    void *out = rig_t(r, N * E);
    r->k->headnorm_fwd(N, H, K, D, in, wq, wk, 1e-6f, out, rig_f(r, N * (H + K)));
}

static void headnorm_bwd_case(struct rig *r, const int64_t *shape, int variant) {
    const int64_t N = shape[0], H = shape[1], K = shape[2], D = shape[3], E = (H + 2 * K) * D;
    const void *in = rig_t(r, N * E), *wq = rig_t(r, D), *wk = rig_t(r, D);
    void *d = rig_t(r, N * E);
    const float *rstd = rig_array(r, HL_F32, N * (H + K), 1, 0.1f);
    float *dwq = rig_f(r, D), *dwk = rig_f(r, D),
          *scratch = rig_scratch(r, hl_norm_scratch(N, 2 * D));
    r->k->headnorm_bwd(N, H, K, D, in, wq, wk, rstd, d, dwq, dwk, variant & ADD, scratch);
}

static const int64_t shapes[][4] = {{0, 2, 1, 8},  {1, 1, 1, 2},   {3, 2, 1, 6},
                                    {5, 4, 2, 34}, {66, 3, 3, 16}, {130, 2, 1, 128}};
static const int64_t large[4] = {193, 4, 2, 64};

static void run_all(rig_case *run, int variant, double absolute) {
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        rig_run(&(struct rig_plan){run, shapes[i], variant, 1e-5, absolute, false});
    rig_run_teams(&(struct rig_plan){run, large, variant, 0, 0, true});
}

static void test_rope(void **state) {
    (void)state;
    run_all(rope_case, 0, 2e-6);
    run_all(rope_case, INVERSE, 2e-6);
}

static void test_headnorm(void **state) {
    (void)state;
    run_all(headnorm_fwd_case, 0, 1e-5);
    run_all(headnorm_bwd_case, 0, 1e-4);
    run_all(headnorm_bwd_case, ADD, 1e-4);
}

static void test_poison(void **state) {
    (void)state;
    const int64_t shape[4] = {3, 2, 1, 18};
    rig_run_poisons(&(struct rig_plan){rope_case, shape, 0, 1e-5, 2e-6, false}, 3);
    rig_run_poisons(&(struct rig_plan){headnorm_fwd_case, shape, 0, 1e-5, 1e-5, false}, 3);
    rig_run_poisons(&(struct rig_plan){headnorm_bwd_case, shape, 0, 1e-5, 1e-4, false}, 5);
}

/* ---- the reference against definitions ---- */

/* Pairs are rotated as complex numbers; rotating back gives the input; v is left alone. */
static void test_rope_rotates(void **state) {
    (void)state;
    enum { N = 4, H = 2, K = 1, D = 6, E = (H + 2 * K) * D, P = 9 };
    float x[N * E], y[N * E], cos_PD[P * D / 2], sin_PD[P * D / 2];
    const int32_t position[N] = {0, 8, 3, 3};
    for (int p = 0; p < P; p++)
        for (int j = 0; j < D / 2; j++) {
            cos_PD[p * D / 2 + j] = (float)cos(p / (j + 1.0));
            sin_PD[p * D / 2 + j] = (float)sin(p / (j + 1.0));
        }
    for (int i = 0; i < N * E; i++) y[i] = x[i] = rig_random((uint64_t)i);
    const struct hl_kernels *k = rig_kernels(HL_ISA_REF, HL_F32);
    k->rope(N, H, K, D, y, position, cos_PD, sin_PD, false);
    for (int n = 0; n < N; n++)
        for (int h = 0; h < H + 2 * K; h++)
            for (int j = 0; j < D / 2; j++) {
                const int at = n * E + h * D + j;
                const double angle = h < H + K ? position[n] / (j + 1.0) : 0;
                const double a = (double)x[at], b = (double)x[at + D / 2];
                assert_true(fabs((double)y[at] - (a * cos(angle) - b * sin(angle))) < 1e-6);
                assert_true(fabs((double)y[at + D / 2] - (b * cos(angle) + a * sin(angle))) < 1e-6);
            }
    k->rope(N, H, K, D, y, position, cos_PD, sin_PD, true);
    for (int i = 0; i < N * E; i++) assert_true(fabs((double)y[i] - (double)x[i]) < 1e-6);
}

/* A head is a row of RMSNorm, so the tested kernel says what must come out. */
static void test_headnorm_is_rmsnorm(void **state) {
    (void)state;
    enum { N = 3, H = 2, K = 1, D = 5, E = (H + 2 * K) * D };
    float in[N * E], out[N * E], d[N * E], w[2][D], rstd[N * (H + K)], dw[2][D], scratch[4 * D];
    for (int i = 0; i < N * E; i++)
        in[i] = rig_random((uint64_t)i), d[i] = rig_random(1000 + (uint64_t)i);
    for (int i = 0; i < 2 * D; i++) w[i / D][i % D] = rig_random(2000 + (uint64_t)i);
    const struct hl_kernels *k = rig_kernels(HL_ISA_REF, HL_F32);
    float want_dw[2][D] = {0}, want_d[N * E];
    memcpy(want_d, d, sizeof d);
    k->headnorm_fwd(N, H, K, D, in, w[0], w[1], 1e-5f, out, rstd);
    for (int n = 0; n < N; n++) {
        for (int h = 0; h < H + K; h++) {
            const int at = n * E + h * D, is_k = h >= H;
            float y[D], r, dx[D] = {0};
            k->rmsnorm_fwd(1, D, in + at, NULL, NULL, NULL, w[is_k], 1e-5f, y, &r);
            assert_memory_equal(y, out + at, sizeof y);
            assert_memory_equal(&r, &rstd[n * (H + K) + h], sizeof r);
            k->rmsnorm_bwd(1, D, d + at, in + at, w[is_k], &r, dx, want_dw[is_k], true, scratch);
            memcpy(want_d + at, dx, sizeof dx);
        }
        assert_memory_equal(in + n * E + (H + K) * D, out + n * E + (H + K) * D,
                            K * D * sizeof *in);
    }
    k->headnorm_bwd(N, H, K, D, in, w[0], w[1], rstd, d, dw[0], dw[1], false, scratch);
    assert_memory_equal(d, want_d, sizeof d);
    for (int i = 0; i < 2 * D; i++)
        assert_true(fabsf(dw[i / D][i % D] - want_dw[i / D][i % D]) < 1e-5f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rope),
        cmocka_unit_test(test_headnorm),
        cmocka_unit_test(test_poison),
        cmocka_unit_test(test_rope_rotates),
        cmocka_unit_test(test_headnorm_is_rmsnorm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
