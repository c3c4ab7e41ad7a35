/* Softmax and cross-entropy of a chunk of rows, the specification. R rows, V vocabulary, ld >= V
 * floats from row to row. The gradient has type T and overwrites its own logits from the left:
 * element i of it ends before element i+1 of the logits begins. Both are accessed in ways that may
 * alias. */

typedef float logit __attribute__((may_alias));

static void put_over(logit *row, int64_t i, float value) {
    T element;
    put(&element, 0, value);
    memcpy((char *)row + (size_t)i * sizeof element, &element, sizeof element);
}

/* log(sum of exp(z)), safe from overflow; the sum in f64. */
static float log_sum_exp(int64_t V, const logit *z) {
    float max = -INFINITY;
    for (int64_t i = 0; i < V; i++) max = z[i] > max || isnan(z[i]) ? z[i] : max;
    if (max == -INFINITY) return NAN;
    double sum = 0;
    for (int64_t i = 0; i < V; i++) sum += expf(z[i] - max);
    return max + (float)log(sum);
}

static void cross_entropy(int64_t R, int64_t V, int64_t ld, float *logits_RV,
                          const int32_t *target_R, float *loss_R, bool grad) {
#pragma omp parallel for schedule(static) if (R * V > HL_SERIAL_BELOW)
    for (int64_t r = 0; r < R; r++) {
        logit *z = logits_RV + r * ld;
        const int64_t target = target_R[r];
        const float lse = target < 0 ? 0 : log_sum_exp(V, z);
        loss_R[r] = target < 0 ? 0 : lse - z[target];
        if (!grad) continue;
        for (int64_t i = 0; i < V; i++)
            put_over(z, i, target < 0 ? 0 : expf(z[i] - lse) - (i == target ? 1.0f : 0.0f));
        for (int64_t i = V; i < ld; i++) put_over(z, i, 0);
    }
}
