/* Small f32 products and softmax rows on tiles, over one vector type; attention_body.h builds both
 * passes from them. A strip is STRIP rows of a tile; a product handles one strip, so that causal
 * limits are exact to a strip. Legend: BQ query rows and BK key rows of a tile, D head size, P = D
 * rounded up to whole vectors (zero beyond D). */
#include "kernels/x86/lanes.h"

#define INLINE static inline __attribute__((always_inline))

#ifdef __AVX512F__
enum { MOST_VECTORS = 4, SUMS = 24 }; /* sums kept in registers */
#else
enum { MOST_VECTORS = 3, SUMS = 12 };
#endif
enum { STRIP = 24, BQ = 96, BK = 96, MOST_ROWS = 12 };

INLINE int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }
INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
INLINE int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* The left operand of a product: element (row, k) is at x[row * row_step + k * k_step]. */
struct left {
    const float *x;
    int64_t row_step, k_step;
};

/* c [rows, vectors * LANES] = a b, or += when add. */
INLINE void multiply_add(int rows, int vectors, int64_t depth, const float *a, int64_t row_step,
                         int64_t k_step, const float *b, int64_t ldb, float *c, int64_t ldc,
                         bool add) {
    vf sum[MOST_ROWS][MOST_VECTORS];
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) sum[r][v] = vf_zero();
    for (int64_t k = 0; k < depth; k++, a += k_step, b += ldb) {
        vf column[MOST_VECTORS];
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) column[v] = vf_load(b + v * LANES);
#pragma GCC unroll 12
        for (int r = 0; r < rows; r++) {
            vf x = vf_all(a[r * row_step]);
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++) sum[r][v] = vf_fma(x, column[v], sum[r][v]);
        }
    }
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
            float *to = c + r * ldc + v * LANES;
            vf_store(to, add ? vf_add(vf_load(to), sum[r][v]) : sum[r][v]);
        }
}

#define MULTIPLY(vectors)                                                                          \
    static void multiply_##vectors(int64_t rows, int64_t depth, struct left a, const float *b,     \
                                   int64_t ldb, float *c, int64_t ldc, bool add) {                 \
        enum { GROUP = SUMS / vectors < MOST_ROWS ? SUMS / vectors : MOST_ROWS };                  \
        for (int64_t r = 0; r < rows; r += GROUP)                                                  \
            if (a.k_step == 1)                                                                     \
                multiply_add(GROUP, vectors, depth, a.x + r * a.row_step, a.row_step, 1, b, ldb,   \
                             c + r * ldc, ldc, add);                                               \
            else                                                                                   \
                multiply_add(GROUP, vectors, depth, a.x + r, 1, a.k_step, b, ldb, c + r * ldc,     \
                             ldc, add);                                                            \
    }
MULTIPLY(1)
MULTIPLY(2)
MULTIPLY(3)
#ifdef __AVX512F__
MULTIPLY(4)
#endif
#undef MULTIPLY

/* c = a b or c += a b for at most STRIP rows (computed up to whole groups: c and a must be there up
 * to STRIP rows). k_step or row_step of a is 1. columns: whole vectors. */
static void product_strip(int64_t rows, int64_t columns, int64_t depth, struct left a,
                          const float *b, int64_t ldb, float *c, int64_t ldc, bool add) {
    int64_t left = columns / LANES;
    while (left > 0) {
        int64_t take = left <= MOST_VECTORS       ? left
                       : left % MOST_VECTORS == 1 ? MOST_VECTORS - 1
                                                  : MOST_VECTORS;
        switch (take) {
        case 1: multiply_1(rows, depth, a, b, ldb, c, ldc, add); break;
        case 2: multiply_2(rows, depth, a, b, ldb, c, ldc, add); break;
        case 3: multiply_3(rows, depth, a, b, ldb, c, ldc, add); break;
#ifdef __AVX512F__
        case 4: multiply_4(rows, depth, a, b, ldb, c, ldc, add); break;
#endif
        default: break;
        }
        left -= take;
        b += take * LANES;
        c += take * LANES;
    }
}

/* One row of scores s[n] joins the running softmax of that row: s becomes exp(s - top) with 0 up to
 * `columns`. Returns the factor by which what was summed before must be multiplied. */
INLINE float softmax_join(int64_t n, int64_t columns, float *s, float *top, float *sum) {
    vf most = vf_all(-__FLT_MAX__);
    int64_t whole = n / LANES * LANES;
    for (int64_t j = 0; j < whole; j += LANES) most = vf_max(vf_load(s + j), most);
    if (whole < n) most = vf_max(vf_fill_after(vf_load(s + whole), n - whole, -__FLT_MAX__), most);
    float old = *top, now = vf_top(most);
    if (!(now > old)) now = old;
    vf shift = vf_all(now), total = vf_zero();
    for (int64_t j = 0; j < whole; j += LANES) {
        vf e = vf_exp(vf_sub(vf_load(s + j), shift));
        vf_store(s + j, e);
        total = vf_add(total, e);
    }
    for (int64_t j = whole; j < columns; j += LANES) {
        vf e = vf_zero();
        if (j < n) e = vf_fill_after(vf_exp(vf_sub(vf_load(s + j), shift)), n - j, 0);
        vf_store(s + j, e);
        total = vf_add(total, e);
    }
    float factor = old == now ? 1.0F : expf(old - now);
    *sum = *sum * factor + vf_sum(total);
    *top = now;
    return factor;
}

/* p = exp(s - lse) for n columns, 0 from there up to `columns`. */
INLINE void softmax_again(int64_t n, int64_t columns, float *s, float lse) {
    vf shift = vf_all(lse);
    int64_t whole = n / LANES * LANES;
    for (int64_t j = 0; j < whole; j += LANES)
        vf_store(s + j, vf_exp(vf_sub(vf_load(s + j), shift)));
    for (int64_t j = whole; j < columns; j += LANES)
        vf_store(s + j, j < n ? vf_fill_after(vf_exp(vf_sub(vf_load(s + j), shift)), n - j, 0)
                              : vf_zero());
}
