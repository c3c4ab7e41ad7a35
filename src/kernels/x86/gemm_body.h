/* Packing and the innermost tile of gemm.c over one vector type; included once per instruction set (GEMM_ISA is its table).
 * Tile: LANES/2 rows x 3 vectors. AVX-512: 8 x 48, 24 sums + 3 columns + 1 broadcast of 32 registers, 11 loads for 24
 * multiply-adds; AVX2: 4 x 24, all 16 registers, 7 loads for 12. The widths divide 768, 2,304, 3,072 and 50,304. */
#include "kernels/gemm.h"
#include "kernels/x86/lanes.h"

enum { ROWS = LANES / 2, VECTORS = 3, COLUMNS = VECTORS * LANES };

static inline vf load_line(const void *src, int64_t i, int64_t n, enum hl_dtype type) {
    if (type == HL_F32) return n >= LANES ? vf_load((const float *)src + i) : vf_load_part((const float *)src + i, n);
    return n >= LANES ? vf_load_bf16((const struct hl_bf16 *)src + i) : vf_load_part_bf16((const struct hl_bf16 *)src + i, n);
}

/* x holds up to LANES lines of one k: into one panel of COLUMNS, or the halves of two panels of ROWS. */
static inline void put(vf x, int64_t lines, int64_t depth, int64_t width, float *panel) {
    if (width == COLUMNS) {
        vf_store(panel, x);
        return;
    }
    vf_store_low(panel, x);
    if (lines > ROWS) vf_store_high(panel + depth * ROWS, x);
}

/* LANES steps of k of `lines` lines; whole: there are LANES of both. */
static inline __attribute__((always_inline)) void pack_square(bool whole, int64_t lines, int64_t steps, int64_t depth,
                                                              const void *src, int64_t ld, enum hl_dtype type, int64_t width,
                                                              float *panel) {
    vf x[LANES];
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++)
        x[i] = whole || i < lines ? load_line(src, i * ld, whole ? LANES : steps, type) : vf_zero();
    if (whole)
#pragma GCC unroll 16
        for (int i = 0; i < LANES; i++) __builtin_prefetch((const char *)src + (LANES + i) * ld * (int64_t)hl_dtype_bytes(type));
    vf_transpose(x);
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++)
        if (whole || i < steps) put(x[i], whole ? LANES : lines, depth, width, panel + i * width);
}

static inline __attribute__((always_inline)) void pack_along_k(int64_t lines, int64_t depth, const void *src, int64_t ld,
                                                               enum hl_dtype type, int64_t width, float *panel) {
    for (int64_t k = 0; k < depth; k += LANES) {
        const void *x = (const char *)src + k * (int64_t)hl_dtype_bytes(type);
        if (lines >= LANES && depth - k >= LANES) pack_square(true, LANES, LANES, depth, x, ld, type, width, panel + k * width);
        else pack_square(false, lines, depth - k, depth, x, ld, type, width, panel + k * width);
    }
}

static void pack_zero(int64_t depth, float *panel) {
    for (int64_t k = 0; k < depth; k++) vf_store(panel + k * COLUMNS, vf_zero());
}

/* LANES lines at a time. */
static void pack(int64_t lines, int64_t depth, const void *src, int64_t ld, bool along_k, enum hl_dtype type, int64_t width,
                 float *panel) {
    for (int64_t line = 0; line < (width == COLUMNS ? COLUMNS : LANES); line += LANES, panel += LANES) {
        int64_t left = lines - line;
        const void *x = (const char *)src + (along_k ? line * ld : line) * (int64_t)hl_dtype_bytes(type);
        if (left <= 0) pack_zero(depth, panel);
        else if (along_k && type == HL_F32 && width == ROWS) pack_along_k(left, depth, x, ld, HL_F32, ROWS, panel);
        else if (along_k && type == HL_F32) pack_along_k(left, depth, x, ld, HL_F32, COLUMNS, panel);
        else if (along_k && width == ROWS) pack_along_k(left, depth, x, ld, HL_BF16, ROWS, panel);
        else if (along_k) pack_along_k(left, depth, x, ld, HL_BF16, COLUMNS, panel);
        else
            for (int64_t k = 0; k < depth; k++) {
                __builtin_prefetch((const char *)x + (k + 16) * ld * (int64_t)hl_dtype_bytes(type));
                put(load_line(x, k * ld, left, type), left, depth, width, panel + k * width);
            }
    }
}

static inline void finish(vf sum, int64_t n, const float *from, void *c, int64_t i, enum hl_dtype out) {
    if (from) sum = vf_add(n >= LANES ? vf_load(from) : vf_load_part(from, n), sum);
    if (out == HL_F32) {
        if (n >= LANES) vf_store((float *)c + i, sum);
        else vf_store_part((float *)c + i, sum, n);
    } else {
        if (n >= LANES) vf_store_bf16((struct hl_bf16 *)c + i, sum);
        else vf_store_part_bf16((struct hl_bf16 *)c + i, sum, n);
    }
}

static inline __attribute__((always_inline)) void tile_of(int vectors, int64_t depth, const float *a, const float *b, int64_t rows,
                                                          int64_t columns, const float *from, int64_t ld_from, void *c,
                                                          int64_t ldc, enum hl_dtype out) {
    vf sum[ROWS][VECTORS];
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 3
        for (int v = 0; v < vectors; v++) sum[r][v] = vf_zero();
    for (int r = 0; from && r < rows; r++)
        for (int v = 0; v < vectors; v++) __builtin_prefetch(from + r * ld_from + v * LANES, 0);
    for (int64_t k = 0; k < depth; k++, a += ROWS, b += COLUMNS) {
        vf column[VECTORS];
#pragma GCC unroll 3
        for (int v = 0; v < vectors; v++) column[v] = vf_load(b + v * LANES);
#pragma GCC unroll 8
        for (int r = 0; r < ROWS; r++) {
            vf x = vf_all(a[r]);
#pragma GCC unroll 3
            for (int v = 0; v < vectors; v++) sum[r][v] = vf_fma(x, column[v], sum[r][v]);
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 3
        for (int v = 0; v < vectors; v++)
            if (r < rows)
                finish(sum[r][v], columns - v * LANES, from ? from + r * ld_from + v * LANES : NULL, c, r * ldc + v * LANES, out);
}

static void tile(int64_t depth, const float *a, const float *b, int64_t rows, int64_t columns, const float *from, int64_t ld_from,
                 void *c, int64_t ldc, enum hl_dtype out) {
    if (columns > 2 * LANES) tile_of(3, depth, a, b, rows, columns, from, ld_from, c, ldc, out);
    else if (columns > LANES) tile_of(2, depth, a, b, rows, columns, from, ld_from, c, ldc, out);
    else tile_of(1, depth, a, b, rows, columns, from, ld_from, c, ldc, out);
}

const struct hl_gemm_isa GEMM_ISA = {ROWS, COLUMNS, pack, tile};
