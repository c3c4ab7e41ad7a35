/* The body of ref/attention.c for one compute type: T, NAME, LOAD and STORE are set by the includer
 * (no include guard). Legend: E = (H + 2K) D; a row holds q of H heads, k of K heads, v of K heads.
 */

static float NAME(dot)(int64_t D, const T *x, const T *y) {
    float sum = 0;
    for (int64_t d = 0; d < D; d++) sum += LOAD(x[d]) * LOAD(y[d]);
    return sum;
}

/* One query against n keys: out = softmax(scale * q k) v. p is scratch [n]. Returns the
 * log-sum-exp. */
static float NAME(attend)(int64_t n, int64_t D, float scale, const T *q, const T *k, const T *v,
                          int64_t stride, float *p, T *out) {
    float top = -INFINITY, sum = 0;
    for (int64_t j = 0; j < n; j++) {
        p[j] = scale * NAME(dot)(D, q, k + j * stride);
        if (p[j] > top) top = p[j];
    }
    for (int64_t j = 0; j < n; j++) {
        p[j] = expf(p[j] - top);
        sum += p[j];
    }
    for (int64_t d = 0; d < D; d++) {
        float o = 0;
        for (int64_t j = 0; j < n; j++) o += p[j] * LOAD(v[j * stride + d]);
        out[d] = STORE(o / sum);
    }
    return top + logf(sum);
}

static void NAME(forward)(const struct hl_attention *a, const void *qkv_NE, void *out_ND,
                          float *lse_NH, void *scratch) {
    int64_t H = a->n_heads, K = a->n_kv_heads, D = a->head_dim, E = (H + 2 * K) * D, G = H / K;
    int64_t n_tasks = a->n_sequences * K, floats = task_floats(a);
#pragma omp parallel for schedule(dynamic)
    for (int64_t task = 0; task < n_tasks; task++) {
        int64_t first = a->offsets[task / K], n = a->offsets[task / K + 1] - first, kv = task % K;
        const T *qkv = (const T *)qkv_NE + first * E, *k = qkv + (H + kv) * D, *v = k + K * D;
        float *p = (float *)scratch + floats * omp_get_thread_num();
        for (int64_t i = 0; i < n; i++)
            for (int64_t h = kv * G; h < (kv + 1) * G; h++)
                lse_NH[(first + i) * H + h] =
                    NAME(attend)(i + 1, D, a->scale, qkv + i * E + h * D, k, v, E, p,
                                 (T *)out_ND + ((first + i) * H + h) * D);
    }
}

/* One query row's part of the gradient: dk and dv of all its keys grow, dq is set. */
static void NAME(row_backward)(int64_t n, int64_t D, float scale, int64_t stride, const T *q,
                               const T *k, const T *v, const T *out, const T *dout, float lse,
                               float *dq, float *dk, float *dv) {
    float delta = NAME(dot)(D, out, dout);
    for (int64_t d = 0; d < D; d++) dq[d] = 0;
    for (int64_t j = 0; j < n; j++) {
        float p = expf(scale * NAME(dot)(D, q, k + j * stride) - lse);
        float ds = p * (NAME(dot)(D, dout, v + j * stride) - delta) * scale;
        for (int64_t d = 0; d < D; d++) {
            dq[d] += ds * LOAD(k[j * stride + d]);
            dk[j * D + d] += ds * LOAD(q[d]);
            dv[j * D + d] += p * LOAD(dout[d]);
        }
    }
}

static void NAME(backward)(const struct hl_attention *a, const void *qkv_NE, const void *out_ND,
                           const float *lse_NH, const void *dout_ND, void *dqkv_NE, void *scratch) {
    int64_t H = a->n_heads, K = a->n_kv_heads, D = a->head_dim, E = (H + 2 * K) * D, G = H / K;
    int64_t n_tasks = a->n_sequences * K, floats = task_floats(a);
#pragma omp parallel for schedule(dynamic)
    for (int64_t task = 0; task < n_tasks; task++) {
        int64_t first = a->offsets[task / K], n = a->offsets[task / K + 1] - first, kv = task % K;
        const T *qkv = (const T *)qkv_NE + first * E, *k = qkv + (H + kv) * D, *v = k + K * D;
        T *dqkv = (T *)dqkv_NE + first * E;
        float *dq = (float *)scratch + floats * omp_get_thread_num(), *dk = dq + D,
              *dv = dk + n * D;
        memset(dk, 0, (size_t)(2 * n * D) * sizeof *dk);
        for (int64_t i = 0; i < n; i++)
            for (int64_t h = kv * G; h < (kv + 1) * G; h++) {
                int64_t row = ((first + i) * H + h) * D;
                NAME(row_backward)
                (i + 1, D, a->scale, E, qkv + i * E + h * D, k, v, (const T *)out_ND + row,
                 (const T *)dout_ND + row, lse_NH[(first + i) * H + h], dq, dk, dv);
                for (int64_t d = 0; d < D; d++) dqkv[i * E + h * D + d] = STORE(dq[d]);
            }
        for (int64_t i = 0; i < n; i++)
            for (int64_t d = 0; d < D; d++) {
                dqkv[i * E + (H + kv) * D + d] = STORE(dk[i * D + d]);
                dqkv[i * E + (H + K + kv) * D + d] = STORE(dv[i * D + d]);
            }
    }
}

static void NAME(decode)(int64_t n_cached, int64_t H, int64_t K, int64_t D, float scale,
                         const void *q_HD, const void *cache_kv, void *out_HD,
                         float *scratch_n_cached_H) {
    for (int64_t h = 0; h < H; h++) {
        const T *k = (const T *)cache_kv + h / (H / K) * D;
        (void)NAME(attend)(n_cached, D, scale, (const T *)q_HD + h * D, k, k + K * D, 2 * K * D,
                           scratch_n_cached_H, (T *)out_HD + h * D);
    }
}
