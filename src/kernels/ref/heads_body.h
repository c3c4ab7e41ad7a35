/* What happens to single heads between the projection and attention: rotary positions and per-head
 * RMSNorm. H query heads, K key/value heads, D head size, E = (H + 2K) D width of a packed row: H
 * heads of q, K of k, K of v. */

/* Rotary embedding (Su et al., arXiv:2104.09864) on pairs (j, j + D/2), as Hugging Face's Llama
 * pairs them. */
static void rope_head(int64_t D, T *x, const float *cos, const float *sin, float sign) {
    const int64_t half = D / 2;
    for (int64_t j = 0; j < half; j++) {
        const float a = get(x, j), b = get(x, j + half), s = sign * sin[j];
        put(x, j, a * cos[j] - b * s);
        put(x, j + half, b * cos[j] + a * s);
    }
}

static void rope(int64_t N, int64_t H, int64_t K, int64_t D, void *qkv_NE,
                 const int32_t *position_N, const float *cos_PD, const float *sin_PD,
                 bool inverse) {
    const int64_t E = (H + 2 * K) * D;
#pragma omp parallel for schedule(static) if (N * E > HL_SERIAL_BELOW)
    for (int64_t n = 0; n < N; n++) {
        const int64_t at = position_N[n] * (D / 2);
        for (int64_t h = 0; h < H + K; h++)
            rope_head(D, (T *)qkv_NE + n * E + h * D, cos_PD + at, sin_PD + at,
                      inverse ? -1.0f : 1.0f);
    }
}

static void headnorm_fwd(int64_t N, int64_t H, int64_t K, int64_t D, const void *in_NE,
                         const void *wq_D, const void *wk_D, float eps, void *out_NE,
                         float *rstd_NH) {
    const int64_t E = (H + 2 * K) * D;
#pragma omp parallel for schedule(static) if (N * E > HL_SERIAL_BELOW)
    for (int64_t n = 0; n < N; n++) {
        const T *in = (const T *)in_NE + n * E;
        T *out = (T *)out_NE + n * E;
        for (int64_t h = 0; h < H + K; h++) {
            const T *x = in + h * D, *w = h < H ? wq_D : wk_D;
            double squares = 0;
            for (int64_t d = 0; d < D; d++) squares += (double)get(x, d) * get(x, d);
            const float rstd = (float)(1 / sqrt(squares / (double)D + eps));
            for (int64_t d = 0; d < D; d++) put(out + h * D, d, get(x, d) * rstd * get(w, d));
            rstd_NH[n * (H + K) + h] = rstd;
        }
        memcpy(out + (H + K) * D, in + (H + K) * D, (size_t)(K * D) * sizeof(T));
    }
}

/* As rmsnorm_bwd, but the gradient of the input replaces that of the output. */
static void headnorm_bwd_head(int64_t D, const T *x, const T *w, float rstd, T *d, float *dw) {
    double sum_gh = 0;
    for (int64_t c = 0; c < D; c++) {
        const float h = get(x, c) * rstd;
        sum_gh += (double)(get(d, c) * get(w, c)) * h;
        dw[c] += get(d, c) * h;
    }
    const float mean_gh = (float)(sum_gh / (double)D);
    for (int64_t c = 0; c < D; c++)
        put(d, c, rstd * (get(d, c) * get(w, c) - get(x, c) * rstd * mean_gh));
}

static void headnorm_bwd(int64_t N, int64_t H, int64_t K, int64_t D, const void *in_NE,
                         const void *wq_D, const void *wk_D, const float *rstd_NH, void *dqkv_NE,
                         float *dwq_D, float *dwk_D, bool add, float *scratch) {
    const int64_t E = (H + 2 * K) * D, n_chunks = hl_n_chunks(N);
#pragma omp parallel for schedule(static) if (N * E > HL_SERIAL_BELOW)
    for (int64_t i = 0; i < n_chunks; i++) {
        float *dwq = scratch + i * 2 * D, *dwk = dwq + D;
        memset(dwq, 0, (size_t)(2 * D) * sizeof *dwq);
        for (int64_t n = i * HL_ROW_CHUNK; n < hl_min(N, (i + 1) * HL_ROW_CHUNK); n++)
            for (int64_t h = 0; h < H + K; h++)
                headnorm_bwd_head(D, (const T *)in_NE + n * E + h * D, h < H ? wq_D : wk_D,
                                  rstd_NH[n * (H + K) + h], (T *)dqkv_NE + n * E + h * D,
                                  h < H ? dwq : dwk);
    }
    hl_sum_partials(n_chunks, D, 2 * D, scratch, dwq_D, add);
    hl_sum_partials(n_chunks, D, 2 * D, scratch + D, dwk_D, add);
}
