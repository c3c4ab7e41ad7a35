/* Embedding over vectors; what it computes is said in ref/embed_body.h. */

static void embed_fwd(int64_t N, int64_t C, const int32_t *token_N, const int32_t *position_N,
                      const void *wte_VC, const void *wpe_PC, float *x_NC) {
#pragma omp parallel for schedule(static) if (N * C > HL_SERIAL_BELOW)
    for (int64_t row = 0; row < N; row++) {
        const T *wte = (const T *)wte_VC + token_N[row] * C;
        const T *wpe = wpe_PC ? (const T *)wpe_PC + position_N[row] * C : NULL;
        for (int64_t c = 0; c < C; c += W) {
            const int64_t n = lanes(C, c);
            const vf x = load(wte + c, n);
            vf_store(x_NC + row * C + c, wpe ? vf_add(x, load(wpe + c, n)) : x, n);
        }
    }
}

static void add_columns(int64_t n_columns, const float *x, float *y) {
    for (int64_t c = 0; c < n_columns; c += W) {
        const int64_t n = lanes(n_columns, c);
        vf_store(y + c, vf_add(vf_load(y + c, n), vf_load(x + c, n)), n);
    }
}

/* Each thread owns some columns and walks all rows in ascending order: no thread meets another, no
 * sum depends on the split. */
static void embed_bwd(int64_t N, int64_t C, const float *dx_NC, const int32_t *token_N,
                      const int32_t *position_N, float *dwte_VC, float *dwpe_PC) {
#pragma omp parallel if (N * C > HL_SERIAL_BELOW)
    {
        int64_t first, end;
        hl_my_columns(C, &first, &end);
        for (int64_t n = 0; n < N; n++) {
            const float *dx = dx_NC + n * C + first;
            add_columns(end - first, dx, dwte_VC + token_N[n] * C + first);
            if (dwpe_PC) add_columns(end - first, dx, dwpe_PC + position_N[n] * C + first);
        }
    }
}
