/* Softmax and cross-entropy over vectors; what it computes is said in ref/cross_entropy_body.h.
 * Two passes over a row: one for the log of the sum, block by block with a running maximum (Milakov
 * & Gimelshein, arXiv:1805.02867, over blocks instead of elements), one that writes the gradient.
 * Vector loads and stores may alias. */

enum { LOGIT_BLOCK = 1024 }; /* logits that are read twice from the first-level cache */

static float block_max(int64_t n_logits, const float *z, float max) {
    vf top = vf_set(max);
    for (int64_t i = 0; i < n_logits; i += W) {
        const int64_t n = lanes(n_logits, i);
        top = vf_max(top, vf_keep(vf_load(z + i, n), n, max));
    }
    return vf_largest(top);
}

static float block_exp_sum(int64_t n_logits, const float *z, float max) {
    vf sum = vf_set(0);
    for (int64_t i = 0; i < n_logits; i += W) {
        const int64_t n = lanes(n_logits, i);
        sum = vf_add(sum, vf_keep(vf_exp(vf_sub(vf_load(z + i, n), vf_set(max))), n, 0));
    }
    return vf_sum(sum);
}

/* The maximum loses NaN on the way; the sum does not. It starts at a finite number, because -inf -
 * -inf is NaN. */
static float log_sum_exp(int64_t V, const float *z) {
    float max = -FLT_MAX;
    double sum = 0;
    for (int64_t i = 0; i < V; i += LOGIT_BLOCK) {
        const int64_t n_logits = hl_min(LOGIT_BLOCK, V - i);
        const float before = max;
        max = block_max(n_logits, z + i, max);
        sum = sum * exp((double)before - max) + block_exp_sum(n_logits, z + i, max);
    }
    return max + (float)log(sum);
}

/* softmax into the same bytes, from the left; V..ld-1 become zero. */
static void softmax_over(int64_t V, int64_t ld, float *z, float lse) {
    T *p = (T *)(void *)z;
    for (int64_t i = 0; i < V; i += W) {
        const int64_t n = lanes(V, i);
        store(p + i, vf_exp(vf_sub(vf_load(z + i, n), vf_set(lse))), n);
    }
    for (int64_t i = V; i < ld; i += W) store(p + i, vf_set(0), lanes(ld, i));
}

static void cross_entropy(int64_t R, int64_t V, int64_t ld, float *logits_RV,
                          const int32_t *target_R, float *loss_R, bool grad) {
#pragma omp parallel for schedule(static) if (R * V > HL_SERIAL_BELOW)
    for (int64_t r = 0; r < R; r++) {
        float *z = logits_RV + r * ld;
        const int64_t target = target_R[r];
        if (target < 0) {
            loss_R[r] = 0;
            if (grad) memset(z, 0, (size_t)ld * sizeof(T));
            continue;
        }
        const float at_target = z[target];
        const float lse = log_sum_exp(V, z);
        loss_R[r] = lse - at_target;
        if (!grad) continue;
        softmax_over(V, ld, z, lse);
        store((T *)(void *)z + target, vf_sub(vf_exp(vf_set(at_target - lse)), vf_set(1)), 1);
    }
}
