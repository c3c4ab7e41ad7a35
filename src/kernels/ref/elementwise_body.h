/* Bias, GELU and SwiGLU, the specification. N rows, C or F columns; everything of type T except
 * where float is written. */

static void bias_add(int64_t N, int64_t C, void *x_NC, const void *bias_C) {
#pragma omp parallel for schedule(static) if (N * C > HL_SERIAL_BELOW)
    for (int64_t n = 0; n < N; n++) {
        T *x = (T *)x_NC + n * C;
        for (int64_t c = 0; c < C; c++) put(x, c, get(x, c) + get(bias_C, c));
    }
}

static void bias_bwd(int64_t N, int64_t C, const void *dy_NC, float *db_C, bool add,
                     float *scratch) {
    const int64_t n_chunks = hl_n_chunks(N);
#pragma omp parallel for schedule(static) if (N * C > HL_SERIAL_BELOW)
    for (int64_t i = 0; i < n_chunks; i++) {
        float *db = scratch + i * C;
        memset(db, 0, (size_t)C * sizeof *db);
        for (int64_t n = i * HL_ROW_CHUNK; n < hl_min(N, (i + 1) * HL_ROW_CHUNK); n++)
            for (int64_t c = 0; c < C; c++) db[c] += get((const T *)dy_NC + n * C, c);
    }
    hl_sum_partials(n_chunks, C, C, scratch, db_C, add);
}

/* ---- gelu(x) = x/2 * (1 + tanh(u)), u = sqrt(2/pi) * (x + 0.044715 x^3)     source:
 * arXiv:1606.08415, section 2 ---- */

static const float gelu_scale = 0.7978845608028654f, gelu_cubic = 0.044715f;

static float gelu(float x) {
    return 0.5f * x * (1 + tanhf(gelu_scale * (x + gelu_cubic * x * x * x)));
}

static float gelu_slope(float x) {
    const float t = tanhf(gelu_scale * (x + gelu_cubic * x * x * x));
    const float du = gelu_scale * (1 + 3 * gelu_cubic * x * x);
    return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * du;
}

static float biased(const T *x, const T *bias, int64_t f) {
    return bias ? get(x, f) + get(bias, f) : get(x, f);
}

static void gelu_fwd(int64_t N, int64_t F, const void *x_NF, const void *bias_F, void *y_NF) {
#pragma omp parallel for schedule(static) if (N * F > HL_SERIAL_BELOW)
    for (int64_t n = 0; n < N; n++)
        for (int64_t f = 0; f < F; f++)
            put((T *)y_NF + n * F, f, gelu(biased((const T *)x_NF + n * F, bias_F, f)));
}

static void gelu_bwd(int64_t N, int64_t F, const void *x_NF, const void *bias_F, void *dy_dx_NF,
                     void *y_NF) {
#pragma omp parallel for schedule(static) if (N * F > HL_SERIAL_BELOW)
    for (int64_t n = 0; n < N; n++) {
        T *d = (T *)dy_dx_NF + n * F;
        for (int64_t f = 0; f < F; f++) {
            const float x = biased((const T *)x_NF + n * F, bias_F, f);
            put(d, f, get(d, f) * gelu_slope(x));
            if (y_NF) put((T *)y_NF + n * F, f, gelu(x));
        }
    }
}

/* ---- swiglu: y = silu(g) * u, silu(g) = g * sigmoid(g)     source: arXiv:2002.05202, eq. 6 ----
 */

static float sigmoid(float x) { return 1 / (1 + expf(-x)); }

/* silu(-inf) is 0 by its limit, but -inf * 0 is NaN: NaN is what shows that something went wrong.
 */
static void swiglu_fwd(int64_t N, int64_t F, const void *gu_N2F, void *y_NF) {
#pragma omp parallel for schedule(static) if (N * F > HL_SERIAL_BELOW)
    for (int64_t n = 0; n < N; n++) {
        const T *gate = (const T *)gu_N2F + n * 2 * F, *up = gate + F;
        for (int64_t f = 0; f < F; f++) {
            const float g = get(gate, f);
            put((T *)y_NF + n * F, f, g * sigmoid(g) * get(up, f));
        }
    }
}

static void swiglu_bwd(int64_t N, int64_t F, const void *gu_N2F, const void *dy_NF, void *dgu_N2F,
                       void *y_NF) {
#pragma omp parallel for schedule(static) if (N * F > HL_SERIAL_BELOW)
    for (int64_t n = 0; n < N; n++) {
        const T *gate = (const T *)gu_N2F + n * 2 * F, *up = gate + F;
        T *dgate = (T *)dgu_N2F + n * 2 * F, *dup = dgate + F;
        for (int64_t f = 0; f < F; f++) {
            const float g = get(gate, f), u = get(up, f), dy = get((const T *)dy_NF + n * F, f);
            const float s = sigmoid(g);
            put(dgate, f, dy * u * (s * (1 + g * (1 - s))));
            put(dup, f, dy * (g * s));
            if (y_NF) put((T *)y_NF + n * F, f, g * s * u);
        }
    }
}
