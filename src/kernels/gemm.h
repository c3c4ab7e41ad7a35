/* Our own matrix product. gemm.c blocks and shares out the work; an instruction set brings packing
 * and the innermost loops. */
#ifndef HALLEY_KERNELS_GEMM_H
#define HALLEY_KERNELS_GEMM_H

#include "kernels/products.h"

enum {
    HL_GEMM_FEW_ROWS = 3 /* up to so many rows of op(A) against stored rows of B need no packing:
                            part of the numerics */
};

/* What an instruction set brings. A panel holds `width` lines (rows of op(A), columns of op(B)) as
 * [words][width]: word w of a line is one f32, or the two bf16 of k = 2 w and 2 w + 1, the second
 * of them 0 where there is none. */
struct hl_gemm_isa {
    int64_t tile_rows, tile_columns;
    int64_t k_per_word; /* 1; 2: takes bf16 only */
    int64_t depth;      /* K is summed in blocks of so many: part of the numerics */
    /* Pack `lines` lines from position 0 of src, `depth` (of k) deep, into panels of `width` lines;
     * absent lines are 0. Element (line, k) is src[line * ld + k] when along_k, else
     * src[k * ld + line]. lines <= 2 * tile_rows when width is tile_rows (one or two panels are
     * written, words * width apart), <= tile_columns when it is tile_columns. */
    void (*pack)(int64_t lines, int64_t depth, const void *src, int64_t ld, bool along_k,
                 enum hl_dtype type, int64_t width, float *panel);
    /* c [rows, columns] = a b + from, b a panel. a is a panel when lda is 0, else rows of words lda
     * apart, all tile_rows of them. rows <= tile_rows, columns <= tile_columns. from NULL: nothing
     * is added; it may be c. Each element is one chain of fused multiply-adds (of pairs) in
     * ascending k, whatever rows, columns and lda are. */
    void (*tile)(int64_t words, const void *a, int64_t lda, const float *b, int64_t rows,
                 int64_t columns, const float *from, int64_t ld_from, void *c, int64_t ldc,
                 enum hl_dtype out);
    /* Columns n..n+columns-1 of a product with tb, not ta and M <= HL_GEMM_FEW_ROWS. */
    void (*few_rows)(const struct hl_product *p, int64_t n, int64_t columns);
};

extern const struct hl_gemm_isa hl_gemm_avx2, hl_gemm_avx512, hl_gemm_avx512bf16;

/* Buffers that products need; grown on demand and kept. */
struct hl_gemm {
    struct hl_mem *mem;
    const struct hl_gemm_isa *f32, *bf16; /* who multiplies operands of this type */
    struct hl_scratch buffer;
};

/* M, N, K positive. numeric: blocks of the isa's depth are added in ascending order; same bits for
 * every team size. */
enum hl_status hl_gemm_run(struct hl_gemm *gemm, const struct hl_product *p,
                           struct hl_diag *diag) HL_MUST_CHECK;
void hl_gemm_free(struct hl_gemm *gemm);

#endif
