/* LayerNorm, RMSNorm and the residual: every instruction set against the reference, the reference
 * against f64. */
#include "rig.h"

/* ---- every instruction set against the reference. shape: N, C ---- */

enum { WITH_DELTA = 1, WITH_BIAS = 2, IN_PLACE = 4, WITH_SUM = 8, ADD = 1 };

struct forward {
    const float *x;
    const void *a, *bias, *w, *b;
    float *sum, *mean, *rstd;
    void *y;
};

static struct forward forward_arrays(struct rig *r, int64_t N, int64_t C, int variant) {
    struct forward f = {.x = rig_f(r, N * C), .w = rig_t(r, C), .b = rig_t(r, C)};
    if (variant & WITH_DELTA) f.a = rig_t(r, N * C);
    if (variant & WITH_BIAS) f.bias = rig_t(r, C);
    if (variant & IN_PLACE) f.sum = (float *)(uintptr_t)f.x;
    else if (variant & WITH_SUM) f.sum = rig_f(r, N * C);
    f.y = rig_t(r, N * C);
    f.mean = rig_f(r, N);
    f.rstd = rig_f(r, N);
    return f;
}

static void layernorm_case(struct rig *r, const int64_t *shape, int variant) {
    const int64_t N = shape[0], C = shape[1];
    const struct forward f = forward_arrays(r, N, C, variant);
    r->k->layernorm_fwd(N, C, f.x, f.a, f.bias, f.sum, f.w, f.b, 1e-5f, f.y, f.mean, f.rstd);
    unsigned char *again = rig_t(r, N * C);
    r->k->layernorm_again(N, C, f.sum ? f.sum : f.x, f.w, f.b, f.mean, f.rstd, again);
    assert_memory_equal(again, f.y, (size_t)(N * C) * hl_dtype_bytes(r->k->dtype));
}

static void rmsnorm_case(struct rig *r, const int64_t *shape, int variant) {
    const int64_t N = shape[0], C = shape[1];
    const struct forward f = forward_arrays(r, N, C, variant);
    r->k->rmsnorm_fwd(N, C, f.x, f.a, f.bias, f.sum, f.w, 1e-5f, f.y, f.rstd);
    unsigned char *again = rig_t(r, N * C);
    r->k->rmsnorm_again(N, C, f.sum ? f.sum : f.x, f.w, f.rstd, again);
    assert_memory_equal(again, f.y, (size_t)(N * C) * hl_dtype_bytes(r->k->dtype));
}

static void layernorm_bwd_case(struct rig *r, const int64_t *shape, int variant) {
    const int64_t N = shape[0], C = shape[1];
    const void *dy = rig_t(r, N * C);
    const float *x = rig_f(r, N * C);
    const void *w = rig_t(r, C);
    const float *mean = rig_array(r, HL_F32, N, 0, 0.1f), *rstd = rig_array(r, HL_F32, N, 1, 0.1f);
    float *dx = rig_f(r, N * C), *dw = rig_f(r, C), *db = rig_f(r, C);
    r->k->layernorm_bwd(N, C, dy, x, w, mean, rstd, dx, dw, db, variant & ADD,
                        rig_scratch(r, hl_norm_scratch(N, C)));
}

static void rmsnorm_bwd_case(struct rig *r, const int64_t *shape, int variant) {
    const int64_t N = shape[0], C = shape[1];
    const void *dy = rig_t(r, N * C);
    const float *x = rig_f(r, N * C);
    const void *w = rig_t(r, C);
    const float *rstd = rig_array(r, HL_F32, N, 1, 0.1f);
    float *dx = rig_f(r, N * C), *dw = rig_f(r, C);
    r->k->rmsnorm_bwd(N, C, dy, x, w, rstd, dx, dw, variant & ADD,
                      rig_scratch(r, hl_norm_scratch(N, C)));
}

static void residual_case(struct rig *r, const int64_t *shape, int variant) {
    const int64_t N = shape[0], C = shape[1];
    float *x = rig_f(r, N * C), *sum = variant & ADD ? x : rig_f(r, N * C);
    const void *a = rig_t(r, N * C), *bias = variant & WITH_BIAS ? rig_t(r, C) : NULL;
    r->k->residual_add(N, C, x, a, bias, sum);
}

static const int64_t shapes[][2] = {{0, 8},  {1, 1},   {3, 2},    {2, 3},    {3, 17},
                                    {5, 63}, {64, 65}, {65, 127}, {129, 130}};
static const int64_t large[2] = {193, 260};

static void run_all(rig_case *run, int variant, double absolute) {
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        /* One channel normalises to 0, and rstd is 1/sqrt(eps): nothing to compare but the absence
         * of accidents. */
        const double slack = shapes[i][1] == 2 ? 1e-2 : absolute;
        rig_run(&(struct rig_plan){run, shapes[i], variant, 1e-5, slack, false});
    }
    rig_run_teams(&(struct rig_plan){run, large, variant, 0, 0, true});
}

static void test_forward(void **state) {
    (void)state;
    const int variants[] = {0,
                            WITH_SUM,
                            WITH_DELTA | WITH_SUM,
                            WITH_DELTA | WITH_BIAS | WITH_SUM,
                            WITH_DELTA | WITH_BIAS | IN_PLACE,
                            IN_PLACE};
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        run_all(layernorm_case, variants[i], 1e-5);
        run_all(rmsnorm_case, variants[i], 1e-5);
    }
}

static void test_backward(void **state) {
    (void)state;
    for (int add = 0; add <= ADD; add++) {
        run_all(layernorm_bwd_case, add, 4e-5);
        run_all(rmsnorm_bwd_case, add, 4e-5);
    }
}

static void test_residual(void **state) {
    (void)state;
    run_all(residual_case, 0, 0);
    run_all(residual_case, WITH_BIAS, 0);
}

static void test_poison(void **state) {
    (void)state;
    const int64_t shape[2] = {3, 21};
    rig_run_poisons(&(struct rig_plan){layernorm_case, shape, WITH_DELTA | WITH_BIAS | WITH_SUM,
                                       1e-5, 1e-5, false},
                    5);
    rig_run_poisons(&(struct rig_plan){rmsnorm_case, shape, WITH_DELTA | WITH_BIAS | WITH_SUM, 1e-5,
                                       1e-5, false},
                    5);
    rig_run_poisons(&(struct rig_plan){layernorm_bwd_case, shape, 0, 1e-5, 4e-5, false}, 5);
    rig_run_poisons(&(struct rig_plan){rmsnorm_bwd_case, shape, 0, 1e-5, 4e-5, false}, 4);
    rig_run_poisons(&(struct rig_plan){residual_case, shape, WITH_BIAS, 1e-5, 0, false}, 3);
}

/* ---- the reference's gradients against finite differences of the definition in f64 ---- */

enum { N = 3, C = 7 };
static const double eps = 1e-5;

/* Sum over all y of dy * y, of x [N, C], w [C], b [C]; b NULL: RMSNorm. */
static double objective(const double *x, const double *w, const double *b, const float *dy) {
    double total = 0;
    for (int n = 0; n < N; n++) {
        double mean = 0, variance = 0;
        for (int c = 0; c < C && b; c++) mean += x[n * C + c] / C;
        for (int c = 0; c < C; c++) variance += (x[n * C + c] - mean) * (x[n * C + c] - mean) / C;
        for (int c = 0; c < C; c++) {
            const double y = (x[n * C + c] - mean) / sqrt(variance + eps) * w[c] + (b ? b[c] : 0);
            total += y * (double)dy[n * C + c];
        }
    }
    return total;
}

static void check_slopes(int n, double *variable, const float *gradient, const double *x,
                         const double *w, const double *b, const float *dy) {
    for (int i = 0; i < n; i++) {
        const double step = 1e-5, old = variable[i];
        variable[i] = old + step;
        const double up = objective(x, w, b, dy);
        variable[i] = old - step;
        const double down = objective(x, w, b, dy);
        variable[i] = old;
        const double slope = (up - down) / (2 * step);
        assert_true(fabs(slope - (double)gradient[i]) < 2e-5 * (1 + fabs(slope)));
    }
}

static void normal(int n, uint64_t seed, float *x, double *x64) {
    for (int i = 0; i < n; i++) {
        x[i] = rig_random(seed << 32 | (uint64_t)i);
        if (x64) x64[i] = (double)x[i];
    }
}

static void test_slopes(void **state) {
    (void)state;
    float x[N * C], w[C], b[C], dy[N * C], y[N * C], mean[N], rstd[N], dx[N * C] = {0}, dw[C],
                                                                              db[C], scratch[2 * C];
    double x64[N * C], w64[C], b64[C];
    normal(N * C, 1, x, x64);
    normal(C, 2, w, w64);
    normal(C, 3, b, b64);
    normal(N * C, 4, dy, NULL);
    const struct hl_kernels *k = rig_kernels(HL_ISA_REF, HL_F32);
    k->layernorm_fwd(N, C, x, NULL, NULL, NULL, w, b, (float)eps, y, mean, rstd);
    k->layernorm_bwd(N, C, dy, x, w, mean, rstd, dx, dw, db, false, scratch);
    check_slopes(N * C, x64, dx, x64, w64, b64, dy);
    check_slopes(C, w64, dw, x64, w64, b64, dy);
    check_slopes(C, b64, db, x64, w64, b64, dy);
    memset(dx, 0, sizeof dx);
    k->rmsnorm_fwd(N, C, x, NULL, NULL, NULL, w, (float)eps, y, rstd);
    k->rmsnorm_bwd(N, C, dy, x, w, rstd, dx, dw, false, scratch);
    check_slopes(N * C, x64, dx, x64, w64, NULL, dy);
    check_slopes(C, w64, dw, x64, w64, NULL, dy);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forward),  cmocka_unit_test(test_backward),
        cmocka_unit_test(test_residual), cmocka_unit_test(test_poison),
        cmocka_unit_test(test_slopes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
