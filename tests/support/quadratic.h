/* f(x) = x^2 / 2 in one dimension: what a rule of gradients that are late does to an error,
 * measured on the strategy itself. a = learning rate x curvature. */
#ifndef HALLEY_TESTS_QUADRATIC_H
#define HALLEY_TESTS_QUADRATIC_H

#include "support/drive.h"

/* Tokens before and after ROUND differ: what comes after it is the next update's share w. */
struct quadratic {
    int64_t before, after;
};

static inline int64_t quadratic_gradient(struct drive *d, const float *weights, float *grad) {
    const struct quadratic *q = d->context;
    int64_t n = d->round ? q->after : q->before;
    for (int i = 0; i < d->n; i++) grad[i] = (float)n * weights[i];
    return n;
}

static inline void quadratic_open(struct drive *d, const char *strategy, const char *option,
                                  struct quadratic *q, double a) {
    const char *const options[] = {option, NULL};
    const float one[] = {1};
    *d = (struct drive){.n_blocks = 1,
                        .n = 1,
                        .optimizer = "sgd",
                        .learning_rate = a,
                        .gradient = quadratic_gradient,
                        .context = q};
    drive_open(d, strategy, options, HL_F32, NULL);
    drive_set(d, one);
}

static inline double quadratic_master(struct drive *d) {
    return (double)*hl_engine_data(d->engine, HL_BUFFER_MASTER, hl_layout_all(&d->layout));
}

/* The error after many steps from a small disturbance: does it die away? */
static inline bool quadratic_is_stable(const char *strategy, const char *option, double a,
                                       struct quadratic q) {
    struct drive d;
    quadratic_open(&d, strategy, option, &q, a);
    double error = 0;
    for (int i = 0; i < 800 && fabs(error) < 1e20; i++) {
        drive_step(&d);
        if (i == 2) *(float *)drive_saved(&d, "pending_gradient").data += 0.5f;
        error = fmax(fabs(quadratic_master(&d)), i < 790 ? 0 : error);
    }
    drive_close(&d);
    return error < 1e-3;
}

#endif
