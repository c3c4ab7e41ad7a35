/* Flash attention on tiles for one compute type: T, NAME, LOAD, LOAD_PART, STORE, STORE_PART are
 * set by the includer (no include guard). Source: arXiv:2205.14135 and arXiv:2307.08691.
 *
 * Rows of one head are widened once into dense f32 tiles in scratch (they lie E elements apart in
 * the model's rows, which costs a page and often the same cache set each). q carries the scale.
 * Tiles above the diagonal are skipped, tiles on it limited strip by strip. Tasks: forward a
 * key/value head of a sequence and SUPER query rows, backward a key/value head of a sequence. No
 * two tasks write the same element and each is done by one thread, so the bits do not depend on the
 * team. */

/* y [n, P] = x [n, D] * scale, zero beyond D. */
static void NAME(widen)(int64_t n, int64_t D, const T *x, int64_t ld, float scale, float *y) {
    int64_t P = round_up(D, LANES), whole = D / LANES * LANES;
    vf factor = vf_all(scale);
    for (int64_t i = 0; i < n; i++, x += ld, y += P) {
        for (int64_t d = 0; d < whole; d += LANES) {
            __builtin_prefetch(x + ROWS_AHEAD * ld + d);
            vf_store(y + d, vf_mul(LOAD(x + d), factor));
        }
        if (whole < D) vf_store(y + whole, vf_mul(LOAD_PART(x + whole, D - whole), factor));
    }
}

/* y [D, BK] = transpose of x [n, D], n <= BK, zero in columns n up to whole vectors. */
static void NAME(widen_across)(int64_t n, int64_t D, const T *x, int64_t ld, float *y) {
    for (int64_t j = 0; j < n; j += LANES)
        for (int64_t d = 0; d < D; d += LANES) {
            vf square[LANES];
            bool whole = D - d >= LANES && n - j >= LANES;
            if (whole)
#pragma GCC unroll 16
                for (int i = 0; i < LANES; i++) {
                    __builtin_prefetch(x + (j + LANES + i) * ld + d);
                    square[i] = LOAD(x + (j + i) * ld + d);
                }
            else
                for (int i = 0; i < LANES; i++)
                    square[i] = j + i >= n       ? vf_zero()
                                : D - d >= LANES ? LOAD(x + (j + i) * ld + d)
                                                 : LOAD_PART(x + (j + i) * ld + d, D - d);
            vf_transpose(square);
            if (whole)
#pragma GCC unroll 16
                for (int i = 0; i < LANES; i++) vf_store(y + (d + i) * BK + j, square[i]);
            else
                for (int i = 0; i < LANES && d + i < D; i++)
                    vf_store(y + (d + i) * BK + j, square[i]);
        }
}

/* x [n, D] = y [n, P] * scale. */
static void NAME(narrow)(int64_t n, int64_t D, const float *y, float scale, T *x, int64_t ld) {
    int64_t P = round_up(D, LANES), whole = D / LANES * LANES;
    vf factor = vf_all(scale);
    for (int64_t i = 0; i < n; i++, x += ld, y += P) {
        for (int64_t d = 0; d < whole; d += LANES) STORE(x + d, vf_mul(vf_load(y + d), factor));
        if (whole < D) STORE_PART(x + whole, vf_mul(vf_load(y + whole), factor), D - whole);
    }
}

/* ---- forward ---- */

static void NAME(forward_task)(const struct hl_attention *a, const struct task *t, const T *qkv_NE,
                               T *out_ND, float *lse_NH, struct forward_scratch w) {
    int64_t H = a->n_heads, K = a->n_kv_heads, D = a->head_dim, E = (H + 2 * K) * D, G = H / K,
            P = round_up(D, LANES);
    const T *qkv = qkv_NE + t->first * E, *k = qkv + (H + t->kv) * D, *v = k + K * D;
    for (int64_t j = 0; j < t->end; j += BK)
        NAME(widen_across)(smaller(BK, t->end - j), D, k + j * E, E, w.k_across + j * D);
    NAME(widen)(t->end, D, v, E, 1, w.v);
    for (int64_t h = t->kv * G; h < (t->kv + 1) * G; h++)
        for (int64_t i0 = t->begin; i0 < t->end; i0 += BQ) {
            int64_t n = smaller(BQ, t->end - i0), row = t->first + i0;
            NAME(widen)(n, D, qkv + i0 * E + h * D, E, a->scale, w.q);
            forward_tile(&w, D, i0, n);
            for (int64_t i = 0; i < n; i++) {
                NAME(narrow)
                (1, D, w.out + i * P, 1 / w.sum[i], out_ND + ((row + i) * H + h) * D, 0);
                lse_NH[(row + i) * H + h] = w.top[i] + logf(w.sum[i]);
            }
        }
}

static void NAME(forward)(const struct hl_attention *a, const void *qkv_NE, void *out_ND,
                          float *lse_NH, void *scratch) {
    int64_t n_tasks = count_tasks(a, SUPER), bytes = forward_bytes(a);
#pragma omp parallel for schedule(dynamic) if (n_tasks > 1)
    for (int64_t i = 0; i < n_tasks; i++) {
        struct task t = find_task(a, SUPER, n_tasks - 1 - i);
        NAME(forward_task)
        (a, &t, qkv_NE, out_ND, lse_NH,
         forward_layout(a, (char *)scratch + bytes * omp_get_thread_num()));
    }
}

/* ---- backward ---- */

/* q (scaled), dout, lse and delta = sum of out * dout of one head in dense rows; dq zero. */
static void NAME(backward_head)(const struct hl_attention *a, const struct task *t, int64_t h,
                                const T *qkv, const T *out_ND, const float *lse_NH,
                                const T *dout_ND, const struct backward_scratch *w) {
    int64_t H = a->n_heads, D = a->head_dim, E = (H + 2 * a->n_kv_heads) * D,
            P = round_up(D, LANES), n = t->end;
    NAME(widen)(n, D, qkv + h * D, E, a->scale, w->q);
    NAME(widen)(n, D, dout_ND + (t->first * H + h) * D, H * D, 1, w->dout);
    memset(w->dq, 0, (size_t)(n * P) * sizeof *w->dq);
    for (int64_t i = 0; i < n; i++) {
        const T *out = out_ND + ((t->first + i) * H + h) * D;
        vf sum = vf_zero();
        for (int64_t d = 0; d < D; d += LANES)
            sum = vf_fma(D - d >= LANES ? LOAD(out + d) : LOAD_PART(out + d, D - d),
                         vf_load(w->dout + i * P + d), sum);
        w->delta[i] = vf_sum(sum);
        w->lse[i] = lse_NH[(t->first + i) * H + h];
    }
}

static void NAME(backward_task)(const struct hl_attention *a, const struct task *t, const T *qkv_NE,
                                const T *out_ND, const float *lse_NH, const T *dout_ND, T *dqkv_NE,
                                struct backward_scratch w) {
    int64_t H = a->n_heads, K = a->n_kv_heads, D = a->head_dim, E = (H + 2 * K) * D, G = H / K,
            P = round_up(D, LANES);
    const T *qkv = qkv_NE + t->first * E, *k = qkv + (H + t->kv) * D, *v = k + K * D;
    T *dqkv = dqkv_NE + t->first * E, *dk = dqkv + (H + t->kv) * D, *dv = dk + K * D;
    memset(w.dk, 0, (size_t)(round_up(t->end, BK) * P) * sizeof *w.dk);
    memset(w.dv, 0, (size_t)(round_up(t->end, BK) * P) * sizeof *w.dv);
    for (int64_t h = t->kv * G; h < (t->kv + 1) * G; h++) {
        NAME(backward_head)(a, t, h, qkv, out_ND, lse_NH, dout_ND, &w);
        for (int64_t j0 = 0; j0 < t->end; j0 += BK) {
            int64_t keys = smaller(BK, t->end - j0);
            NAME(widen)(keys, D, k + j0 * E, E, 1, w.k);
            NAME(widen_across)(keys, D, k + j0 * E, E, w.k_across);
            NAME(widen_across)(keys, D, v + j0 * E, E, w.v_across);
            for (int64_t i0 = j0 / BQ * BQ; i0 < t->end; i0 += BQ)
                backward_tile(&w, D, j0, keys, i0, smaller(BQ, t->end - i0));
        }
        NAME(narrow)(t->end, D, w.dq, a->scale, dqkv + h * D, E);
    }
    NAME(narrow)(t->end, D, w.dk, 1, dk, E);
    NAME(narrow)(t->end, D, w.dv, 1, dv, E);
}

static void NAME(backward)(const struct hl_attention *a, const void *qkv_NE, const void *out_ND,
                           const float *lse_NH, const void *dout_ND, void *dqkv_NE, void *scratch) {
    int64_t n_tasks = count_tasks(a, INT64_MAX), bytes = backward_bytes(a);
#pragma omp parallel for schedule(dynamic) if (n_tasks > 1)
    for (int64_t i = 0; i < n_tasks; i++) {
        struct task t = find_task(a, INT64_MAX, i);
        NAME(backward_task)
        (a, &t, qkv_NE, out_ND, lse_NH, dout_ND, dqkv_NE,
         backward_layout(a, (char *)scratch + bytes * omp_get_thread_num()));
    }
}

/* ---- one new token ---- */

static void NAME(decode_head)(int64_t n, int64_t D, float scale, const T *q, const T *k,
                              int64_t v_offset, int64_t ld, float *score, T *out) {
    float top = -__FLT_MAX__, sum = 0;
    for (int64_t j = 0; j < n; j++) {
        vf dot = vf_zero();
        for (int64_t d = 0; d < D; d += LANES) {
            int64_t m = D - d;
            dot = m >= LANES ? vf_fma(LOAD(q + d), LOAD(k + j * ld + d), dot)
                             : vf_fma(LOAD_PART(q + d, m), LOAD_PART(k + j * ld + d, m), dot);
        }
        score[j] = scale * vf_sum(dot);
        if (score[j] > top) top = score[j];
    }
    for (int64_t j = 0; j < n; j += LANES) {
        vf e = vf_exp(vf_sub(vf_load_part(score + j, smaller(LANES, n - j)), vf_all(top)));
        vf_store_part(score + j, e, smaller(LANES, n - j));
    }
    for (int64_t j = 0; j < n; j++) sum += score[j];
    for (int64_t d = 0; d < D; d += LANES) {
        int64_t m = smaller(LANES, D - d);
        vf o = vf_zero();
        for (int64_t j = 0; j < n; j++) {
            const T *v = k + v_offset + j * ld + d;
            o = vf_fma(vf_all(score[j]), m == LANES ? LOAD(v) : LOAD_PART(v, m), o);
        }
        STORE_PART(out + d, vf_mul(o, vf_all(1 / sum)), m);
    }
}

static void NAME(decode)(int64_t n_cached, int64_t H, int64_t K, int64_t D, float scale,
                         const void *q_HD, const void *cache_kv, void *out_HD,
                         float *scratch_n_cached_H) {
#pragma omp parallel for schedule(static) if (n_cached * H * D > HL_SERIAL_BELOW)
    for (int64_t h = 0; h < H; h++) NAME(decode_head)
    (n_cached, D, scale, (const T *)q_HD + h * D, (const T *)cache_kv + h / (H / K) * D, K * D,
     2 * K * D, scratch_n_cached_H + h * n_cached, (T *)out_HD + h * D);
}
