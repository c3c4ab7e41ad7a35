/* Packing and the innermost tile of gemm.c over one vector type; included once per instruction set
 * (GEMM_ISA is its table; with GEMM_PAIRS a word is two bf16 and the tile multiplies pairs). Tile:
 * LANES/2 rows x 3 vectors. AVX-512: 8 x 48, 24 sums + 3 columns + 1 broadcast of 32 registers, 11
 * loads for 24 multiply-adds; AVX2: 4 x 24, all 16 registers, 7 loads for 12. The widths divide
 * 768, 2,304, 3,072 and 50,304. */
#include <string.h>

#include "kernels/gemm.h"
#include "kernels/x86/lanes.h"

enum { ROWS = LANES / 2, VECTORS = 3, COLUMNS = VECTORS * LANES };
enum { AHEAD = 16 }; /* rows of memory on their way while packing across them */

static inline vf load_line(const void *src, int64_t i, int64_t n, enum hl_dtype type) {
    if (type == HL_F32)
        return n >= LANES ? vf_load((const float *)src + i)
                          : vf_load_part((const float *)src + i, n);
    return n >= LANES ? vf_load_bf16((const struct hl_bf16 *)src + i)
                      : vf_load_part_bf16((const struct hl_bf16 *)src + i, n);
}

/* LANES words of one line from its element i, of which n elements are there; and a word of each of
 * LANES lines, of which n are there, k elements of every line. */
#ifdef GEMM_PAIRS
enum { K_PER_WORD = 2, DEPTH = 1536 };
static inline vf load_words(const void *src, int64_t i, int64_t n, enum hl_dtype type) {
    (void)type;
    __mmask32 there = n >= 2 * LANES ? ~0U : (1U << n) - 1;
    return _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(there, (const struct hl_bf16 *)src + i));
}
static inline __m512i load_halves(const void *src, int64_t i, int64_t n) {
    __mmask16 there = n >= LANES ? 0xffff : vf_first(n);
    return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(there, (const struct hl_bf16 *)src + i));
}
static inline vf load_across(const void *src, int64_t ld, int64_t n, int64_t k,
                             enum hl_dtype type) {
    (void)type;
    __m512i low = load_halves(src, 0, n);
    __m512i high = k > 1 ? load_halves(src, ld, n) : _mm512_setzero_si512();
    return _mm512_castsi512_ps(_mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
}
static inline vf spread(const char *word) {
    int32_t pair; /* rows in place begin at any bf16 */
    memcpy(&pair, word, sizeof pair);
    return _mm512_castsi512_ps(_mm512_set1_epi32(pair));
}
static inline vf multiply_add(vf x, vf y, vf sum) {
    return _mm512_dpbf16_ps(sum, (__m512bh)x, (__m512bh)y);
}
#else
enum { K_PER_WORD = 1, DEPTH = 384 };
static inline vf load_words(const void *src, int64_t i, int64_t n, enum hl_dtype type) {
    return load_line(src, i, n, type);
}
static inline vf load_across(const void *src, int64_t ld, int64_t n, int64_t k,
                             enum hl_dtype type) {
    (void)ld, (void)k;
    return load_line(src, 0, n, type);
}
static inline vf spread(const char *word) { return vf_all(*(const float *)(const void *)word); }
static inline vf multiply_add(vf x, vf y, vf sum) { return vf_fma(x, y, sum); }
#endif

/* x holds up to LANES lines of one k: into one panel of COLUMNS, or the halves of two panels of
 * ROWS. */
static inline void put(vf x, int64_t lines, int64_t words, int64_t width, float *panel) {
    if (width == COLUMNS) {
        vf_store(panel, x);
        return;
    }
    vf_store_low(panel, x);
    if (lines > ROWS) vf_store_high(panel + words * ROWS, x);
}

static const void *element(const void *src, int64_t i, enum hl_dtype type) {
    return (const char *)src + i * (int64_t)hl_dtype_bytes(type);
}

/* LANES words of `lines` lines, of which n elements are there; whole: all are. */
static inline __attribute__((always_inline)) void pack_square(bool whole, int64_t lines, int64_t n,
                                                              int64_t words, const void *src,
                                                              int64_t ld, enum hl_dtype type,
                                                              int64_t width, float *panel) {
    vf x[LANES];
    int64_t steps = (n + K_PER_WORD - 1) / K_PER_WORD;
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++)
        x[i] = whole || i < lines ? load_words(src, i * ld, whole ? LANES * K_PER_WORD : n, type)
                                  : vf_zero();
    if (whole)
#pragma GCC unroll 16
        for (int i = 0; i < LANES; i++) __builtin_prefetch(element(src, (LANES + i) * ld, type));
    vf_transpose(x);
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++)
        if (whole || i < steps) put(x[i], whole ? LANES : lines, words, width, panel + i * width);
}

static inline __attribute__((always_inline)) void pack_along_k(int64_t lines, int64_t depth,
                                                               const void *src, int64_t ld,
                                                               enum hl_dtype type, int64_t width,
                                                               float *panel) {
    int64_t words = (depth + K_PER_WORD - 1) / K_PER_WORD;
    for (int64_t k = 0; k < depth; k += LANES * K_PER_WORD, panel += LANES * width) {
        const void *x = element(src, k, type);
        if (lines >= LANES && depth - k >= LANES * K_PER_WORD)
            pack_square(true, LANES, LANES, words, x, ld, type, width, panel);
        else pack_square(false, lines, depth - k, words, x, ld, type, width, panel);
    }
}

static inline __attribute__((always_inline)) void pack_across_k(int vectors, int64_t lines,
                                                                int64_t depth, const void *src,
                                                                int64_t ld, enum hl_dtype type,
                                                                int64_t width, float *panel) {
    int64_t words = (depth + K_PER_WORD - 1) / K_PER_WORD;
    for (int64_t k = 0; k < depth; k += K_PER_WORD, panel += width) {
        const void *x = element(src, k * ld, type);
        for (int64_t next = AHEAD; next < AHEAD + K_PER_WORD; next++) {
            __builtin_prefetch(element(x, next * ld, type));
            __builtin_prefetch(element(x, next * ld + lines - 1, type));
        }
        for (int v = 0; v < vectors; v++) {
            int64_t n = lines - v * LANES;
            vf y = n > 0 ? load_across(element(x, v * LANES, type), ld, n, depth - k, type)
                         : vf_zero();
            put(y, n, words, width, panel + v * LANES);
        }
    }
}

static void pack_zero(int64_t depth, float *panel) {
    for (int64_t k = 0; k < depth; k += K_PER_WORD, panel += COLUMNS) vf_store(panel, vf_zero());
}

static void pack(int64_t lines, int64_t depth, const void *src, int64_t ld, bool along_k,
                 enum hl_dtype type, int64_t width, float *panel) {
    if (!along_k && width == COLUMNS)
        pack_across_k(VECTORS, lines, depth, src, ld, type, COLUMNS, panel);
    else if (!along_k) pack_across_k(1, lines, depth, src, ld, type, ROWS, panel);
    else
        for (int64_t line = 0; line < width; line += LANES, panel += LANES) {
            int64_t left = lines - line;
            const void *x = element(src, line * ld, type);
            if (left <= 0) pack_zero(depth, panel);
            else if (type == HL_F32 && width == ROWS)
                pack_along_k(left, depth, x, ld, HL_F32, ROWS, panel);
            else if (type == HL_F32) pack_along_k(left, depth, x, ld, HL_F32, COLUMNS, panel);
            else if (width == ROWS) pack_along_k(left, depth, x, ld, HL_BF16, ROWS, panel);
            else pack_along_k(left, depth, x, ld, HL_BF16, COLUMNS, panel);
        }
}

static inline void finish(vf sum, int64_t n, const float *from, void *c, int64_t i,
                          enum hl_dtype out) {
    if (from) sum = vf_add(n >= LANES ? vf_load(from) : vf_load_part(from, n), sum);
    if (out == HL_F32) {
        if (n >= LANES) vf_store((float *)c + i, sum);
        else vf_store_part((float *)c + i, sum, n);
    } else {
        if (n >= LANES) vf_store_bf16((struct hl_bf16 *)c + i, sum);
        else vf_store_part_bf16((struct hl_bf16 *)c + i, sum, n);
    }
}

static inline __attribute__((always_inline)) void tile_of(int vectors, int64_t words, const void *a,
                                                          int64_t lda, const float *b, int64_t rows,
                                                          int64_t columns, const float *from,
                                                          int64_t ld_from, void *c, int64_t ldc,
                                                          enum hl_dtype out) {
    vf sum[ROWS][VECTORS];
    enum { WORD = sizeof(float) };
    int64_t row_step = lda ? lda * WORD : WORD, k_step = lda ? WORD : ROWS * WORD;
    const char *above = a, *below = above + ROWS / 2 * row_step;
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 3
        for (int v = 0; v < vectors; v++) sum[r][v] = vf_zero();
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++)
            __builtin_prefetch((char *)c + (r * ldc + v * LANES) * (int64_t)hl_dtype_bytes(out), 1);
    for (int r = 0; from && from != c && r < rows; r++)
        for (int v = 0; v < vectors; v++) __builtin_prefetch(from + r * ld_from + v * LANES);
    for (int64_t k = 0; k < words; k++, above += k_step, below += k_step, b += COLUMNS) {
        vf column[VECTORS];
#pragma GCC unroll 3
        for (int v = 0; v < vectors; v++) column[v] = vf_load(b + v * LANES);
#pragma GCC unroll 8
        for (int r = 0; r < ROWS; r++) {
            vf x = spread(r < ROWS / 2 ? above + r * row_step : below + (r - ROWS / 2) * row_step);
#pragma GCC unroll 3
            for (int v = 0; v < vectors; v++) sum[r][v] = multiply_add(x, column[v], sum[r][v]);
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 3
        for (int v = 0; v < vectors; v++)
            if (r < rows)
                finish(sum[r][v], columns - v * LANES, from ? from + r * ld_from + v * LANES : NULL,
                       c, r * ldc + v * LANES, out);
}

#define TILE(vectors, packed)                                                                      \
    tile_of(vectors, words, a, (packed) ? 0 : lda, b, rows, columns, from, ld_from, c, ldc, out)
static void tile(int64_t words, const void *a, int64_t lda, const float *b, int64_t rows,
                 int64_t columns, const float *from, int64_t ld_from, void *c, int64_t ldc,
                 enum hl_dtype out) {
    int vectors = columns > 2 * LANES ? 3 : columns > LANES ? 2 : 1;
    if (lda) {
        if (vectors == 3) TILE(3, false);
        else if (vectors == 2) TILE(2, false);
        else TILE(1, false);
    } else {
        if (vectors == 3) TILE(3, true);
        else if (vectors == 2) TILE(2, true);
        else TILE(1, true);
    }
}
#undef TILE

/* dots[m][c] = row m of A times stored row n + c of B, for `columns` (at most DOTS) of them. */
enum { DOTS = 4 };
static inline __attribute__((always_inline)) void dots_of(const struct hl_product *p,
                                                          enum hl_dtype type, int64_t n,
                                                          int columns,
                                                          vf dots[HL_GEMM_FEW_ROWS][DOTS]) {
    for (int m = 0; m < p->M; m++)
        for (int c = 0; c < columns; c++) dots[m][c] = vf_zero();
    for (int64_t k = 0; k < p->K; k += LANES) {
        vf b[DOTS];
        for (int c = 0; c < columns; c++) {
            b[c] = load_line(p->B, (n + c) * p->ldb + k, p->K - k, type);
            __builtin_prefetch((const char *)p->B +
                               ((n + DOTS + c) * p->ldb + k) * (int64_t)hl_dtype_bytes(type));
        }
        for (int m = 0; m < p->M; m++) {
            vf a = load_line(p->A, m * p->lda + k, p->K - k, type);
            for (int c = 0; c < columns; c++) dots[m][c] = vf_fma(a, b[c], dots[m][c]);
        }
    }
}

static void few_rows(const struct hl_product *p, int64_t n, int64_t columns) {
    for (int64_t end = n + columns; n < end; n += DOTS) {
        vf dots[HL_GEMM_FEW_ROWS][DOTS];
        int here = (int)(end - n < DOTS ? end - n : DOTS);
        if (p->in == HL_F32 && here == DOTS) dots_of(p, HL_F32, n, DOTS, dots);
        else if (here == DOTS) dots_of(p, HL_BF16, n, DOTS, dots);
        else dots_of(p, p->in, n, here, dots);
        for (int64_t m = 0; m < p->M; m++)
            for (int c = 0; c < here; c++) {
                int64_t i = m * p->ldc + n + c;
                float sum = vf_sum(dots[m][c]);
                if (p->out == HL_BF16) ((struct hl_bf16 *)p->C)[i] = hl_bf16_from_f32(sum);
                else ((float *)p->C)[i] = p->add ? ((float *)p->C)[i] + sum : sum;
            }
    }
}

const struct hl_gemm_isa GEMM_ISA = {ROWS, COLUMNS, K_PER_WORD, DEPTH, pack, tile, few_rows};
