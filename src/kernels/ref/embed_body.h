/* Token and position embedding, the specification. N rows, C channels, V tokens, P positions. */

static void embed_fwd(int64_t N, int64_t C, const int32_t *token_N, const int32_t *position_N,
                      const void *wte_VC, const void *wpe_PC, float *x_NC) {
#pragma omp parallel for schedule(static) if (N * C > HL_SERIAL_BELOW)
    for (int64_t n = 0; n < N; n++) {
        const T *wte = (const T *)wte_VC + token_N[n] * C;
        const T *wpe = wpe_PC ? (const T *)wpe_PC + position_N[n] * C : NULL;
        for (int64_t c = 0; c < C; c++)
            x_NC[n * C + c] = wpe ? get(wte, c) + get(wpe, c) : get(wte, c);
    }
}

/* Threads split the columns: a column is summed by one thread, rows in ascending order. */
static void embed_bwd(int64_t N, int64_t C, const float *dx_NC, const int32_t *token_N,
                      const int32_t *position_N, float *dwte_VC, float *dwpe_PC) {
    enum { COLUMNS = 64 };
    const int64_t n_blocks = (C + COLUMNS - 1) / COLUMNS;
#pragma omp parallel for schedule(static) if (N * C > HL_SERIAL_BELOW)
    for (int64_t block = 0; block < n_blocks; block++)
        for (int64_t n = 0; n < N; n++)
            for (int64_t c = block * COLUMNS; c < hl_min(C, (block + 1) * COLUMNS); c++) {
                dwte_VC[token_N[n] * C + c] += dx_NC[n * C + c];
                if (dwpe_PC) dwpe_PC[position_N[n] * C + c] += dx_NC[n * C + c];
            }
}
