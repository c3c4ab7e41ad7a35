/* Updates, casts and sums: the same bits on every instruction set, and the rules as PyTorch has
 * them. */
#include "rig.h"

#include "golden/optimizers.h"

enum { COPY = 1, MOMENTUM = 2, NESTEROV = 4, FIRST = 8 };

/* shape: n */

static struct hl_bf16 *copy_array(struct rig *r, int64_t n, int variant) {
    return variant & COPY ? rig_array(r, HL_BF16, n, 0, 1) : NULL;
}

static void adamw_case(struct rig *r, const int64_t *shape, int variant) {
    const struct hl_adamw p = {.lr = 1e-3,
                               .beta1 = 0.9,
                               .beta2 = 0.999,
                               .epsilon = 1e-8,
                               .weight_decay = 0.1,
                               .correction1 = 1.7,
                               .correction2 = 30.1,
                               .grad_scale = 0.37f};
    const float *grad = rig_f(r, *shape);
    float *master = rig_f(r, *shape), *m = rig_f(r, *shape),
          *v = rig_array(r, HL_F32, *shape, 4, 0.5f);
    r->k->adamw(*shape, &p, grad, master, m, v, copy_array(r, *shape, variant));
}

static void sgd_case(struct rig *r, const int64_t *shape, int variant) {
    const struct hl_sgd p = {.lr = 0.1f,
                             .momentum = 0.9f,
                             .weight_decay = 0.01f,
                             .grad_scale = 0.37f,
                             .nesterov = variant & NESTEROV,
                             .first = variant & FIRST};
    const float *grad = rig_f(r, *shape);
    float *master = rig_f(r, *shape), *momentum = variant & MOMENTUM ? rig_f(r, *shape) : NULL;
    r->k->sgd(*shape, &p, grad, master, momentum, copy_array(r, *shape, variant));
}

static void lion_case(struct rig *r, const int64_t *shape, int variant) {
    const struct hl_lion p = {
        .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.99, .weight_decay = 0.1, .grad_scale = 0.37f};
    float *grad = rig_f(r, *shape), *master = rig_f(r, *shape), *m = rig_f(r, *shape);
    for (int64_t i = 0; i < *shape; i += 7) grad[i] = m[i] = 0; /* no direction */
    r->k->lion(*shape, &p, grad, master, m, copy_array(r, *shape, variant));
}

static void sum_squares_case(struct rig *r, const int64_t *shape, int variant) {
    (void)variant;
    const float *x = rig_f(r, *shape);
    const double sum = r->k->sum_squares(*shape, x);
    float halves[2]; /* the bits of the f64, to be compared as an array */
    memcpy(halves, &sum, sizeof sum);
    memcpy(rig_f(r, 2), halves, sizeof halves);
    if (r->poisoned_array >= 0) r->arrays[1].compared = false;
    if (r->poisoned_array >= 0) assert_true(isnan(r->poison) ? isnan(sum) : isinf(sum));
}

static void casts_case(struct rig *r, const int64_t *shape, int variant) {
    (void)variant;
    const float *x = rig_f(r, *shape);
    struct hl_bf16 *narrow = rig_array(r, HL_BF16, *shape, 0, 1);
    r->k->to_bf16(*shape, x, narrow);
    r->k->from_bf16(*shape, narrow, rig_f(r, *shape));
}

static void add_case(struct rig *r, const int64_t *shape, int variant) {
    (void)variant;
    const float *x = rig_f(r, *shape);
    r->k->add(*shape, x, rig_f(r, *shape));
}

/* In place over the last part, as the ranks' own part is. */
static void sum_parts_case(struct rig *r, const int64_t *shape, int variant) {
    const float *parts[4];
    float *own = NULL;
    (void)variant;
    for (int p = 0; p < 4; p++) parts[p] = own = rig_f(r, *shape);
    r->k->sum_parts(*shape, 4, parts, own);
}

static void sum_parts_bf16_case(struct rig *r, const int64_t *shape, int variant) {
    const struct hl_bf16 *parts[3];
    (void)variant;
    for (int p = 0; p < 3; p++) parts[p] = rig_array(r, HL_BF16, *shape, 0, 1);
    r->k->sum_parts_bf16(*shape, 3, parts, rig_f(r, *shape));
}

static void scale_case(struct rig *r, const int64_t *shape, int variant) {
    (void)variant;
    r->k->scale(*shape, 0.37f, rig_f(r, *shape));
}

static const int64_t sizes[][1] = {{0},  {1},   {3},    {8},     {17},   {63},
                                   {65}, {127}, {4097}, {16385}, {70001}};

static void run_all(rig_case *run, int variant) {
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        rig_run(&(struct rig_plan){run, sizes[i], variant, 0, 0, true});
}

static void test_every_isa(void **state) {
    (void)state;
    for (int copy = 0; copy <= COPY; copy++) {
        run_all(adamw_case, copy);
        run_all(lion_case, copy);
        run_all(sgd_case, copy);
        run_all(sgd_case, copy | MOMENTUM);
        run_all(sgd_case, copy | MOMENTUM | FIRST);
        run_all(sgd_case, copy | MOMENTUM | NESTEROV);
    }
    run_all(casts_case, 0);
    run_all(add_case, 0);
    run_all(sum_parts_case, 0);
    run_all(sum_parts_bf16_case, 0);
    run_all(scale_case, 0);
}

static void test_sum_squares(void **state) {
    (void)state;
    run_all(sum_squares_case, 0);
    const int64_t several_chunks[1] = {300001};
    rig_run(&(struct rig_plan){sum_squares_case, several_chunks, 0, 0, 0, true});
    rig_run_poisons(&(struct rig_plan){sum_squares_case, several_chunks, 0, 0, 0, false}, 1);
}

/* More chunks than are summed at once, of ones: the sum is exact. */
static void test_sum_of_many_chunks(void **state) {
    (void)state;
    const int64_t n = 65536 * 257 + 5;
    float *x = malloc((size_t)n * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < n; i++) x[i] = 1;
    for (int isa = HL_ISA_REF; isa <= HL_ISA_AVX512; isa++) {
        const struct hl_kernels *k = rig_kernels((enum hl_isa)isa, HL_F32);
        if (k) assert_true(k->sum_squares(n, x) == (double)n);
    }
    free(x);
}

static void test_poison(void **state) {
    (void)state;
    const int64_t n[1] = {21};
    rig_run_poisons(&(struct rig_plan){adamw_case, n, COPY, 0, 0, false}, 4);
    rig_run_poisons(&(struct rig_plan){sgd_case, n, COPY | MOMENTUM, 0, 0, false}, 3);
    rig_run_poisons(&(struct rig_plan){lion_case, n, COPY, 0, 0, false}, 3);
    rig_run_poisons(&(struct rig_plan){casts_case, n, 0, 0, 0, false}, 1);
    rig_run_poisons(&(struct rig_plan){add_case, n, 0, 0, 0, false}, 2);
    rig_run_poisons(&(struct rig_plan){scale_case, n, 0, 0, 0, false}, 1);
}

/* Every bf16 there is survives the way to f32 and back; ties go to even; what is too large becomes
 * infinite. */
static void test_casts(void **state) {
    (void)state;
    enum { ALL = 1 << 16 };
    static struct hl_bf16 narrow[ALL], back[ALL];
    static float wide[ALL];
    for (int i = 0; i < ALL; i++) narrow[i].bits = (uint16_t)i;
    for (int isa = HL_ISA_REF; isa <= HL_ISA_AVX512; isa++) {
        const struct hl_kernels *k = rig_kernels((enum hl_isa)isa, HL_BF16);
        if (!k) continue;
        k->from_bf16(ALL, narrow, wide);
        k->to_bf16(ALL, wide, back);
        for (int i = 0; i < ALL; i++) {
            const bool nan = (i & 0x7fff) > 0x7f80;
            assert_int_equal(back[i].bits, nan ? i | 0x40 : i);
        }
        const uint32_t bits[] = {0x3f808000, 0x3f818000, 0x3f808001, 0x7f7fffff,
                                 0xff7fffff, 0x7f800001, 0x00000001, 0x00008001};
        const uint16_t want[] = {0x3f80, 0x3f82, 0x3f81, 0x7f80, 0xff80, 0x7fc0, 0x0000, 0x0001};
        float x[8];
        memcpy(x, bits, sizeof x);
        k->to_bf16(8, x, back);
        for (int i = 0; i < 8; i++) assert_int_equal(back[i].bits, want[i]);
    }
}

/* ---- 100 steps as PyTorch makes them ---- */

static double pseudo(uint32_t i) { return ((double)(i * 2654435761u >> 12) - 524288) / 524288; }

struct state {
    float master[GOLDEN_N], m[GOLDEN_N], v[GOLDEN_N], grad[GOLDEN_N];
};

static void start(struct state *s) {
    memset(s, 0, sizeof *s);
    for (uint32_t i = 0; i < GOLDEN_N; i++) s->master[i] = (float)pseudo(i);
}
static void make_grad(struct state *s, int step) {
    for (int i = 0; i < GOLDEN_N; i++)
        s->grad[i] = (float)(pseudo((uint32_t)(1000 + step * GOLDEN_N + i)) * pow(10, -(i % 5)));
}
static void check_golden(const struct state *s, const double *want) {
    for (int i = 0; i < GOLDEN_N; i++) assert_true(fabs((double)s->master[i] - want[i]) < 5e-7);
}

static void adamw_steps(const struct hl_kernels *k, struct hl_adamw p, const double *want) {
    struct state s;
    start(&s);
    for (int step = 0; step < GOLDEN_STEPS; step++) {
        make_grad(&s, step);
        p.correction1 = 1 / (1 - pow(p.beta1, step + 1));
        p.correction2 = 1 / (1 - pow(p.beta2, step + 1));
        k->adamw(GOLDEN_N, &p, s.grad, s.master, s.m, s.v, NULL);
    }
    check_golden(&s, want);
}

static void sgd_steps(const struct hl_kernels *k, struct hl_sgd p, const double *want) {
    struct state s;
    start(&s);
    for (int step = 0; step < GOLDEN_STEPS; step++) {
        make_grad(&s, step);
        p.first = step == 0;
        k->sgd(GOLDEN_N, &p, s.grad, s.master, p.momentum > 0 ? s.m : NULL, NULL);
    }
    check_golden(&s, want);
}

static void test_golden(void **state) {
    (void)state;
    for (int isa = HL_ISA_REF; isa <= HL_ISA_AVX512; isa++) {
        const struct hl_kernels *k = rig_kernels((enum hl_isa)isa, HL_F32);
        if (!k) continue;
        adamw_steps(k, (struct hl_adamw){3e-3, 0.9, 0.999, 1e-8, 0.1, 0, 0, 1}, golden_adamw);
        adamw_steps(k, (struct hl_adamw){1e-2, 0.8, 0.95, 1e-6, 0, 0, 0, 1}, golden_adamw_no_decay);
        sgd_steps(k, (struct hl_sgd){0.05f, 0, 0.01f, 1, false, false}, golden_sgd);
        sgd_steps(k, (struct hl_sgd){0.05f, 0.9f, 0.01f, 1, false, false}, golden_sgd_momentum);
        sgd_steps(k, (struct hl_sgd){0.05f, 0.9f, 0, 1, true, false}, golden_sgd_nesterov);
    }
}

static void test_lion_rule(void **state) {
    (void)state;
    const struct hl_lion p = {
        .lr = 0.5, .beta1 = 0.5, .beta2 = 0.25, .weight_decay = 0.5, .grad_scale = 1};
    float grad[3] = {1, -4, 2}, master[3] = {8, 8, 8}, m[3] = {1, 1, -2};
    rig_kernels(HL_ISA_REF, HL_F32)->lion(3, &p, grad, master, m, NULL);
    const float want[3] = {5.5f, 6.5f, 6}, want_m[3] = {1, -2.75f, 1};
    assert_memory_equal(master, want, sizeof want);
    assert_memory_equal(m, want_m, sizeof want_m);
}

static void test_denormals(void **state) {
    (void)state;
    omp_set_num_threads(RIG_MAX_TEAM);
    hl_denormals_off();
    volatile float tiny = 1e-39f;
    int n_flushed = 0;
#pragma omp parallel reduction(+ : n_flushed)
    n_flushed += tiny * 2.0f == 0;
    assert_int_equal(n_flushed, RIG_MAX_TEAM);
    omp_set_num_threads(1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_isa),
        cmocka_unit_test(test_sum_squares),
        cmocka_unit_test(test_sum_of_many_chunks),
        cmocka_unit_test(test_poison),
        cmocka_unit_test(test_casts),
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_lion_rule),
        cmocka_unit_test(test_denormals), /* last: it changes the thread's mode */
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
