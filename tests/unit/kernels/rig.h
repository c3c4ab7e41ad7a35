/* A rig that runs one kernel on every instruction set, type, team size and alignment, and compares
 * with the reference.
 *
 * A case fills a rig with arrays (random, the same for every run of the case), calls one kernel of
 * rig->k, and returns. Then: each array of a fast run is near the reference's (outputs) or equal
 * (inputs, which the reference leaves alone too), runs with 1, 2 and 3 threads have the same bits,
 * nothing was written outside an array, and what lies outside it is NaN, so that reading it shows.
 */
#ifndef HALLEY_TESTS_RIG_H
#define HALLEY_TESTS_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "halley/kernels.h"

enum { RIG_GUARD = 64, RIG_MAX_ARRAYS = 20, RIG_MAX_TEAM = 3 };

struct rig_array {
    int64_t n;
    enum hl_dtype dtype;
    unsigned char *block, *data; /* block: guard, offset, data, guard */
    bool compared;
};

struct rig {
    const struct hl_kernels *k;
    struct rig_array arrays[RIG_MAX_ARRAYS];
    int n_arrays;
    int offset;         /* elements by which arrays miss their alignment */
    int poisoned_array; /* array whose element poisoned_at becomes poison; -1: none */
    int64_t poisoned_at;
    float poison;
    double relative,
        absolute; /* tolerance of f32 results; bf16 may also differ by one unit in the last place */
    bool same_bits; /* results must equal the reference to the bit */
};

static inline size_t rig_bytes(const struct rig_array *a) {
    return (size_t)a->n * hl_dtype_bytes(a->dtype);
}

static inline float rig_get(const struct rig_array *a, int64_t i) {
    if (a->dtype == HL_BF16) return hl_bf16_to_f32(((struct hl_bf16 *)(void *)a->data)[i]);
    return ((float *)(void *)a->data)[i];
}
static inline void rig_put(struct rig_array *a, int64_t i, float x) {
    if (a->dtype == HL_BF16) ((struct hl_bf16 *)(void *)a->data)[i] = hl_bf16_from_f32(x);
    else ((float *)(void *)a->data)[i] = x;
}

/* Nearly normal (a sum of four uniforms), cheap, and a pure function of its index. */
static inline float rig_random(uint64_t index) {
    uint64_t z = (index + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    const int sum =
        (int)(z & 0xffff) + (int)(z >> 16 & 0xffff) + (int)(z >> 32 & 0xffff) + (int)(z >> 48);
    return (float)(sum - 2 * 0xffff) /
           (0xffff * 0.5774f); /* deviation of the sum of four: 1/sqrt(3) */
}

/* n random numbers around `mean`. */
static inline void *rig_array(struct rig *r, enum hl_dtype dtype, int64_t n, float mean,
                              float deviation) {
    assert_true(r->n_arrays < RIG_MAX_ARRAYS);
    const int index = r->n_arrays++;
    struct rig_array *a = &r->arrays[index];
    const size_t shift = (size_t)r->offset * hl_dtype_bytes(dtype);
    *a = (struct rig_array){.n = n, .dtype = dtype, .compared = true};
    const size_t bytes = RIG_GUARD + shift + rig_bytes(a) + RIG_GUARD;
    a->block = aligned_alloc(64, (bytes + 63) / 64 * 64);
    assert_non_null(a->block);
    memset(a->block, 0xff, (bytes + 63) / 64 * 64);
    a->data = a->block + RIG_GUARD + shift;
    for (int64_t i = 0; i < n; i++) {
        rig_put(a, i, mean + deviation * rig_random(((uint64_t)index << 32) + (uint64_t)i));
    }
    if (index == r->poisoned_array && n > 0) rig_put(a, r->poisoned_at % n, r->poison);
    return a->data;
}
static inline void *rig_t(struct rig *r, int64_t n) { return rig_array(r, r->k->dtype, n, 0, 1); }
static inline float *rig_f(struct rig *r, int64_t n) { return rig_array(r, HL_F32, n, 0, 1); }
static inline float *rig_scratch(struct rig *r, int64_t n) {
    float *x = rig_array(r, HL_F32, n, NAN, 0);
    r->arrays[r->n_arrays - 1].compared = false;
    return x;
}

static inline bool rig_all_ones(const unsigned char *p, const unsigned char *end) {
    while (p < end && *p == 0xff) p++;
    return p == end;
}
static inline void rig_check_guards(const struct rig *r) {
    for (int j = 0; j < r->n_arrays; j++) {
        const struct rig_array *a = &r->arrays[j];
        const unsigned char *end = a->data + rig_bytes(a);
        if (!rig_all_ones(a->block, a->data) || !rig_all_ones(end, end + RIG_GUARD))
            fail_msg("%s wrote outside array %d of %ld", hl_isa_name(r->k->isa), j, (long)a->n);
    }
}

static inline void rig_free(struct rig *r) {
    for (int j = 0; j < r->n_arrays; j++) free(r->arrays[j].block);
    r->n_arrays = 0;
}

static inline bool rig_near(const struct rig *r, enum hl_dtype dtype, double got, double want) {
    if (isnan(want) || isnan(got)) return isnan(want) && isnan(got);
    if (isinf(want) || isinf(got)) return want == got;
    const double size = fmax(fabs(got), fabs(want));
    const double relative =
        dtype == HL_BF16 ? 0.0079 : r->relative; /* one unit in the last place of bf16: 2^-7 */
    return fabs(got - want) <= r->absolute + relative * size;
}

static inline void rig_compare(const struct rig *want, const struct rig *got) {
    assert_int_equal(want->n_arrays, got->n_arrays);
    for (int j = 0; j < want->n_arrays; j++) {
        const struct rig_array *a = &want->arrays[j], *b = &got->arrays[j];
        if (!a->compared) continue;
        if (memcmp(a->data, b->data, rig_bytes(a)) == 0) continue;
        if (got->same_bits) assert_memory_equal(a->data, b->data, rig_bytes(a));
        for (int64_t i = 0; i < a->n; i++)
            if (!rig_near(got, a->dtype, (double)rig_get(b, i), (double)rig_get(a, i)))
                fail_msg("%s %s: array %d element %ld of %ld is %.9g, reference %.9g (poison %g in "
                         "array %d)",
                         hl_isa_name(got->k->isa), a->dtype == HL_BF16 ? "bf16" : "f32", j, (long)i,
                         (long)a->n, (double)rig_get(b, i), (double)rig_get(a, i),
                         (double)got->poison, got->poisoned_array);
    }
}

typedef void rig_case(struct rig *r, const int64_t *shape, int variant);

struct rig_plan {
    rig_case *run;
    const int64_t *shape; /* what the case makes of it */
    int variant;
    double relative, absolute;
    bool same_bits;
};

static inline const struct hl_kernels *rig_kernels(enum hl_isa isa, enum hl_dtype dtype) {
    const struct hl_kernels *k = NULL;
    return hl_kernels_of(isa, dtype, &k, NULL) == HL_OK ? k : NULL;
}

/* All types and instruction sets, with one poisoned element or none. */
static inline void rig_run_poisoned(const struct rig_plan *plan, int array, int64_t at,
                                    float poison) {
    for (int dtype = HL_F32; dtype <= HL_BF16; dtype++) {
        struct rig want = {.k = rig_kernels(HL_ISA_REF, (enum hl_dtype)dtype)};
        want.poisoned_array = array, want.poisoned_at = at, want.poison = poison;
        omp_set_num_threads(1);
        plan->run(&want, plan->shape, plan->variant);
        rig_check_guards(&want);
        for (int isa = HL_ISA_REF; isa <= HL_ISA_AVX512; isa++)
            for (int team = 1; team <= RIG_MAX_TEAM; team++) {
                struct rig got = want;
                got.n_arrays = 0;
                got.k = rig_kernels((enum hl_isa)isa, (enum hl_dtype)dtype);
                if (!got.k) continue;
                got.offset = team - 1;
                got.relative = plan->relative, got.absolute = plan->absolute;
                /* The reference with one thread is itself; with more it must have its own bits. */
                got.same_bits = plan->same_bits || isa == HL_ISA_REF;
                omp_set_num_threads(team);
                plan->run(&got, plan->shape, plan->variant);
                rig_check_guards(&got);
                rig_compare(&want, &got);
                rig_free(&got);
            }
        rig_free(&want);
    }
    omp_set_num_threads(1);
}

/* One instruction set with 1, 2 and 3 threads: the same bits. */
static inline void rig_run_teams(const struct rig_plan *plan) {
    for (int dtype = HL_F32; dtype <= HL_BF16; dtype++)
        for (int isa = HL_ISA_REF; isa <= HL_ISA_AVX512; isa++) {
            struct rig one = {.k = rig_kernels((enum hl_isa)isa, (enum hl_dtype)dtype),
                              .poisoned_array = -1};
            if (!one.k) continue;
            omp_set_num_threads(1);
            plan->run(&one, plan->shape, plan->variant);
            for (int team = 2; team <= RIG_MAX_TEAM; team++) {
                struct rig other = {
                    .k = one.k, .poisoned_array = -1, .same_bits = true, .offset = team};
                omp_set_num_threads(team);
                plan->run(&other, plan->shape, plan->variant);
                rig_compare(&one, &other);
                rig_free(&other);
            }
            rig_free(&one);
        }
    omp_set_num_threads(1);
}

static inline void rig_run(const struct rig_plan *plan) { rig_run_poisoned(plan, -1, 0, 0); }

/* NaN and infinities in each of the first n_inputs arrays in turn come out where the reference has
 * them. */
static inline void rig_run_poisons(const struct rig_plan *plan, int n_inputs) {
    for (int array = 0; array < n_inputs; array++) {
        rig_run_poisoned(plan, array, 5, NAN);
        rig_run_poisoned(plan, array, 1, INFINITY);
        rig_run_poisoned(plan, array, 2, -INFINITY);
    }
}

#endif
