/* LayerNorm (Ba et al. 2016) and RMSNorm (Zhang & Sennrich 2019), the specification. Each takes the
 * residual sum on its way. Statistics of a row are summed in f64 and rounded once, so a faster
 * kernel is compared with the nearest answer there is. N rows, C channels. x f32; a, w, b, y of
 * type T. */

/* s = x + (a + bias), in f32. */
static float residual(const float *x, const T *a, const T *bias, int64_t c) {
    if (!a) return x[c];
    return x[c] + (bias ? get(a, c) + get(bias, c) : get(a, c));
}

/* ---- layernorm ---- */

static void layernorm_row(int64_t C, const float *s, const T *w, const T *b, float mean, float rstd,
                          T *y) {
    for (int64_t c = 0; c < C; c++) put(y, c, (s[c] - mean) * rstd * get(w, c) + get(b, c));
}

static void layernorm_statistics(int64_t C, const float *s, float eps, float *mean_out,
                                 float *rstd_out) {
    double sum = 0, squares = 0;
    for (int64_t c = 0; c < C; c++) sum += s[c];
    const double mean = sum / (double)C;
    for (int64_t c = 0; c < C; c++) squares += (s[c] - mean) * (s[c] - mean);
    *mean_out = (float)mean;
    *rstd_out = (float)(1 / sqrt(squares / (double)C + eps));
}

static void layernorm_fwd(int64_t N, int64_t C, const float *x_NC, const void *a_NC,
                          const void *a_bias_C, float *sum_NC, const void *w_C, const void *b_C,
                          float eps, void *y_NC, float *mean_N, float *rstd_N) {
#pragma omp parallel for schedule(static) if (N * C > HL_SERIAL_BELOW)
    for (int64_t n = 0; n < N; n++) {
        const float *s = x_NC + n * C;
        if (sum_NC) {
            const T *a = a_NC ? (const T *)a_NC + n * C : NULL;
            for (int64_t c = 0; c < C; c++)
                sum_NC[n * C + c] = residual(x_NC + n * C, a, a_bias_C, c);
            s = sum_NC + n * C;
        }
        layernorm_statistics(C, s, eps, &mean_N[n], &rstd_N[n]);
        layernorm_row(C, s, w_C, b_C, mean_N[n], rstd_N[n], (T *)y_NC + n * C);
    }
}

static void layernorm_again(int64_t N, int64_t C, const float *x_NC, const void *w_C,
                            const void *b_C, const float *mean_N, const float *rstd_N, void *y_NC) {
#pragma omp parallel for schedule(static) if (N * C > HL_SERIAL_BELOW)
    for (int64_t n = 0; n < N; n++)
        layernorm_row(C, x_NC + n * C, w_C, b_C, mean_N[n], rstd_N[n], (T *)y_NC + n * C);
}

/* With h = (x - mean) * rstd and g = dy * w:  dx += rstd * (g - mean(g) - h * mean(g h));  dw += dy
 * h;  db += dy. */
static void layernorm_bwd_row(int64_t C, const T *dy, const float *x, const T *w, float mean,
                              float rstd, float *dx, float *dw, float *db) {
    double sum_g = 0, sum_gh = 0;
    for (int64_t c = 0; c < C; c++) {
        const float h = (x[c] - mean) * rstd, g = get(dy, c) * get(w, c);
        sum_g += g;
        sum_gh += (double)g * h;
        dw[c] += get(dy, c) * h;
        db[c] += get(dy, c);
    }
    const float mean_g = (float)(sum_g / (double)C), mean_gh = (float)(sum_gh / (double)C);
    for (int64_t c = 0; c < C; c++) {
        const float h = (x[c] - mean) * rstd, g = get(dy, c) * get(w, c);
        dx[c] += rstd * (g - mean_g - h * mean_gh);
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
    for (int64_t c = 0; c < C; c++) put(y, c, s[c] * rstd * get(w, c));
}

static float rms_rstd(int64_t C, const float *s, float eps) {
    double squares = 0;
    for (int64_t c = 0; c < C; c++) squares += (double)s[c] * s[c];
    return (float)(1 / sqrt(squares / (double)C + eps));
}

static void rmsnorm_fwd(int64_t N, int64_t C, const float *x_NC, const void *a_NC,
                        const void *a_bias_C, float *sum_NC, const void *w_C, float eps, void *y_NC,
                        float *rstd_N) {
#pragma omp parallel for schedule(static) if (N * C > HL_SERIAL_BELOW)
    for (int64_t n = 0; n < N; n++) {
        const float *s = x_NC + n * C;
        if (sum_NC) {
            const T *a = a_NC ? (const T *)a_NC + n * C : NULL;
            for (int64_t c = 0; c < C; c++)
                sum_NC[n * C + c] = residual(x_NC + n * C, a, a_bias_C, c);
            s = sum_NC + n * C;
        }
        rstd_N[n] = rms_rstd(C, s, eps);
        rmsnorm_row(C, s, w_C, rstd_N[n], (T *)y_NC + n * C);
    }
}

static void rmsnorm_again(int64_t N, int64_t C, const float *x_NC, const void *w_C,
                          const float *rstd_N, void *y_NC) {
#pragma omp parallel for schedule(static) if (N * C > HL_SERIAL_BELOW)
    for (int64_t n = 0; n < N; n++) rmsnorm_row(C, x_NC + n * C, w_C, rstd_N[n], (T *)y_NC + n * C);
}

/* With h = x * rstd and g = dy * w:  dx += rstd * (g - h * mean(g h));  dw += dy h. */
static void rmsnorm_bwd_row(int64_t C, const T *dy, const float *x, const T *w, float rstd,
                            float *dx, float *dw) {
    double sum_gh = 0;
    for (int64_t c = 0; c < C; c++) {
        const float h = x[c] * rstd;
        sum_gh += (double)(get(dy, c) * get(w, c)) * h;
        dw[c] += get(dy, c) * h;
    }
    const float mean_gh = (float)(sum_gh / (double)C);
    for (int64_t c = 0; c < C; c++)
        dx[c] += rstd * (get(dy, c) * get(w, c) - x[c] * rstd * mean_gh);
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
        for (int64_t c = 0; c < C; c++)
            sum_NC[n * C + c] = residual(x_NC + n * C, (const T *)a_NC + n * C, bias_C, c);
}
