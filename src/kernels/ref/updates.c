/* Update rules over a range of parameters, casts and sums: the specification, to the bit.
 * Only + - * / sqrt on f32, in the order written here, never fused: every instruction set gives the
 * same bits. Factors that do not depend on the element are computed in f64 and rounded once. */
#include <math.h>
#include <string.h>

#include "kernels/chunks.h"
#include "kernels/factors.h"
#include "kernels/table.h"

static void store_copy(struct hl_bf16 *copy, int64_t i, float master) {
    if (copy) copy[i] = hl_bf16_from_f32(master);
}

/* (1 - rest) x + rest y */
static float towards(float x, float y, float rest) { return x + rest * (y - x); }

static void adamw(int64_t n, const struct hl_adamw *p, const float *grad, float *master, float *m,
                  float *v, struct hl_bf16 *copy) {
    const struct hl_adamw_factors f = hl_adamw_factors(p);
#pragma omp parallel for schedule(static) if (n > HL_SERIAL_BELOW)
    for (int64_t i = 0; i < n; i++) {
        const float g = grad[i] * f.grad_scale;
        m[i] = towards(m[i], g, f.rest1);
        v[i] = towards(v[i], g * g, f.rest2);
        const float denominator = sqrtf(v[i]) * f.root_correction2 + f.epsilon;
        master[i] = master[i] - (f.decay * master[i] + f.step * m[i] / denominator);
        store_copy(copy, i, master[i]);
    }
}

static void sgd(int64_t n, const struct hl_sgd *p, const float *grad, float *master,
                float *momentum, struct hl_bf16 *copy) {
#pragma omp parallel for schedule(static) if (n > HL_SERIAL_BELOW)
    for (int64_t i = 0; i < n; i++) {
        float g = grad[i] * p->grad_scale + p->weight_decay * master[i];
        if (momentum) {
            momentum[i] = p->first ? g : p->momentum * momentum[i] + g;
            g = p->nesterov ? g + p->momentum * momentum[i] : momentum[i];
        }
        master[i] = master[i] - p->lr * g;
        store_copy(copy, i, master[i]);
    }
}

/* 0 stays 0 and NaN stays NaN. */
static float sign(float x) { return x > 0 ? 1 : x < 0 ? -1 : x; }

static void lion(int64_t n, const struct hl_lion *p, const float *grad, float *master, float *m,
                 struct hl_bf16 *copy) {
    const struct hl_lion_factors f = hl_lion_factors(p);
#pragma omp parallel for schedule(static) if (n > HL_SERIAL_BELOW)
    for (int64_t i = 0; i < n; i++) {
        const float g = grad[i] * f.grad_scale;
        const float direction = sign(towards(m[i], g, f.rest1));
        master[i] = master[i] - (f.decay * master[i] + f.lr * direction);
        m[i] = towards(m[i], g, f.rest2);
        store_copy(copy, i, master[i]);
    }
}

static double sum_squares_chunk(int64_t n, const float *x) {
    double lane[HL_SUM_LANES] = {0}, sum = 0;
    for (int64_t i = 0; i < n; i++) lane[i % HL_SUM_LANES] += (double)x[i] * x[i];
    for (int i = 0; i < HL_SUM_LANES; i++) sum += lane[i];
    return sum;
}

static double sum_squares(int64_t n, const float *x) {
    return hl_sum_over_chunks(n, x, sum_squares_chunk);
}

static void to_bf16(int64_t n, const float *x, struct hl_bf16 *y) {
#pragma omp parallel for schedule(static) if (n > HL_SERIAL_BELOW)
    for (int64_t i = 0; i < n; i++) y[i] = hl_bf16_from_f32(x[i]);
}

static void from_bf16(int64_t n, const struct hl_bf16 *x, float *y) {
#pragma omp parallel for schedule(static) if (n > HL_SERIAL_BELOW)
    for (int64_t i = 0; i < n; i++) y[i] = hl_bf16_to_f32(x[i]);
}

static void add(int64_t n, const float *x, float *y) {
#pragma omp parallel for schedule(static) if (n > HL_SERIAL_BELOW)
    for (int64_t i = 0; i < n; i++) y[i] += x[i];
}

static void scale(int64_t n, float factor, float *x) {
#pragma omp parallel for schedule(static) if (n > HL_SERIAL_BELOW)
    for (int64_t i = 0; i < n; i++) x[i] *= factor;
}

static void sum_parts(int64_t n, int n_parts, const float *const *parts, float *y) {
#pragma omp parallel for schedule(static) if (n > HL_SERIAL_BELOW)
    for (int64_t i = 0; i < n; i++) {
        float sum = parts[0][i];
        for (int p = 1; p < n_parts; p++) sum += parts[p][i];
        y[i] = sum;
    }
}

static void sum_parts_bf16(int64_t n, int n_parts, const struct hl_bf16 *const *parts, float *y) {
#pragma omp parallel for schedule(static) if (n > HL_SERIAL_BELOW)
    for (int64_t i = 0; i < n; i++) {
        float sum = hl_bf16_to_f32(parts[0][i]);
        for (int p = 1; p < n_parts; p++) sum += hl_bf16_to_f32(parts[p][i]);
        y[i] = hl_bf16_to_f32(hl_bf16_from_f32(sum));
    }
}

void hl_updates_fill_ref(struct hl_kernels *k) {
    k->adamw = adamw;
    k->sgd = sgd;
    k->lion = lion;
    k->sum_squares = sum_squares;
    k->to_bf16 = to_bf16;
    k->sum_parts = sum_parts;
    k->sum_parts_bf16 = sum_parts_bf16;
    k->from_bf16 = from_bf16;
    k->add = add;
    k->scale = scale;
}
