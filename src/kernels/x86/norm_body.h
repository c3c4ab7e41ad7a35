/* LayerNorm and RMSNorm over vectors; what they compute is said in ref/norm_body.h.
 * A row (a few KiB) stays in the first-level cache while it is read two or three times. */

enum { N_SUMS = 4 }; /* independent sums that hide the latency of an addition */

/* s = x + (a + bias), written to sum; returns nothing else: statistics take their own pass over the
 * cached row. */
static inline vf residual(const float *x, const T *a, const T *bias, int64_t c, int64_t n) {
    vf delta = load(a + c, n);
    if (bias) delta = vf_add(delta, load(bias + c, n));
    return vf_add(vf_load(x + c, n), delta);
}

static void residual_row(int64_t C, const float *x, const T *a, const T *bias, float *sum) {
    for (int64_t c = 0; c < C; c += W) {
        const int64_t n = lanes(C, c);
        vf_store(sum + c, residual(x, a, bias, c, n), n);
    }
}

/* The row that is normalised: sum when it is wanted, x itself otherwise. */
static const float *residual_of(int64_t C, const float *x, const T *a, const T *bias, float *sum) {
    if (!sum) return x;
    if (a) residual_row(C, x, a, bias, sum);
    else if (sum != x) memcpy(sum, x, (size_t)C * sizeof *x);
    return sum;
}

static float row_mean(int64_t C, const float *s) {
    vf sum[N_SUMS] = {vf_set(0), vf_set(0), vf_set(0), vf_set(0)};
    int64_t c = 0;
    for (; c + N_SUMS * W <= C; c += N_SUMS * W)
        for (int i = 0; i < N_SUMS; i++) sum[i] = vf_add(sum[i], vf_load(s + c + i * W, W));
    for (; c < C; c += W) sum[0] = vf_add(sum[0], vf_load(s + c, lanes(C, c)));
    return vf_sum(vf_add(vf_add(sum[0], sum[1]), vf_add(sum[2], sum[3]))) / (float)C;
}

/* mean of (s - mean)^2 */
static float row_variance(int64_t C, const float *s, float mean) {
    const vf m = vf_set(mean);
    vf sum[N_SUMS] = {vf_set(0), vf_set(0), vf_set(0), vf_set(0)};
    int64_t c = 0;
    for (; c + N_SUMS * W <= C; c += N_SUMS * W)
        for (int i = 0; i < N_SUMS; i++) {
            const vf d = vf_sub(vf_load(s + c + i * W, W), m);
            sum[i] = vf_fma(d, d, sum[i]);
        }
    for (; c < C; c += W) {
        const int64_t n = lanes(C, c);
        const vf d = vf_keep(vf_sub(vf_load(s + c, n), m), n, 0);
        sum[0] = vf_fma(d, d, sum[0]);
    }
    return vf_sum(vf_add(vf_add(sum[0], sum[1]), vf_add(sum[2], sum[3]))) / (float)C;
}

/* ---- layernorm ---- */

static void layernorm_row(int64_t C, const float *s, const T *w, const T *b, float mean, float rstd,
                          T *y) {
    const vf m = vf_set(mean), r = vf_set(rstd);
    for (int64_t c = 0; c < C; c += W) {
        const int64_t n = lanes(C, c);
        const vf h = vf_mul(vf_sub(vf_load(s + c, n), m), r);
        store(y + c, vf_fma(h, load(w + c, n), load(b + c, n)), n);
    }
}

static void layernorm_fwd(int64_t N, int64_t C, const float *x_NC, const void *a_NC,
                          const void *a_bias_C, float *sum_NC, const void *w_C, const void *b_C,
                          float eps, void *y_NC, float *mean_N, float *rstd_N) {
#pragma omp parallel for schedule(static) if (N * C > HL_SERIAL_BELOW)
    for (int64_t n = 0; n < N; n++) {
        const T *a = a_NC ? (const T *)a_NC + n * C : NULL;
        const float *s = residual_of(C, x_NC + n * C, a, a_bias_C, sum_NC ? sum_NC + n * C : NULL);
        mean_N[n] = row_mean(C, s);
        rstd_N[n] = 1 / sqrtf(row_variance(C, s, mean_N[n]) + eps);
        layernorm_row(C, s, w_C, b_C, mean_N[n], rstd_N[n], (T *)y_NC + n * C);
    }
}

static void layernorm_again(int64_t N, int64_t C, const float *x_NC, const void *w_C,
                            const void *b_C, const float *mean_N, const float *rstd_N, void *y_NC) {
#pragma omp parallel for schedule(static) if (N * C > HL_SERIAL_BELOW)
    for (int64_t n = 0; n < N; n++)
        layernorm_row(C, x_NC + n * C, w_C, b_C, mean_N[n], rstd_N[n], (T *)y_NC + n * C);
}

static void layernorm_bwd_row(int64_t C, const T *dy, const float *x, const T *w, float mean,
                              float rstd, float *dx, float *dw, float *db) {
    const vf m = vf_set(mean), r = vf_set(rstd);
    vf sum_g = vf_set(0), sum_gh = vf_set(0);
    for (int64_t c = 0; c < C; c += W) {
        const int64_t n = lanes(C, c);
        const vf h = vf_mul(vf_sub(vf_load(x + c, n), m), r), d = load(dy + c, n);
        const vf g = vf_mul(d, load(w + c, n));
        sum_g = vf_add(sum_g, g);
        sum_gh = vf_fma(g, h, sum_gh);
        vf_store(dw + c, vf_fma(d, h, vf_load(dw + c, n)), n);
        vf_store(db + c, vf_add(d, vf_load(db + c, n)), n);
    }
    const vf mean_g = vf_set(vf_sum(sum_g) / (float)C), mean_gh = vf_set(vf_sum(sum_gh) / (float)C);
    for (int64_t c = 0; c < C; c += W) {
        const int64_t n = lanes(C, c);
        const vf h = vf_mul(vf_sub(vf_load(x + c, n), m), r);
        const vf g = vf_mul(load(dy + c, n), load(w + c, n));
        const vf centred = vf_fnma(h, mean_gh, vf_sub(g, mean_g));
        vf_store(dx + c, vf_fma(r, centred, vf_load(dx + c, n)), n);
    }
}

static void layernorm_bwd(int64_t N, int64_t C, const void *dy_NC, const float *x_NC,
                          const void *w_C, const float *mean_N, const float *rstd_N, float *dx_NC,
                          float *dw_C, float *db_C, bool add, float *scratch) {
    const int64_t n_chunks = hl_n_chunks(N);
#pragma omp parallel for schedule(static) if (N * C > HL_SERIAL_BELOW)
    for (int64_t i = 0; i < n_chunks; i++) {
        float *dw = scratch + i * 2 * C, *db = dw + C;
        memset(dw, 0, (size_t)(2 * C) * sizeof *dw);
        for (int64_t n = i * HL_ROW_CHUNK; n < hl_min(N, (i + 1) * HL_ROW_CHUNK); n++)
            layernorm_bwd_row(C, (const T *)dy_NC + n * C, x_NC + n * C, w_C, mean_N[n], rstd_N[n],
                              dx_NC + n * C, dw, db);
    }
    hl_sum_partials(n_chunks, C, 2 * C, scratch, dw_C, add);
    hl_sum_partials(n_chunks, C, 2 * C, scratch + C, db_C, add);
}

/* ---- rmsnorm ---- */

static void rmsnorm_row(int64_t C, const float *s, const T *w, float rstd, T *y) {
    const vf r = vf_set(rstd);
    for (int64_t c = 0; c < C; c += W) {
        const int64_t n = lanes(C, c);
        store(y + c, vf_mul(vf_mul(vf_load(s + c, n), r), load(w + c, n)), n);
    }
}

static void rmsnorm_fwd(int64_t N, int64_t C, const float *x_NC, const void *a_NC,
                        const void *a_bias_C, float *sum_NC, const void *w_C, float eps, void *y_NC,
                        float *rstd_N) {
#pragma omp parallel for schedule(static) if (N * C > HL_SERIAL_BELOW)
    for (int64_t n = 0; n < N; n++) {
        const T *a = a_NC ? (const T *)a_NC + n * C : NULL;
        const float *s = residual_of(C, x_NC + n * C, a, a_bias_C, sum_NC ? sum_NC + n * C : NULL);
        rstd_N[n] = 1 / sqrtf(row_variance(C, s, 0) + eps);
        rmsnorm_row(C, s, w_C, rstd_N[n], (T *)y_NC + n * C);
    }
}

static void rmsnorm_again(int64_t N, int64_t C, const float *x_NC, const void *w_C,
                          const float *rstd_N, void *y_NC) {
#pragma omp parallel for schedule(static) if (N * C > HL_SERIAL_BELOW)
    for (int64_t n = 0; n < N; n++) rmsnorm_row(C, x_NC + n * C, w_C, rstd_N[n], (T *)y_NC + n * C);
}

static void rmsnorm_bwd_row(int64_t C, const T *dy, const float *x, const T *w, float rstd,
                            float *dx, float *dw) {
    const vf r = vf_set(rstd);
    vf sum_gh = vf_set(0);
    for (int64_t c = 0; c < C; c += W) {
        const int64_t n = lanes(C, c);
        const vf h = vf_mul(vf_load(x + c, n), r), d = load(dy + c, n);
        sum_gh = vf_fma(vf_mul(d, load(w + c, n)), h, sum_gh);
        vf_store(dw + c, vf_fma(d, h, vf_load(dw + c, n)), n);
    }
    const vf mean_gh = vf_set(vf_sum(sum_gh) / (float)C);
    for (int64_t c = 0; c < C; c += W) {
        const int64_t n = lanes(C, c);
        const vf h = vf_mul(vf_load(x + c, n), r);
        const vf g = vf_mul(load(dy + c, n), load(w + c, n));
        vf_store(dx + c, vf_fma(r, vf_fnma(h, mean_gh, g), vf_load(dx + c, n)), n);
    }
}

static void rmsnorm_bwd(int64_t N, int64_t C, const void *dy_NC, const float *x_NC, const void *w_C,
                        const float *rstd_N, float *dx_NC, float *dw_C, bool add, float *scratch) {
    const int64_t n_chunks = hl_n_chunks(N);
#pragma omp parallel for schedule(static) if (N * C > HL_SERIAL_BELOW)
    for (int64_t i = 0; i < n_chunks; i++) {
        float *dw = scratch + i * C;
        memset(dw, 0, (size_t)C * sizeof *dw);
        for (int64_t n = i * HL_ROW_CHUNK; n < hl_min(N, (i + 1) * HL_ROW_CHUNK); n++)
            rmsnorm_bwd_row(C, (const T *)dy_NC + n * C, x_NC + n * C, w_C, rstd_N[n],
                            dx_NC + n * C, dw);
    }
    hl_sum_partials(n_chunks, C, C, scratch, dw_C, add);
}

static void residual_add(int64_t N, int64_t C, const float *x_NC, const void *a_NC,
                         const void *bias_C, float *sum_NC) {
#pragma omp parallel for schedule(static) if (N * C > HL_SERIAL_BELOW)
    for (int64_t n = 0; n < N; n++)
        residual_row(C, x_NC + n * C, (const T *)a_NC + n * C, bias_C, sum_NC + n * C);
}
