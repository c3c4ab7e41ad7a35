/* Gradients of every block against central differences in f64.
 *
 * The loss of the model in model_f64.h is differentiated by each block's parameters, and by the
 * residual stream that enters the block; the f32 gradients of each instruction set must be near.
 * Blocks are checked in the order of the backward pass, so that the first failure names the block
 * at fault (a tied matrix of the head counts as the embedding's). Small tensors are checked element
 * by element; of large ones a part, and then all elements at once, along a direction of random
 * signs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "halley/rng.h"
#include "memory/engine.h"
#include "model/run_internal.h"
#include "model_f64.h"

/* Gradients, in parts of a variable's largest. The differences are good to 2e-8: h^2 f'''/6, and
 * the rounding of a loss near 100, 1e-14, over 2h. The rest is f32: 1.1e-5 was seen (180 roundings
 * of 6e-8, through sums of up to 40 terms and two layers of sharp attention), alike for ref, avx2
 * and avx512; a factor of 5 is left for other orders of summation. The forward pass, in parts of
 * the stream's largest and of the loss: 9e-7 was seen. */
static const double STEP = 1e-5, TOLERANCE = 5e-5, FORWARD_TOLERANCE = 5e-6;
enum { N_ISAS = 3, SMALL = 128, STRIDE = 13, ALL = -1 };

struct shape {
    const char *name;
    enum hl_family family;
    int64_t C, H, K, D;
    bool tied, qkv_bias, qk_norm;
};
static const struct shape shapes[] = {
    {"gpt2", HL_FAMILY_GPT2, 21, 3, 3, 7, true, true, false},
    {"gpt2, untied", HL_FAMILY_GPT2, 21, 3, 3, 7, false, true, false},
    {"llama", HL_FAMILY_LLAMA, 20, 6, 3, 4, false, false, false}, /* H D is not C */
    {"llama, tied, K = H", HL_FAMILY_LLAMA, 18, 3, 3, 6, true, false, false},
    {"qwen2", HL_FAMILY_LLAMA, 24, 4, 2, 6, true, true, false},
    {"qwen2, untied, K = 1", HL_FAMILY_LLAMA, 21, 3, 1, 8, false, true, false},
    {"qwen3", HL_FAMILY_LLAMA, 20, 6, 2, 6, false, false, true},
    {"qwen3, tied", HL_FAMILY_LLAMA, 19, 4, 2, 10, true, false, true},
};
enum { N_SHAPES = sizeof shapes / sizeof shapes[0] };

/* ---- what Halley says ---- */

struct result {
    bool available; /* this processor has the instruction set */
    double loss;
    float stream[HEAD + 1][N * WIDEST]; /* what enters a block; [0]: nothing does */
    float of_stream[HEAD + 1][N * WIDEST], of_params[MOST]; /* gradients */
};

struct fixture {
    const struct shape *shape;
    struct hl_model *model;
    int32_t token[N], target[N], position[N];
    int64_t offsets[4];
    struct hl_batch batch;
    float params[MOST];
    struct result got[N_ISAS];
    struct reference reference;
};

static struct hl_block_data block_data(struct hl_engine *engine, struct hl_range range) {
    return (struct hl_block_data){hl_engine_acquire(engine, range),
                                  hl_engine_data(engine, HL_BUFFER_GRAD, range), false};
}

static void pass(const struct fixture *f, struct hl_engine *engine, struct hl_model_run *run,
                 struct result *out) {
    const struct hl_layout *layout = &f->model->layout;
    struct hl_diag diag;
    struct hl_block_data embedding = block_data(engine, layout->blocks[0]);
    assert_int_equal(hl_model_begin(run, &f->batch, &diag), HL_OK);
    for (int b = 0; b <= HEAD; b++) {
        struct hl_block_data own = block_data(engine, layout->blocks[b]);
        assert_int_equal(hl_model_forward(run, b, &own, &embedding, NULL, &diag), HL_OK);
    }
    for (int b = HEAD; b >= 0; b--) {
        struct hl_block_data own = block_data(engine, layout->blocks[b]);
        assert_int_equal(hl_model_backward(run, b, &own, &diag), HL_OK);
        if (!b) break;
        memcpy(out->stream[b], run->input_NC[b - 1], (size_t)(N * run->C) * sizeof(float));
        memcpy(out->of_stream[b], run->dx_NC, (size_t)(N * run->C) * sizeof(float));
    }
    out->loss = hl_model_loss_sum(run);
    memcpy(out->of_params, hl_engine_data(engine, HL_BUFFER_GRAD, hl_layout_all(layout)),
           (size_t)layout->n_parameters * sizeof(float));
}

/* Kernels and products of one instruction set. */
static void run_halley(const struct fixture *f, enum hl_isa isa, struct result *out) {
    struct hl_mem *mem = hl_mem_default();
    struct hl_diag diag;
    const struct hl_kernels *kernels;
    struct hl_products *products;
    struct hl_engine *engine;
    struct hl_model_run *run;
    assert_int_equal(setenv("HALLEY_ISA", hl_isa_name(isa), 1), 0);
    out->available = hl_kernels_get(HL_F32, &kernels, &diag) == HL_OK;
    if (!out->available) return;
    assert_int_equal(hl_products_new(mem, &products, &diag), HL_OK);
    struct hl_engine_shape es = {.train = true};
    assert_int_equal(hl_engine_new(mem, &f->model->layout, &es, &engine, &diag), HL_OK);
    struct hl_model_run_shape rs = {.max_tokens = N, .max_positions = 32, .train = true};
    assert_int_equal(hl_model_run_new(mem, f->model, kernels, products, &rs, &run, &diag), HL_OK);
    struct hl_range everything = hl_layout_all(&f->model->layout);
    memcpy(hl_engine_data(engine, HL_BUFFER_MASTER, everything), f->params,
           (size_t)everything.n * sizeof(float));
    hl_engine_publish(engine, kernels, everything);
    pass(f, engine, run, out);
    hl_model_run_free(run);
    hl_engine_free(engine);
    hl_products_free(products);
}

static void setup(struct fixture *f, const struct shape *s) {
    struct hl_diag diag;
    struct hl_model_config c = {.family = s->family,
                                .vocab_size = VOCAB,
                                .hidden_size = s->C,
                                .num_hidden_layers = L,
                                .num_attention_heads = s->H,
                                .num_key_value_heads = s->K,
                                .head_dim = s->D,
                                .intermediate_size = F,
                                .max_position_embeddings = 32,
                                .tie_word_embeddings = s->tied,
                                .qkv_bias = s->qkv_bias,
                                .qk_norm = s->qk_norm,
                                .initializer_range = 0.3};
    f->shape = s;
    assert_int_equal(hl_model_new(hl_mem_default(), &c, &f->model, &diag), HL_OK);
    assert_true(f->model->layout.n_parameters <= MOST);
    hl_model_init(f->model, 3, f->params);
    for (int i = 0; i < f->model->layout.n_tensors; i++) { /* biases and gains away from 0 and 1 */
        const struct hl_tensor *t = &f->model->layout.tensors[i];
        for (int64_t j = t->offset; t->n_dims == 1 && j < t->offset + t->cols; j++)
            f->params[j] += (float)(0.3 * hl_rng_normal(5, HL_RNG_INIT, (uint64_t)j));
    }
    f->offsets[1] = 9, f->offsets[2] = 10, f->offsets[3] = N;
    for (int i = 0; i < N; i++) {
        f->token[i] = (int32_t)(hl_rng_u64(1, HL_RNG_DATA, (uint64_t)i) % VOCAB);
        f->target[i] = i % 5 == 3 ? -1 : (int32_t)(hl_rng_u64(2, HL_RNG_DATA, (uint64_t)i) % VOCAB);
        f->position[i] = i < 9 ? i : i < 10 ? 0 : i - 10;
    }
    f->batch = (struct hl_batch){N, N, f->token, f->target, f->position, 3, f->offsets};
    struct reference *r = &f->reference;
    r->model = f->model, r->batch = &f->batch;
    for (int64_t i = 0; i < MOST; i++) r->p[i] = (double)f->params[i];
    for (int b = 0; b < HEAD; b++) {
        memcpy(r->entering[b + 1], r->entering[b], sizeof r->entering[b]);
        forward(r, b, r->entering[b + 1]);
    }
}

/* ---- the comparison ---- */

/* What the loss is differentiated by, and what Halley says: n elements each. */
struct variable {
    int block;
    const char *name;
    int64_t n;
    double *at;
    const float *got[N_ISAS]; /* NULL: this processor lacks the instruction set */
};

static double sign(int64_t i) { return hl_rng_u64(7, HL_RNG_DATA, (uint64_t)i) & 1 ? 1 : -1; }

/* By one element, or along the signs of all. */
static double difference(const struct reference *r, const struct variable *v, int64_t only) {
    double was[MOST], loss[2];
    int64_t first = only == ALL ? 0 : only, end = only == ALL ? v->n : only + 1;
    memcpy(was, v->at, (size_t)v->n * sizeof *was);
    for (int side = 0; side < 2; side++) {
        for (int64_t i = first; i < end; i++)
            v->at[i] = was[i] + (side ? STEP : -STEP) * (only == ALL ? sign(i) : 1);
        loss[side] = loss_from(r, v->block);
    }
    memcpy(v->at, was, (size_t)v->n * sizeof *was);
    return (loss[1] - loss[0]) / (2 * STEP);
}

/* The elements that are looked at alone: all of a small tensor; else every 13th, and the last. */
static int64_t next(int64_t i, int64_t n) {
    int64_t stride = n <= SMALL ? 1 : STRIDE;
    return i == n - 1 || i + stride < n ? i + stride : n - 1;
}

static void check(const struct fixture *f, const struct variable *v) {
    double want[MOST], largest = 0;
    for (int64_t i = 0; i < v->n; i = next(i, v->n)) {
        want[i] = difference(&f->reference, v, i);
        largest = fmax(largest, fabs(want[i]));
    }
    assert_true(largest > 0);
    double want_along = difference(&f->reference, v, ALL);
    for (int isa = 0; isa < N_ISAS; isa++) {
        if (!v->got[isa]) continue;
        for (int64_t i = 0; i < v->n; i = next(i, v->n))
            if (!(fabs((double)v->got[isa][i] - want[i]) <= TOLERANCE * largest))
                fail_msg("%s, %s: block %d, %s[%lld] is %.9g, by f64 differences %.9g (the "
                         "largest is %.3g)",
                         f->shape->name, hl_isa_name((enum hl_isa)isa), v->block, v->name,
                         (long long)i, (double)v->got[isa][i], want[i], largest);
        double along = 0;
        for (int64_t i = 0; i < v->n; i++) along += sign(i) * (double)v->got[isa][i];
        if (!(fabs(along - want_along) <= TOLERANCE * largest * sqrt((double)v->n)))
            fail_msg("%s, %s: block %d, %s along random signs is %.9g, by f64 differences %.9g",
                     f->shape->name, hl_isa_name((enum hl_isa)isa), v->block, v->name, along,
                     want_along);
    }
}

static void check_block(struct fixture *f, int block) {
    struct variable v = {
        block, "the stream that enters", N * f->shape->C, f->reference.entering[block], {0}};
    for (int isa = 0; isa < N_ISAS; isa++)
        if (f->got[isa].available) v.got[isa] = f->got[isa].of_stream[block];
    if (block) check(f, &v);
    for (int i = 0; i < f->model->layout.n_tensors; i++) {
        const struct hl_tensor *t = &f->model->layout.tensors[i];
        if (t->block != block) continue;
        v.name = t->name, v.n = t->rows * t->cols, v.at = f->reference.p + t->offset;
        for (int isa = 0; isa < N_ISAS; isa++)
            if (f->got[isa].available) v.got[isa] = f->got[isa].of_params + t->offset;
        check(f, &v);
    }
}

static void check_forward(const struct fixture *f, enum hl_isa isa) {
    const struct result *got = &f->got[isa];
    for (int block = 1; block <= HEAD; block++) {
        const double *want = f->reference.entering[block];
        double largest = 0;
        for (int64_t i = 0; i < N * f->shape->C; i++) largest = fmax(largest, fabs(want[i]));
        for (int64_t i = 0; i < N * f->shape->C; i++)
            if (!(fabs((double)got->stream[block][i] - want[i]) <= FORWARD_TOLERANCE * largest))
                fail_msg("%s, %s: the output of block %d[%lld] is %.9g, in f64 %.9g",
                         f->shape->name, hl_isa_name(isa), block - 1, (long long)i,
                         (double)got->stream[block][i], want[i]);
    }
    double loss = loss_from(&f->reference, 0);
    if (!(fabs(got->loss - loss) <= FORWARD_TOLERANCE * loss))
        fail_msg("%s, %s: the loss is %.9g, in f64 %.9g", f->shape->name, hl_isa_name(isa),
                 got->loss, loss);
}

static void test_blocks(void **state) {
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    setup(f, *state);
    for (int isa = 0; isa < N_ISAS; isa++) {
        run_halley(f, (enum hl_isa)isa, &f->got[isa]);
        if (f->got[isa].available) check_forward(f, (enum hl_isa)isa);
    }
    for (int block = HEAD; block >= 0; block--) check_block(f, block);
    hl_model_free(f->model);
    free(f);
}

int main(void) {
    struct CMUnitTest tests[N_SHAPES];
    for (int i = 0; i < N_SHAPES; i++)
        tests[i] = (struct CMUnitTest){shapes[i].name, test_blocks, NULL, NULL, (void *)&shapes[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
