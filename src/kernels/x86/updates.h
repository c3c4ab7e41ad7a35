/* Update rules, casts and sums over vectors, for one instruction set: the same operations in the
 * same order as ref/updates.c, hence the same bits. Included by updates_<isa>.c, which include
 * vec_<isa>.h and define FILL_UPDATES. */
#include "kernels/chunks.h"
#include "kernels/factors.h"
#include "kernels/table.h"

/* Elements that one thread takes at a time: a multiple of any vector. */
enum { PIECE = 1 << 12 };

static inline int64_t lanes(int64_t end, int64_t i) { return end - i < W ? end - i : W; }

/* x + rest (y - x), never fused */
static inline vf towards(vf x, vf y, float rest) {
    return vf_add(x, vf_mul(vf_set(rest), vf_sub(y, x)));
}

static inline void store_master(float *master, struct hl_bf16 *copy, int64_t i, vf x, int64_t n) {
    vf_store(master + i, x, n);
    if (copy) vf_store_bf16(copy + i, x, n);
}

static void adamw_piece(int64_t n_elements, const struct hl_adamw_factors *f, const float *grad,
                        float *master, float *m, float *v, struct hl_bf16 *copy) {
    for (int64_t i = 0; i < n_elements; i += W) {
        const int64_t n = lanes(n_elements, i);
        const vf g = vf_mul(vf_load(grad + i, n), vf_set(f->grad_scale));
        const vf m1 = towards(vf_load(m + i, n), g, f->rest1);
        const vf v1 = towards(vf_load(v + i, n), vf_mul(g, g), f->rest2);
        const vf root = vf_mul(vf_sqrt(v1), vf_set(f->root_correction2));
        const vf move = vf_div(vf_mul(vf_set(f->step), m1), vf_add(root, vf_set(f->epsilon)));
        const vf x = vf_load(master + i, n), decay = vf_mul(vf_set(f->decay), x);
        vf_store(m + i, m1, n);
        vf_store(v + i, v1, n);
        store_master(master, copy, i, vf_sub(x, vf_add(decay, move)), n);
    }
}

static void adamw(int64_t n, const struct hl_adamw *p, const float *grad, float *master, float *m,
                  float *v, struct hl_bf16 *copy) {
    const struct hl_adamw_factors f = hl_adamw_factors(p);
#pragma omp parallel for schedule(static) if (n > HL_SERIAL_BELOW)
    for (int64_t i = 0; i < n; i += PIECE)
        adamw_piece(hl_min(PIECE, n - i), &f, grad + i, master + i, m + i, v + i,
                    copy ? copy + i : NULL);
}

static void sgd_piece(int64_t n_elements, const struct hl_sgd *p, const float *grad, float *master,
                      float *momentum, struct hl_bf16 *copy) {
    for (int64_t i = 0; i < n_elements; i += W) {
        const int64_t n = lanes(n_elements, i);
        const vf x = vf_load(master + i, n);
        vf g = vf_mul(vf_load(grad + i, n), vf_set(p->grad_scale));
        g = vf_add(g, vf_mul(vf_set(p->weight_decay), x));
        if (momentum) {
            const vf old = vf_mul(vf_set(p->momentum), vf_load(momentum + i, n));
            const vf buffer = p->first ? g : vf_add(old, g);
            vf_store(momentum + i, buffer, n);
            g = p->nesterov ? vf_add(g, vf_mul(vf_set(p->momentum), buffer)) : buffer;
        }
        store_master(master, copy, i, vf_sub(x, vf_mul(vf_set(p->lr), g)), n);
    }
}

static void sgd(int64_t n, const struct hl_sgd *p, const float *grad, float *master,
                float *momentum, struct hl_bf16 *copy) {
#pragma omp parallel for schedule(static) if (n > HL_SERIAL_BELOW)
    for (int64_t i = 0; i < n; i += PIECE)
        sgd_piece(hl_min(PIECE, n - i), p, grad + i, master + i, momentum ? momentum + i : NULL,
                  copy ? copy + i : NULL);
}

static void lion_piece(int64_t n_elements, const struct hl_lion_factors *f, const float *grad,
                       float *master, float *m, struct hl_bf16 *copy) {
    for (int64_t i = 0; i < n_elements; i += W) {
        const int64_t n = lanes(n_elements, i);
        const vf g = vf_mul(vf_load(grad + i, n), vf_set(f->grad_scale)), old = vf_load(m + i, n);
        const vf direction = vf_sign(towards(old, g, f->rest1));
        vf_store(m + i, towards(old, g, f->rest2), n);
        const vf x = vf_load(master + i, n), decay = vf_mul(vf_set(f->decay), x);
        store_master(master, copy, i, vf_sub(x, vf_add(decay, vf_mul(vf_set(f->lr), direction))),
                     n);
    }
}

static void lion(int64_t n, const struct hl_lion *p, const float *grad, float *master, float *m,
                 struct hl_bf16 *copy) {
    const struct hl_lion_factors f = hl_lion_factors(p);
#pragma omp parallel for schedule(static) if (n > HL_SERIAL_BELOW)
    for (int64_t i = 0; i < n; i += PIECE)
        lion_piece(hl_min(PIECE, n - i), &f, grad + i, master + i, m + i, copy ? copy + i : NULL);
}

static double sum_squares_chunk(int64_t n, const float *x) {
    enum { PARTS = HL_SUM_LANES / W };
    vd sum[PARTS];
    for (int part = 0; part < PARTS; part++) sum[part] = vd_zero();
    int64_t i = 0;
    for (; i + HL_SUM_LANES <= n; i += HL_SUM_LANES)
        for (int part = 0; part < PARTS; part++)
            sum[part] = vd_add_square(sum[part], vf_load(x + i + part * W, W));
    for (int part = 0; i < n; part++, i += W)
        sum[part] = vd_add_square(sum[part], vf_load(x + i, lanes(n, i)));
    double lane[HL_SUM_LANES], total = 0;
    for (int part = 0; part < PARTS; part++) vd_store(lane + part * W, sum[part]);
    for (int j = 0; j < HL_SUM_LANES; j++) total += lane[j];
    return total;
}

static double sum_squares(int64_t n, const float *x) {
    return hl_sum_over_chunks(n, x, sum_squares_chunk);
}

/* These four run once for each part of a collective, often a small one: opening a parallel region
 * takes 0.3 us even for one thread, so theirs begin with plain calls of the pieces. */
static void to_bf16_piece(int64_t n, const float *x, struct hl_bf16 *y) {
    for (int64_t i = 0; i < n; i += W)
        vf_store_bf16(y + i, vf_load(x + i, lanes(n, i)), lanes(n, i));
}

static void to_bf16(int64_t n, const float *x, struct hl_bf16 *y) {
    if (n <= HL_SERIAL_BELOW) {
        to_bf16_piece(n, x, y);
        return;
    }
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i += PIECE) to_bf16_piece(hl_min(PIECE, n - i), x + i, y + i);
}

static void from_bf16_piece(int64_t n, const struct hl_bf16 *x, float *y) {
    for (int64_t i = 0; i < n; i += W)
        vf_store(y + i, vf_load_bf16(x + i, lanes(n, i)), lanes(n, i));
}

static void from_bf16(int64_t n, const struct hl_bf16 *x, float *y) {
    if (n <= HL_SERIAL_BELOW) {
        from_bf16_piece(n, x, y);
        return;
    }
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i += PIECE) from_bf16_piece(hl_min(PIECE, n - i), x + i, y + i);
}

static void sum_parts_piece(int64_t first, int64_t end, int n_parts, const float *const *parts,
                            float *y) {
    for (int64_t i = first; i < end; i += W) {
        const int64_t k = lanes(end, i);
        vf sum = vf_load(parts[0] + i, k);
        for (int p = 1; p < n_parts; p++) sum = vf_add(sum, vf_load(parts[p] + i, k));
        vf_store(y + i, sum, k);
    }
}

static void sum_parts(int64_t n, int n_parts, const float *const *parts, float *y) {
    if (n <= HL_SERIAL_BELOW) {
        sum_parts_piece(0, n, n_parts, parts, y);
        return;
    }
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i += PIECE)
        sum_parts_piece(i, hl_min(i + PIECE, n), n_parts, parts, y);
}

static void sum_parts_bf16_piece(int64_t first, int64_t end, int n_parts,
                                 const struct hl_bf16 *const *parts, float *y) {
    for (int64_t i = first; i < end; i += W) {
        const int64_t k = lanes(end, i);
        vf sum = vf_load_bf16(parts[0] + i, k);
        for (int p = 1; p < n_parts; p++) sum = vf_add(sum, vf_load_bf16(parts[p] + i, k));
        struct hl_bf16 rounded[W];
        vf_store_bf16(rounded, sum, k);
        vf_store(y + i, vf_load_bf16(rounded, k), k);
    }
}

static void sum_parts_bf16(int64_t n, int n_parts, const struct hl_bf16 *const *parts, float *y) {
    if (n <= HL_SERIAL_BELOW) {
        sum_parts_bf16_piece(0, n, n_parts, parts, y);
        return;
    }
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i += PIECE)
        sum_parts_bf16_piece(i, hl_min(i + PIECE, n), n_parts, parts, y);
}

static void add(int64_t n, const float *x, float *y) {
#pragma omp parallel for schedule(static) if (n > HL_SERIAL_BELOW)
    for (int64_t i = 0; i < n; i += W) {
        const int64_t k = lanes(n, i);
        vf_store(y + i, vf_add(vf_load(y + i, k), vf_load(x + i, k)), k);
    }
}

static void scale(int64_t n, float factor, float *x) {
#pragma omp parallel for schedule(static) if (n > HL_SERIAL_BELOW)
    for (int64_t i = 0; i < n; i += W) {
        const int64_t k = lanes(n, i);
        vf_store(x + i, vf_mul(vf_load(x + i, k), vf_set(factor)), k);
    }
}

void FILL_UPDATES(struct hl_kernels *k) {
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
