/* What every codec must do: the same bits on every instruction set, nothing touched outside its
 * arrays, finite numbers stay finite and others are refused, any bytes decode, and the law of error
 * feedback. A test program adds what its format alone has. */
#ifndef HALLEY_TESTS_CODEC_FIXTURE_H
#define HALLEY_TESTS_CODEC_FIXTURE_H

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "halley/codec.h"
#include "halley/kernels.h"
#include "halley/rng.h"
#include "kernels/threads.h"

enum { CODEC_GUARD = 64, CODEC_MANY = 60000 };

static const int64_t codec_sizes[] = {0,   1,   2,   3,   17,  63,   64,   65,
                                      127, 128, 129, 255, 257, 4095, 4097, 20001};
enum { CODEC_N_SIZES = sizeof codec_sizes / sizeof *codec_sizes };

static inline const struct hl_codec *codec_named(const char *name) {
    const struct hl_codec *codec = NULL;
    assert_int_equal(hl_codec_find(name, &codec, NULL), HL_OK);
    return codec;
}

/* ---- numbers ---- */

enum codec_numbers {
    CODEC_NORMAL,   /* a gradient's */
    CODEC_ANY,      /* any finite bits: all magnitudes, denormals too */
    CODEC_MIDPOINT, /* halfway between neighbours of some scale, or an ulp beside it */
    CODEC_TINY,     /* around the smallest magnitudes, with a larger one now and then */
    CODEC_HUGE,     /* up to FLT_MAX */
    CODEC_N_NUMBERS
};

static inline uint64_t codec_random(uint64_t i) { return hl_rng_u64(1, HL_RNG_CODEC, i); }

static inline float codec_of_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return isfinite(x) ? x : 0;
}

/* (k + 1/2) 2^e, moved by -1, 0 or 1 ulp */
static inline float codec_midpoint(uint64_t r) {
    const float x = ldexpf((float)(r % 257) - 128.5f, (int)(r >> 20 & 3));
    const uint64_t side = r >> 40 & 3;
    return side == 1 ? nextafterf(x, 1e9f) : side == 2 ? nextafterf(x, -1e9f) : x;
}

static inline float codec_number(enum codec_numbers kind, uint64_t i) {
    const uint64_t r = codec_random(i);
    switch (kind) {
    case CODEC_NORMAL: return 1e-3f * (float)hl_rng_normal(1, HL_RNG_CODEC, i);
    case CODEC_MIDPOINT: return codec_midpoint(r);
    case CODEC_TINY: return codec_of_bits((uint32_t)r & (r >> 40 & 15 ? 0x82ffffff : 0x87ffffff));
    case CODEC_HUGE: return codec_of_bits((uint32_t)r | 0x7e000000);
    default: return codec_of_bits((uint32_t)r);
    }
}

static inline float *codec_numbers(enum codec_numbers kind, int64_t n, uint64_t first) {
    float *x = malloc((size_t)(n + 1) * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < n; i++) x[i] = codec_number(kind, first + (uint64_t)i);
    if (kind == CODEC_HUGE && n > 2) x[n / 2] = -FLT_MAX;
    return x;
}

/* ---- arrays between guards, not aligned ---- */

struct codec_bytes {
    uint8_t *block, *data;
    size_t n;
};

static inline struct codec_bytes codec_room(size_t n) {
    struct codec_bytes b = {.block = malloc(n + 2 * CODEC_GUARD + 1), .n = n};
    assert_non_null(b.block);
    memset(b.block, 0xa5, n + 2 * CODEC_GUARD + 1);
    b.data = b.block + CODEC_GUARD + 1;
    return b;
}

static inline void codec_free(struct codec_bytes *b) {
    for (size_t i = 0; i <= CODEC_GUARD; i++) assert_int_equal(b->block[i], 0xa5);
    for (size_t i = 0; i < CODEC_GUARD; i++) assert_int_equal(b->data[b->n + i], 0xa5);
    free(b->block);
}

/* ---- the same bits everywhere ---- */

/* Codes of x, and what comes of decoding any bytes: [bytes], decoded [n], added [n]. */
struct codec_run {
    struct codec_bytes codes, decoded, added;
};

static inline struct codec_run codec_run(const struct hl_codec *codec, int64_t n, const float *x,
                                         const uint8_t *any) {
    const size_t floats = (size_t)n * sizeof(float);
    struct codec_run r = {codec_room(codec->bytes(n)), codec_room(floats + 4),
                          codec_room(floats + 4)};
    float *decoded = malloc(floats + 4);
    assert_non_null(decoded);
    assert_int_equal(codec->encode(n, x, r.codes.data), HL_OK);
    codec->decode(n, any, decoded);
    memcpy(r.decoded.data, decoded, floats);
    memcpy(decoded, x, floats);
    codec->add(n, 0.75f, any, decoded);
    memcpy(r.added.data, decoded, floats);
    free(decoded);
    return r;
}

static inline void codec_run_free(struct codec_run *r) {
    codec_free(&r->codes);
    codec_free(&r->decoded);
    codec_free(&r->added);
}

static inline void codec_run_equal(const struct codec_run *a, const struct codec_run *b) {
    assert_memory_equal(a->codes.data, b->codes.data, a->codes.n);
    assert_memory_equal(a->decoded.data, b->decoded.data, a->decoded.n);
    assert_memory_equal(a->added.data, b->added.data, a->added.n);
}

static inline void codec_every_isa(const struct hl_codec *codec, int64_t n, const float *x,
                                   const uint8_t *any) {
    assert_int_equal(setenv("HALLEY_ISA", "ref", 1), 0);
    hl_threads_set(1);
    struct codec_run want = codec_run(codec, n, x, any);
    for (int isa = HL_ISA_REF; isa <= HL_ISA_AVX512; isa++) {
        const struct hl_kernels *kernels;
        if (hl_kernels_of((enum hl_isa)isa, HL_F32, &kernels, NULL)) continue;
        assert_int_equal(setenv("HALLEY_ISA", hl_isa_name((enum hl_isa)isa), 1), 0);
        for (int team = 1; team <= 3; team += 2) {
            hl_threads_set(team);
            struct codec_run got = codec_run(codec, n, x, any);
            codec_run_equal(&want, &got);
            codec_run_free(&got);
        }
    }
    codec_run_free(&want);
    assert_int_equal(unsetenv("HALLEY_ISA"), 0);
}

static inline void codec_test_bits(void **state) {
    const struct hl_codec *codec = codec_named(*state);
    for (int size = 0; size < CODEC_N_SIZES; size++)
        for (int kind = 0; kind < CODEC_N_NUMBERS; kind++) {
            const int64_t n = codec_sizes[size];
            float *x = codec_numbers((enum codec_numbers)kind, n, 0);
            const size_t n_any = codec->bytes(n);
            uint8_t *any = malloc(n_any + 1);
            assert_non_null(any);
            for (size_t i = 0; i < n_any; i++) any[i] = (uint8_t)codec_random(i + (size_t)kind);
            codec_every_isa(codec, n, x, any);
            free(any);
            free(x);
        }
}

/* The product is rounded before the sum: never fused. */
static inline void codec_test_add(void **state) {
    const struct hl_codec *codec = codec_named(*state);
    enum { N = 1000 };
    float *x = codec_numbers(CODEC_NORMAL, N, 0), *y = codec_numbers(CODEC_NORMAL, N, N),
          decoded[N];
    uint8_t codes[N * 4];
    assert_int_equal(codec->encode(N, x, codes), HL_OK);
    codec->decode(N, codes, decoded);
    memcpy(x, y, N * sizeof *x);
    codec->add(N, 0.3f, codes, y);
    for (int i = 0; i < N; i++) {
        const volatile float product = 0.3f * decoded[i];
        assert_true(y[i] == x[i] + product);
    }
    free(y);
    free(x);
}

/* ---- what may be encoded ---- */

static inline void codec_test_finite(void **state) {
    const struct hl_codec *codec = codec_named(*state);
    for (int kind = 0; kind < CODEC_N_NUMBERS; kind++) {
        float *x = codec_numbers((enum codec_numbers)kind, CODEC_MANY, 7),
              *y = malloc(CODEC_MANY * 4);
        void *codes = malloc(codec->bytes(CODEC_MANY));
        assert_true(y && codes);
        assert_int_equal(codec->encode(CODEC_MANY, x, codes), HL_OK);
        codec->decode(CODEC_MANY, codes, y);
        for (int i = 0; i < CODEC_MANY; i++)
            if (!isfinite(y[i])) fail_msg("%a became %a", (double)x[i], (double)y[i]);
        free(codes);
        free(y);
        free(x);
    }
}

static inline void codec_test_refused(void **state) {
    const struct hl_codec *codec = codec_named(*state);
    enum { N = 300 };
    const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    const int places[] = {0, 1, 130, N - 1};
    float x[N] = {1, 2, 3}, residual[N] = {0.5f}, before[N];
    uint8_t codes[N * 4];
    assert_true(codec->bytes(N) <= sizeof codes);
    for (int b = 0; b < 4; b++)
        for (int p = 0; p < 4; p++) {
            const float old = x[places[p]];
            x[places[p]] = bad[b];
            assert_int_equal(codec->encode(N, x, codes), HL_E_NUMERIC);
            memcpy(before, residual, sizeof before);
            assert_int_equal(hl_codec_feedback(codec, N, x, residual, codes), HL_E_NUMERIC);
            assert_memory_equal(residual, before, sizeof before);
            x[places[p]] = old;
        }
    x[5] = residual[5] = FLT_MAX; /* each is finite, their sum is not */
    assert_int_equal(hl_codec_feedback(codec, N, x, residual, codes), HL_E_NUMERIC);
    assert_true(residual[5] == FLT_MAX);
}

/* ---- error feedback ---- */

static inline void codec_check_law(float c, float sent, float residual) {
    const float sum = sent + residual, error = fabsf(sum - c);
    const bool exact = c == 0 || fabsf(c) >= 0x1p-102f;
    if (exact ? sum != c : !(error <= 0x1p-126f))
        fail_msg("c %a: sent %a and residual %a give %a", (double)c, (double)sent, (double)residual,
                 (double)sum);
}

/* Rounds of one kind of input; the residual of one is in the next. */
static inline void codec_law_rounds(const struct hl_codec *codec, enum codec_numbers kind,
                                    int rounds) {
    enum { N = CODEC_MANY };
    float *residual = calloc(N, sizeof *residual), *c = calloc(N, sizeof *c),
          *sent = calloc(N, sizeof *sent);
    void *codes = malloc(codec->bytes(N));
    assert_true(residual && c && sent && codes);
    for (int round = 0; round < rounds; round++) {
        float *input = codec_numbers(kind, N, (uint64_t)round * N);
        for (int i = 0; i < N; i++) {
            if (!isfinite(input[i] + residual[i])) input[i] = 0;
            c[i] = input[i] + residual[i];
        }
        assert_int_equal(hl_codec_feedback(codec, N, input, residual, codes), HL_OK);
        codec->decode(N, codes, sent);
        for (int i = 0; i < N; i++) codec_check_law(c[i], sent[i], residual[i]);
        free(input);
    }
    free(codes);
    free(sent);
    free(c);
    free(residual);
}

static inline void codec_test_law(void **state) {
    for (int kind = 0; kind < CODEC_N_NUMBERS; kind++)
        codec_law_rounds(codec_named(*state), (enum codec_numbers)kind, 4);
}

/* What was sent in all rounds and the last residual are all inputs. */
static inline void codec_test_over_time(void **state) {
    enum { N = 1000, ROUNDS = 50 };
    const struct hl_codec *codec = codec_named(*state);
    static float residual[N], sent[N];
    static double sum_in[N], sum_sent[N], largest[N];
    uint8_t codes[N * 4];
    memset(residual, 0, sizeof residual);
    for (uint64_t round = 0; round < ROUNDS; round++) {
        float *input = codec_numbers(CODEC_NORMAL, N, round * N);
        for (int i = 0; i < N; i++) {
            sum_in[i] += (double)input[i];
            largest[i] = fmax(largest[i], fabs((double)input[i] + (double)residual[i]));
        }
        assert_int_equal(hl_codec_feedback(codec, N, input, residual, codes), HL_OK);
        codec->decode(N, codes, sent);
        for (int i = 0; i < N; i++) sum_sent[i] += (double)sent[i];
        free(input);
    }
    for (int i = 0; i < N; i++)
        assert_true(fabs(sum_sent[i] + (double)residual[i] - sum_in[i]) <=
                    ROUNDS * 0x1p-24 * largest[i]);
}

/* With flush-to-zero, as compute threads have it: the same codes, and the law. The last test of a
 * program, because the mode stays. */
static inline void codec_test_flush(void **state) {
    const struct hl_codec *codec = codec_named(*state);
    const size_t n_bytes = codec->bytes(CODEC_MANY);
    uint8_t *want[CODEC_N_NUMBERS], *got = malloc(n_bytes);
    hl_threads_set(1);
    assert_non_null(got);
    for (int turn = 0; turn < 2; turn++) {
        for (int kind = 0; kind < CODEC_N_NUMBERS; kind++) {
            float *x = codec_numbers((enum codec_numbers)kind, CODEC_MANY, 99);
            if (turn == 0) assert_non_null(want[kind] = malloc(n_bytes));
            assert_int_equal(codec->encode(CODEC_MANY, x, turn ? got : want[kind]), HL_OK);
            if (turn) assert_memory_equal(got, want[kind], n_bytes);
            if (turn) free(want[kind]);
            free(x);
        }
        hl_denormals_off();
    }
    free(got);
    codec_test_law(state);
}

/* ---- helpers for formats ---- */

/* Squared error of normal numbers, relative to their squares. */
static inline double codec_error(const struct hl_codec *codec) {
    float *x = codec_numbers(CODEC_NORMAL, CODEC_MANY, 5), *y = malloc(CODEC_MANY * sizeof *y);
    void *codes = malloc(codec->bytes(CODEC_MANY));
    double error = 0, all = 0;
    assert_true(y && codes);
    assert_int_equal(codec->encode(CODEC_MANY, x, codes), HL_OK);
    codec->decode(CODEC_MANY, codes, y);
    for (int i = 0; i < CODEC_MANY; i++) {
        const double a = (double)x[i], d = (double)y[i] - a;
        error += d * d;
        all += a * a;
    }
    free(codes);
    free(y);
    free(x);
    return error / all;
}

static inline void codec_expect(const struct hl_codec *codec, int64_t n, const float *x,
                                const uint8_t *want, size_t n_want) {
    uint8_t got[64] = {0};
    assert_int_equal(codec->bytes(n), n_want);
    assert_true(n_want <= sizeof got);
    assert_int_equal(codec->encode(n, x, got), HL_OK);
    assert_memory_equal(got, want, n_want);
}

static inline int codec_main(const char *name, CMUnitTestFunction format,
                             CMUnitTestFunction rounding) {
    char copy[16];
    (void)snprintf(copy, sizeof copy, "%s", name);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(format),
        cmocka_unit_test(rounding),
        cmocka_unit_test_prestate(codec_test_bits, copy),
        cmocka_unit_test_prestate(codec_test_add, copy),
        cmocka_unit_test_prestate(codec_test_finite, copy),
        cmocka_unit_test_prestate(codec_test_refused, copy),
        cmocka_unit_test_prestate(codec_test_law, copy),
        cmocka_unit_test_prestate(codec_test_over_time, copy),
        cmocka_unit_test_prestate(codec_test_flush, copy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
