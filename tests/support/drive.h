/* A strategy without a model: a made-up vector of one or more blocks, gradients from a function of
 * the weights that compute reads, and the loop's calls in the loop's order. */
#ifndef HALLEY_TESTS_DRIVE_H
#define HALLEY_TESTS_DRIVE_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "halley/strategy.h"
#include "memory/engine.h"
#include "support/ranks.h"

enum { DRIVE_MOST = 512 };

struct drive;
/* Sums of gradients of one micro-batch over its tokens, into grad [n]; returns the tokens. */
typedef int64_t drive_gradient(struct drive *d, const float *weights, float *grad);

struct drive {
    int n_blocks, n; /* n: elements in all, in blocks of equal size */
    const char *optimizer;
    double weight_decay, learning_rate, max_grad_norm;
    int64_t accumulation, sync_every;
    drive_gradient *gradient;
    void *context;
    int micro;  /* of the step, while gradient is called */
    int n_run;  /* micro-batches so far */
    bool round; /* of this step: after the answer ROUND */
    bool last;  /* the next step is the run's last: nothing follows its ROUND */
    int64_t step;
    struct hl_step_result result;
    /* what is made of it */
    struct hl_range blocks[8];
    struct hl_tensor tensors[8];
    struct hl_layout layout;
    struct hl_optimizer_options optimizer_options;
    struct hl_strategy_options options;
    struct hl_config *config;
    struct hl_strategy_env env;
    const struct hl_strategy *strategy;
    struct hl_engine *engine;
    void *state;
    bool started, in_view;
};

static inline void drive_ok(enum hl_status status, const struct hl_diag *diag) {
    if (status != HL_OK) {
        (void)fprintf(stderr, "drive: status %d: %s\n", status, diag->text);
        abort(); /* in any thread */
    }
}

static inline void drive_layout(struct drive *d) {
    int each = d->n / d->n_blocks;
    for (int b = 0; b < d->n_blocks; b++) {
        d->blocks[b] = (struct hl_range){(int64_t)b * each, each};
        d->tensors[b] = (struct hl_tensor){.block = b,
                                           .offset = (int64_t)b * each,
                                           .n = each,
                                           .rows = 1,
                                           .cols = each,
                                           .padded_rows = 1,
                                           .n_dims = 1,
                                           .decay = d->weight_decay > 0};
    }
    d->layout = (struct hl_layout){.n_parameters = d->n,
                                   .n_weights = d->n,
                                   .n_blocks = d->n_blocks,
                                   .blocks = d->blocks,
                                   .n_tensors = d->n_blocks,
                                   .tensors = d->tensors};
}

/* options: "key=value" of any strategy, NULL-terminated; group NULL: one rank. */
static inline void drive_open(struct drive *d, const char *strategy, const char *const *options,
                              enum hl_dtype compute, struct hl_group *group) {
    struct hl_mem *mem = hl_mem_default();
    struct hl_diag diag = {0};
    struct hl_option_set sets[HL_MAX_STRATEGIES];
    drive_layout(d);
    size_t n_sets = (size_t)hl_strategy_option_sets(&d->options, sets);
    drive_ok(hl_config_new(mem, sets, n_sets, &d->config, &diag), &diag);
    for (; options && *options; options++) {
        char key[64];
        const char *value = strchr(*options, '=') + 1;
        (void)snprintf(key, sizeof key, "%.*s", (int)(value - 1 - *options), *options);
        drive_ok(hl_config_set(d->config, key, &value, 1, "test", 0, &diag), &diag);
    }
    drive_ok(hl_strategy_find(strategy, &d->strategy, &diag), &diag);
    d->optimizer_options = (struct hl_optimizer_options){.weight_decay = d->weight_decay,
                                                         .adam_beta1 = 0.9,
                                                         .adam_beta2 = 0.95,
                                                         .adam_epsilon = 1e-8};
    d->env = (struct hl_strategy_env){.mem = mem,
                                      .far = mem,
                                      .layout = &d->layout,
                                      .optimizer_options = &d->optimizer_options,
                                      .options = hl_strategy_options_of(&d->options, d->strategy),
                                      .group = group,
                                      .rank = hl_group_rank(group),
                                      .n_ranks = hl_group_n_ranks(group),
                                      .accumulation = d->accumulation ? d->accumulation : 1,
                                      .sync_every = d->sync_every ? d->sync_every : 1};
    drive_ok(hl_optimizer_find(d->optimizer, &d->env.optimizer, &diag), &diag);
    drive_ok(hl_kernels_get(compute, &d->env.kernels, &diag), &diag);
    drive_ok(d->strategy->check(&d->env, &diag), &diag);
    struct hl_strategy_need need = d->strategy->cost(&d->env);
    const struct hl_engine_shape shape = {.train = true,
                                          .bf16_copy = compute == HL_BF16,
                                          .apart = need.weights_apart,
                                          .n_slots = d->env.optimizer->n_slots,
                                          .sliced = need.sliced,
                                          .whole_gradient = need.whole_gradient,
                                          .grad_windows = need.grad_windows,
                                          .rank = d->env.rank,
                                          .n_ranks = d->env.n_ranks};
    drive_ok(hl_engine_new(mem, &d->layout, &shape, &d->engine, &diag), &diag);
    d->env.engine = d->engine;
    drive_ok(d->strategy->init(&d->env, &d->state, &diag), &diag);
    d->in_view = true;
}

static inline void drive_close(struct drive *d) {
    d->strategy->fini(d->state);
    hl_engine_free(d->engine);
    hl_config_free(d->config);
}

/* As the trainer does: see hl_trainer_view. */
static inline void drive_view(struct drive *d, bool on) {
    struct hl_diag diag = {0};
    if (!d->started && d->strategy->start) drive_ok(d->strategy->start(d->state, &diag), &diag);
    d->started = true;
    if (d->strategy->view && on != d->in_view) d->strategy->view(d->state, on);
    d->in_view = on;
}

/* All ranks begin with these. */
static inline void drive_set(struct drive *d, const float *weights) {
    for (int b = 0; b < d->n_blocks; b++) {
        struct hl_range held = hl_engine_held(d->engine, HL_BUFFER_MASTER, b);
        if (held.n)
            memcpy(hl_engine_data(d->engine, HL_BUFFER_MASTER, held), weights + held.offset,
                   (size_t)held.n * sizeof *weights);
    }
    hl_engine_put_weights(d->engine, d->env.kernels, hl_layout_all(&d->layout), weights);
}

/* What compute reads, as f32. */
static inline void drive_weights(struct drive *d, float *out) {
    const void *data = hl_engine_acquire(d->engine, hl_layout_all(&d->layout));
    if (d->env.kernels->dtype == HL_BF16) d->env.kernels->from_bf16(d->n, data, out);
    else memcpy(out, data, (size_t)d->n * sizeof *out);
}

/* Call a slot until it does not say "not yet". */
#define DRIVE_WAIT(d, call)                                                                        \
    do {                                                                                           \
        enum hl_status s_;                                                                         \
        while ((s_ = (call)) == HL_PENDING) {                                                      \
            while ((s_ = (d)->strategy->poll((d)->state, diag)) == HL_PENDING)                     \
                hl_group_sleep((d)->env.group, 1000000);                                           \
            if (s_ != HL_OK) break;                                                                \
        }                                                                                          \
        drive_ok(s_, diag);                                                                        \
    } while (0)

static inline int64_t drive_micro(struct drive *d, struct hl_diag *diag) {
    float weights[DRIVE_MOST], grad[DRIVE_MOST];
    drive_weights(d, weights);
    int64_t tokens = d->gradient(d, weights, grad);
    for (int b = d->n_blocks - 1; b >= 0; b--) {
        struct hl_range range = d->layout.blocks[b];
        float *to = hl_engine_grad_open(d->engine, b);
        bool adds = hl_engine_grad_adds(d->engine, b);
        for (int64_t i = 0; i < range.n; i++)
            to[i] = adds ? to[i] + grad[range.offset + i] : grad[range.offset + i];
        if (d->strategy->block_exit)
            drive_ok(d->strategy->block_exit(d->state, b, true, diag), diag);
        if (d->strategy->grad_ready)
            DRIVE_WAIT(
                d, d->strategy->grad_ready(d->state, b, d->micro == d->env.accumulation - 1, diag));
    }
    d->n_run++;
    return tokens;
}

static inline void drive_step(struct drive *d) {
    struct hl_diag diag_of = {0}, *diag = &diag_of;
    bool paced = d->strategy->caps & HL_CAP_ROUNDS, ends = false;
    struct hl_step step = {
        .index = d->step, .learning_rate = d->learning_rate, .max_grad_norm = d->max_grad_norm};
    drive_view(d, false);
    d->round = false;
    if (d->strategy->step_begin) DRIVE_WAIT(d, d->strategy->step_begin(d->state, &step, diag));
    for (d->micro = paced ? -1 : 0; !ends; d->micro++) {
        int64_t tokens = d->micro < 0 ? 0 : drive_micro(d, diag);
        enum hl_micro_answer answer = HL_MICRO_MORE;
        step.n_supervised += tokens;
        if (paced) DRIVE_WAIT(d, d->strategy->micro_end(d->state, d->micro, tokens, &answer, diag));
        d->round |= answer == HL_MICRO_ROUND;
        ends = paced ? answer == HL_MICRO_STEP || (d->round && d->last)
                     : d->micro == d->env.accumulation - 1;
    }
    DRIVE_WAIT(d, d->strategy->step_end(d->state, &step, &d->result, diag));
    d->step++;
    if (!d->strategy->sync_due || !d->strategy->sync_due(d->state, d->step)) return;
    DRIVE_WAIT(d, d->strategy->sync(d->state, diag));
}

/* An array that the strategy saves. */
static inline struct hl_saved_state drive_saved(struct drive *d, const char *name) {
    struct hl_saved_state all[16];
    int n = d->strategy->saved(d->state, all, 16);
    for (int i = 0; i < n; i++)
        if (!strcmp(all[i].name, name)) return all[i];
    fail_msg("%s saves no '%s'", d->strategy->name, name);
    return (struct hl_saved_state){0};
}

#endif
