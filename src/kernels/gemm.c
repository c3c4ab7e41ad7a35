/* Our own matrix product: both operands are packed into panels that the innermost tile reads in order (Goto & van de Geijn
 * 2008, as in BLIS); bf16 is widened while packing. The team packs a block of A and B together, meets, then takes tasks (a
 * stripe of rows x a group of panels) from one list. K is never split over threads and its blocks are added in ascending
 * order, so the bits do not depend on the team. It does not vectorise anything itself: struct hl_gemm_isa does. */
#include "kernels/gemm.h"

#include <omp.h>

enum {
    BLOCK_ROWS = 1536, BLOCK_COLUMNS = 1536, /* packed at a time: 1.5 MiB each at depth 256 */
    TASK_ROWS = 192, TASK_COLUMNS = 384,
    SERIAL_BELOW = 1 << 18, /* multiplications for which a team costs more than it gives */
};

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* One packed block: rows m..m+rows-1, columns n..n+columns-1, k..k+depth-1. */
struct block {
    const struct hl_gemm_isa *isa;
    const struct hl_product *p;
    int64_t m, rows, n, columns, k, depth;
    int64_t task_rows, task_columns;
    float *a, *b, *sums; /* sums [rows, columns]: of the blocks before, when C cannot hold them */
};

static const void *at(const void *x, enum hl_dtype type, int64_t i) { return (const char *)x + i * (int64_t)hl_dtype_bytes(type); }

static void pack_a(const struct block *g, int64_t pair) {
    const struct hl_product *p = g->p;
    int64_t width = g->isa->tile_rows, line = pair * 2 * width, m = g->m + line;
    g->isa->pack(least(2 * width, g->rows - line), g->depth, at(p->A, p->in, p->ta ? g->k * p->lda + m : m * p->lda + g->k), p->lda,
                 !p->ta, p->in, width, g->a + line * g->depth);
}

static void pack_b(const struct block *g, int64_t panel) {
    const struct hl_product *p = g->p;
    int64_t width = g->isa->tile_columns, line = panel * width, n = g->n + line;
    g->isa->pack(least(width, g->columns - line), g->depth, at(p->B, p->in, p->tb ? n * p->ldb + g->k : g->k * p->ldb + n), p->ldb,
                 p->tb, p->in, width, g->b + line * g->depth);
}

static void one_tile(const struct block *g, int64_t i, int64_t j) {
    const struct hl_product *p = g->p;
    bool first = g->k == 0, last = g->k + g->depth == p->K, direct = p->out == HL_F32;
    int64_t in_c = (g->m + i) * p->ldc + g->n + j, in_sums = i * g->columns + j;
    void *c = (void *)(uintptr_t)at(p->C, p->out, in_c);
    float *so_far = direct ? c : g->sums + in_sums;
    int64_t ld = direct ? p->ldc : g->columns;
    const float *from = first && !p->add ? NULL : so_far;
    int64_t rows = least(g->isa->tile_rows, g->rows - i), columns = least(g->isa->tile_columns, g->columns - j);
    const float *a = g->a + i * g->depth, *b = g->b + j * g->depth;
    if (direct || !last) g->isa->tile(g->depth, a, b, rows, columns, from, ld, so_far, ld, HL_F32);
    else g->isa->tile(g->depth, a, b, rows, columns, from, ld, c, p->ldc, HL_BF16);
}

static void run_task(const struct block *g, int64_t task) {
    int64_t across = ceil_div(g->columns, g->task_columns);
    int64_t i0 = task / across * g->task_rows, j0 = task % across * g->task_columns;
    int64_t i1 = least(g->rows, i0 + g->task_rows), j1 = least(g->columns, j0 + g->task_columns);
    for (int64_t i = i0; i < i1; i += g->isa->tile_rows)
        for (int64_t j = j0; j < j1; j += g->isa->tile_columns) one_tile(g, i, j);
}

/* Pack, meet, multiply, meet. Called by every thread of the team. */
static void run_block(const struct block *g) {
    int64_t pairs = ceil_div(g->rows, 2 * g->isa->tile_rows), panels = ceil_div(g->columns, g->isa->tile_columns);
    int64_t tasks = ceil_div(g->rows, g->task_rows) * ceil_div(g->columns, g->task_columns);
#pragma omp for schedule(static) nowait
    for (int64_t i = 0; i < pairs; i++) pack_a(g, i);
#pragma omp for schedule(static)
    for (int64_t i = 0; i < panels; i++) pack_b(g, i);
#pragma omp for schedule(dynamic)
    for (int64_t i = 0; i < tasks; i++) run_task(g, i);
}

/* Smaller tasks while there are too few to keep the team busy to the end. Only speed depends on it. */
static void choose_tasks(struct block *g, int64_t team) {
    g->task_rows = TASK_ROWS / g->isa->tile_rows * g->isa->tile_rows;
    g->task_columns = TASK_COLUMNS / g->isa->tile_columns * g->isa->tile_columns;
    while (ceil_div(g->rows, g->task_rows) * ceil_div(g->columns, g->task_columns) < 4 * team) {
        if (g->task_columns > 2 * g->isa->tile_columns) g->task_columns = ceil_div(g->task_columns / 2, g->isa->tile_columns) * g->isa->tile_columns;
        else if (g->task_rows > 4 * g->isa->tile_rows) g->task_rows = ceil_div(g->task_rows / 2, g->isa->tile_rows) * g->isa->tile_rows;
        else break;
    }
}

static void run_all(struct block g, int64_t team) {
    const struct hl_product *p = g.p;
    for (g.n = 0; g.n < p->N; g.n += BLOCK_COLUMNS) {
        g.columns = least(BLOCK_COLUMNS, p->N - g.n);
        for (g.m = 0; g.m < p->M; g.m += BLOCK_ROWS) {
            g.rows = least(BLOCK_ROWS, p->M - g.m);
            choose_tasks(&g, team);
            for (g.k = 0; g.k < p->K; g.k += HL_GEMM_DEPTH) {
                g.depth = least(HL_GEMM_DEPTH, p->K - g.k);
                run_block(&g);
            }
        }
    }
}

enum hl_status hl_gemm_run(struct hl_gemm *gemm, const struct hl_product *p, struct hl_diag *diag) {
    int64_t depth = least(p->K, HL_GEMM_DEPTH), pair = 2 * gemm->isa->tile_rows, panel = gemm->isa->tile_columns;
    int64_t rows = ceil_div(least(p->M, BLOCK_ROWS), pair) * pair, columns = ceil_div(least(p->N, BLOCK_COLUMNS), panel) * panel;
    bool sums = p->out == HL_BF16 && p->K > depth;
    struct block g = {.isa = gemm->isa, .p = p};
    g.a = hl_scratch_get(gemm->mem, &gemm->a, (size_t)(rows * depth) * sizeof(float));
    g.b = hl_scratch_get(gemm->mem, &gemm->b, (size_t)(columns * depth) * sizeof(float));
    g.sums = hl_scratch_get(gemm->mem, &gemm->sums, sums ? (size_t)(rows * columns) * sizeof(float) : 1);
    if (!g.a || !g.b || !g.sums) return hl_fail_memory(diag, (unsigned long long)(rows + columns) * (unsigned long long)depth * 4, "product");
#pragma omp parallel if (p->M * p->N > SERIAL_BELOW / p->K)
    run_all(g, omp_get_num_threads());
    return HL_OK;
}

void hl_gemm_free(struct hl_gemm *gemm) {
    hl_free(gemm->mem, gemm->a.data);
    hl_free(gemm->mem, gemm->b.data);
    hl_free(gemm->mem, gemm->sums.data);
}
