/* Bias, GELU and SwiGLU over vectors; what they compute is said in ref/elementwise_body.h. */

static void bias_add(int64_t N, int64_t C, void *x_NC, const void *bias_C) {
    const T *bias = bias_C;
#pragma omp parallel for schedule(static) if (N * C > HL_SERIAL_BELOW)
    for (int64_t row = 0; row < N; row++) {
        T *x = (T *)x_NC + row * C;
        for (int64_t c = 0; c < C; c += W) {
            const int64_t n = lanes(C, c);
            store(x + c, vf_add(load(x + c, n), load(bias + c, n)), n);
        }
    }
}

enum { ROWS_AT_ONCE = 4 };

/* sum += rows, one after the other; several at a time only saves loads and stores of sum. */
static void add_rows(int64_t n_rows, int64_t C, const T *x, float *sum) {
    for (int64_t c = 0; c < C; c += W) {
        const int64_t n = lanes(C, c);
        vf s = vf_load(sum + c, n);
        for (int64_t row = 0; row < n_rows; row++) s = vf_add(s, load(x + row * C + c, n));
        vf_store(sum + c, s, n);
    }
}

static void bias_bwd(int64_t N, int64_t C, const void *dy_NC, float *db_C, bool add,
                     float *scratch) {
    const int64_t n_chunks = hl_n_chunks(N);
#pragma omp parallel for schedule(static) if (N * C > HL_SERIAL_BELOW)
    for (int64_t i = 0; i < n_chunks; i++) {
        float *db = scratch + i * C;
        memset(db, 0, (size_t)C * sizeof *db);
        const int64_t end = hl_min(N, (i + 1) * HL_ROW_CHUNK);
        for (int64_t n = i * HL_ROW_CHUNK; n < end; n += ROWS_AT_ONCE)
            add_rows(hl_min(ROWS_AT_ONCE, end - n), C, (const T *)dy_NC + n * C, db);
    }
    hl_sum_partials(n_chunks, C, C, scratch, db_C, add);
}

/* ---- gelu: (1 + tanh u)/2 = sigmoid(2u), so gelu(x) = x s with s = sigmoid(2u): no cancellation
 * where x is negative ---- */

struct gelu {
    vf s, twice_du;
}; /* twice_du = d(2u)/dx */

static inline struct gelu gelu_parts(vf x) {
    const float scale = 1.5957691216057308f, cubic = 0.044715f; /* 2 sqrt(2/pi) */
    const vf xx = vf_mul(x, x);
    const vf u = vf_mul(x, vf_fma(xx, vf_set(scale * cubic), vf_set(scale)));
    return (struct gelu){sigmoid(u), vf_fma(xx, vf_set(3 * scale * cubic), vf_set(scale))};
}

static inline vf biased(const T *x, const T *bias, int64_t f, int64_t n) {
    return bias ? vf_add(load(x + f, n), load(bias + f, n)) : load(x + f, n);
}

static void gelu_fwd(int64_t N, int64_t F, const void *x_NF, const void *bias_F, void *y_NF) {
#pragma omp parallel for schedule(static) if (N * F > HL_SERIAL_BELOW)
    for (int64_t row = 0; row < N; row++)
        for (int64_t f = 0; f < F; f += W) {
            const int64_t n = lanes(F, f);
            const vf x = biased((const T *)x_NF + row * F, bias_F, f, n);
            store((T *)y_NF + row * F + f, vf_mul(x, gelu_parts(x).s), n);
        }
}

/* slope = s + x s (1 - s) d(2u)/dx */
static void gelu_bwd(int64_t N, int64_t F, const void *x_NF, const void *bias_F, void *dy_dx_NF,
                     void *y_NF) {
#pragma omp parallel for schedule(static) if (N * F > HL_SERIAL_BELOW)
    for (int64_t row = 0; row < N; row++) {
        T *d = (T *)dy_dx_NF + row * F, *y = y_NF ? (T *)y_NF + row * F : NULL;
        for (int64_t f = 0; f < F; f += W) {
            const int64_t n = lanes(F, f);
            const vf x = biased((const T *)x_NF + row * F, bias_F, f, n);
            const struct gelu g = gelu_parts(x);
            const vf xs = vf_mul(x, g.s), bend = vf_mul(xs, vf_sub(vf_set(1), g.s));
            store(d + f, vf_mul(load(d + f, n), vf_fma(bend, g.twice_du, g.s)), n);
            if (y) store(y + f, xs, n);
        }
    }
}

/* ---- swiglu ---- */

static void swiglu_fwd(int64_t N, int64_t F, const void *gu_N2F, void *y_NF) {
#pragma omp parallel for schedule(static) if (N * F > HL_SERIAL_BELOW)
    for (int64_t row = 0; row < N; row++) {
        const T *gate = (const T *)gu_N2F + row * 2 * F, *up = gate + F;
        for (int64_t f = 0; f < F; f += W) {
            const int64_t n = lanes(F, f);
            const vf g = load(gate + f, n);
            store((T *)y_NF + row * F + f, vf_mul(vf_mul(g, sigmoid(g)), load(up + f, n)), n);
        }
    }
}

static void swiglu_bwd(int64_t N, int64_t F, const void *gu_N2F, const void *dy_NF, void *dgu_N2F,
                       void *y_NF) {
#pragma omp parallel for schedule(static) if (N * F > HL_SERIAL_BELOW)
    for (int64_t row = 0; row < N; row++) {
        const T *gate = (const T *)gu_N2F + row * 2 * F, *up = gate + F,
                *dy = (const T *)dy_NF + row * F;
        T *dgate = (T *)dgu_N2F + row * 2 * F, *dup = dgate + F,
          *y = y_NF ? (T *)y_NF + row * F : NULL;
        for (int64_t f = 0; f < F; f += W) {
            const int64_t n = lanes(F, f);
            const vf g = load(gate + f, n), u = load(up + f, n), d = load(dy + f, n),
                     s = sigmoid(g);
            const vf silu = vf_mul(g, s), slope = vf_fma(silu, vf_sub(vf_set(1), s), s);
            store(dgate + f, vf_mul(vf_mul(d, u), slope), n);
            store(dup + f, vf_mul(d, silu), n);
            if (y) store(y + f, vf_mul(silu, u), n);
        }
    }
}
