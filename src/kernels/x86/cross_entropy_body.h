/* Softmax and cross-entropy over vectors; what they compute is said in ref/cross_entropy_body.h.
 * A row is cut into at most N_BLOCKS blocks. The first pass replaces each logit by its exp,
 * relative to the largest logit so far (Milakov & Gimelshein, arXiv:1805.02867, over blocks instead
 * of elements), and adds them up; the second multiplies each block by what turns it into the
 * softmax. So memory is walked twice, and exp is taken once. Vector loads and stores may alias: T
 * overwrites f32 from the left. */

enum { N_BLOCKS = 64, SMALLEST_BLOCK = 1024 };

struct blocks {
    int64_t size;
    float max[N_BLOCKS];
};

static float block_max(int64_t n_logits, const float *z, float max) {
    vf top = vf_set(max);
    for (int64_t i = 0; i < n_logits; i += W) {
        const int64_t n = lanes(n_logits, i);
        top = vf_max(top, vf_keep(vf_load(z + i, n), n, max));
    }
    return vf_largest(top);
}

/* z becomes exp(z - max) when `keep`. */
static inline float block_exp_sum(int64_t n_logits, float *z, float max, bool keep) {
    vf sum = vf_set(0);
    for (int64_t i = 0; i < n_logits; i += W) {
        const int64_t n = lanes(n_logits, i);
        const vf e = vf_exp(vf_sub(vf_load(z + i, n), vf_set(max)));
        if (keep) vf_store(z + i, e, n);
        sum = vf_add(sum, vf_keep(e, n, 0));
    }
    return vf_sum(sum);
}

/* The log of the sum of exp over a row. The maximum loses NaN on the way; the sum does not. It
 * starts at a finite number, because -inf - -inf is NaN. */
static float first_pass(int64_t V, float *z, bool keep, struct blocks *blocks) {
    const int64_t share = (V + N_BLOCKS - 1) / N_BLOCKS;
    blocks->size = share < SMALLEST_BLOCK ? SMALLEST_BLOCK : (share + W - 1) / W * W;
    float max = -FLT_MAX;
    double sum = 0;
    for (int64_t b = 0; b * blocks->size < V; b++) {
        float *block = z + b * blocks->size;
        const int64_t n_logits = hl_min(blocks->size, V - b * blocks->size);
        const float before = max;
        max = block_max(n_logits, block, max);
        blocks->max[b] = max;
        const float e = keep ? block_exp_sum(n_logits, block, max, true)
                             : block_exp_sum(n_logits, block, max, false);
        sum = sum * exp((double)before - max) + e;
    }
    return max + (float)log(sum);
}

/* softmax in T into the same bytes; columns V..ld-1 become zero. */
static void second_pass(int64_t V, int64_t ld, float *z, float lse, const struct blocks *blocks) {
    T *p = (T *)(void *)z;
    for (int64_t b = 0; b * blocks->size < V; b++) {
        const vf factor = vf_set(expf(blocks->max[b] - lse));
        for (int64_t i = b * blocks->size; i < hl_min(V, (b + 1) * blocks->size); i += W) {
            const int64_t n = lanes(V, i);
            store(p + i, vf_mul(vf_load(z + i, n), factor), n);
        }
    }
    for (int64_t i = V; i < ld; i += W) store(p + i, vf_set(0), lanes(ld, i));
}

static float cross_entropy_row(int64_t V, int64_t ld, float *z, int64_t target, bool grad) {
    struct blocks blocks;
    const float at_target = z[target];
    const float lse = first_pass(V, z, grad, &blocks);
    if (grad) {
        second_pass(V, ld, z, lse, &blocks);
        store((T *)(void *)z + target, vf_set(expf(at_target - lse) - 1), 1);
    }
    return lse - at_target;
}

static void cross_entropy(int64_t R, int64_t V, int64_t ld, float *logits_RV,
                          const int32_t *target_R, float *loss_R, bool grad) {
#pragma omp parallel for schedule(static) if (R * V > HL_SERIAL_BELOW)
    for (int64_t r = 0; r < R; r++) {
        float *z = logits_RV + r * ld;
        if (target_R[r] >= 0) {
            loss_R[r] = cross_entropy_row(V, ld, z, target_R[r], grad);
            continue;
        }
        loss_R[r] = 0;
        if (grad) memset(z, 0, (size_t)ld * sizeof(T));
    }
}
