/* Rotary positions and per-head RMSNorm over vectors; what they compute is said in
 * ref/heads_body.h. */

static void rope_head(int64_t D, T *x, const float *cos, const float *sin, vf sign) {
    const int64_t half = D / 2;
    for (int64_t j = 0; j < half; j += W) {
        const int64_t n = lanes(half, j);
        const vf a = load(x + j, n), b = load(x + half + j, n);
        const vf c = vf_load(cos + j, n), s = vf_mul(vf_load(sin + j, n), sign);
        store(x + j, vf_fnma(b, s, vf_mul(a, c)), n);
        store(x + half + j, vf_fma(a, s, vf_mul(b, c)), n);
    }
}

static void rope(int64_t N, int64_t H, int64_t K, int64_t D, void *qkv_NE,
                 const int32_t *position_N, const float *cos_PD, const float *sin_PD,
                 bool inverse) {
    const int64_t E = (H + 2 * K) * D;
#pragma omp parallel for schedule(static) if (N * E > HL_SERIAL_BELOW)
    for (int64_t n = 0; n < N; n++) {
        const int64_t at = position_N[n] * (D / 2);
        const vf sign = vf_set(inverse ? -1.0f : 1.0f);
        for (int64_t h = 0; h < H + K; h++)
            rope_head(D, (T *)qkv_NE + n * E + h * D, cos_PD + at, sin_PD + at, sign);
    }
}

static float headnorm_head(int64_t D, const T *x, const T *w, float eps, T *y) {
    vf squares = vf_set(0);
    for (int64_t d = 0; d < D; d += W) {
        const vf v = load(x + d, lanes(D, d));
        squares = vf_fma(v, v, squares);
    }
    const float rstd = 1 / sqrtf(vf_sum(squares) / (float)D + eps);
    for (int64_t d = 0; d < D; d += W) {
        const int64_t n = lanes(D, d);
        store(y + d, vf_mul(vf_mul(load(x + d, n), vf_set(rstd)), load(w + d, n)), n);
    }
    return rstd;
}

static void headnorm_fwd(int64_t N, int64_t H, int64_t K, int64_t D, const void *in_NE,
                         const void *wq_D, const void *wk_D, float eps, void *out_NE,
                         float *rstd_NH) {
    const int64_t E = (H + 2 * K) * D;
#pragma omp parallel for schedule(static) if (N * E > HL_SERIAL_BELOW)
    for (int64_t n = 0; n < N; n++) {
        const T *in = (const T *)in_NE + n * E;
        T *out = (T *)out_NE + n * E;
        for (int64_t h = 0; h < H + K; h++)
            rstd_NH[n * (H + K) + h] =
                headnorm_head(D, in + h * D, h < H ? wq_D : wk_D, eps, out + h * D);
        memcpy(out + (H + K) * D, in + (H + K) * D, (size_t)(K * D) * sizeof(T));
    }
}

static void headnorm_bwd_head(int64_t D, const T *x, const T *w, float rstd, T *dy, float *dw) {
    const vf r = vf_set(rstd);
    vf sum_gh = vf_set(0);
    for (int64_t c = 0; c < D; c += W) {
        const int64_t n = lanes(D, c);
        const vf h = vf_mul(load(x + c, n), r), d = load(dy + c, n);
        sum_gh = vf_fma(vf_mul(d, load(w + c, n)), h, sum_gh);
        vf_store(dw + c, vf_fma(d, h, vf_load(dw + c, n)), n);
    }
    const vf mean_gh = vf_set(vf_sum(sum_gh) / (float)D);
    for (int64_t c = 0; c < D; c += W) {
        const int64_t n = lanes(D, c);
        const vf h = vf_mul(load(x + c, n), r), g = vf_mul(load(dy + c, n), load(w + c, n));
        store(dy + c, vf_mul(r, vf_fnma(h, mean_gh, g)), n);
    }
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
