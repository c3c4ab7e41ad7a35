/* Our own matrix product, blocked as in Goto & van de Geijn 2008: a group of columns of B is packed
 * into panels that stay in the second-level cache while all rows of A pass by. Rows of A whose
 * words a tile can take are read where they lie; others are packed (and widened) a block at a time.
 * Threads share nothing: C is cut into pieces, each packs what it needs for itself, and the team
 * meets once, at the end. Two cores that meet for every block of K lose more by waiting than by
 * packing twice, above all on a busy machine. K is never split over threads and its blocks are
 * added in ascending order, so the bits do not depend on the team. */
#include "kernels/gemm.h"

#include <omp.h>

enum {
    GROUP = 288,            /* columns packed at a time, */
    GROUP_WORDS = 110592,   /* and words: 432 KiB */
    MOST_ROWS = 1024,       /* rows of A packed at a time: 1.5 MiB */
    MOST_SUMMED = 768,      /* columns of a piece whose sums must wait in f32 */
    PAGE = 4096,            /* bytes after which addresses share sets of the first cache */
    APART = 512,            /* bytes between rows that do not: 8 rows fill PAGE */
    SERIAL_BELOW = 1 << 18, /* multiplications for which a team costs more than it gives */
};

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t ceil_div(int64_t a, int64_t b) { return a > 0 ? (a - 1) / b + 1 : 0; }
static int64_t round_up(int64_t n, int64_t unit) { return ceil_div(n, unit) * unit; }

/* How C is cut, and the sizes of one thread's buffers in floats. */
struct plan {
    const struct hl_gemm_isa *isa;
    const struct hl_product *p;
    int64_t rows, columns; /* of a piece; the last ones may be smaller */
    bool direct;           /* A is read where it lies */
    bool sums;             /* C cannot hold partial sums */
    int64_t group;         /* columns packed at a time */
    int64_t a_floats, b_floats, sums_floats;
};

/* One piece of C and the buffers of the thread that computes it. */
struct piece {
    const struct plan *plan;
    int64_t m, rows, n, columns, k, depth, words;
    float *a, *b, *sums;
};

static const void *at(const void *x, enum hl_dtype type, int64_t i) {
    return (const char *)x + i * (int64_t)hl_dtype_bytes(type);
}

/* Size of equal parts of n: as many as the team or a multiple of it, none above most, in whole
 * units. */
static int64_t share(int64_t n, int64_t most, int64_t team, int64_t unit) {
    return round_up(ceil_div(n, round_up(ceil_div(n, most), team)), unit);
}

/* Can tiles read A where it lies? Not across k, not to be widened, not half a word at the end. Nor
 * when the rows of a tile begin near one place of their pages: they would share a few sets of the
 * first cache, which then holds only some of them (two thirds of the rate). */
static bool in_place(const struct hl_gemm_isa *isa, const struct hl_product *p) {
    if (p->ta || (p->in == HL_BF16 && isa->k_per_word == 1)) return false;
    if (p->K % isa->k_per_word || p->lda % isa->k_per_word) return false;
    int64_t step = p->lda * (int64_t)hl_dtype_bytes(p->in), apart = step % PAGE;
    return step < PAGE / 2 || (apart >= APART && apart <= PAGE - APART);
}

/* Reading A twice is free when it is not packed, so then columns are shared out; otherwise the
 * longer side, because the shorter operand is the one that is packed again. */
static struct plan make_plan(const struct hl_gemm_isa *isa, const struct hl_product *p,
                             int64_t team) {
    struct plan plan = {.isa = isa, .p = p, .rows = p->M, .columns = p->N};
    plan.direct = in_place(isa, p);
    int64_t words = ceil_div(least(p->K, isa->depth), isa->k_per_word);
    plan.group = least(GROUP, GROUP_WORDS / words / isa->tile_columns * isa->tile_columns);
    plan.sums = p->out == HL_BF16 && p->K > isa->depth;
    int64_t most_rows = plan.direct && !plan.sums ? INT64_MAX : MOST_ROWS;
    int64_t most_columns = plan.sums ? MOST_SUMMED : plan.direct ? plan.group : INT64_MAX;
    bool by_columns = plan.direct || p->N >= p->M;
    int64_t units = by_columns ? ceil_div(p->N, isa->tile_columns) : ceil_div(p->M, isa->tile_rows);
    int64_t parts = least(team, units), others = ceil_div(team, parts);
    plan.columns =
        least(p->N, share(p->N, most_columns, by_columns ? parts : others, isa->tile_columns));
    plan.rows = least(p->M, share(p->M, most_rows, by_columns ? others : parts, isa->tile_rows));
    plan.a_floats =
        (plan.direct ? isa->tile_rows * 2 : round_up(plan.rows, 2 * isa->tile_rows)) * words;
    plan.b_floats = round_up(least(plan.group, plan.columns), isa->tile_columns) * words;
    plan.sums_floats = plan.sums ? round_up(plan.rows * plan.columns, 16) : 0;
    return plan;
}

/* Rows i.. of the piece, at most two panels. */
static void pack_a(const struct piece *g, int64_t i, float *to) {
    const struct hl_product *p = g->plan->p;
    int64_t width = g->plan->isa->tile_rows, m = g->m + i;
    g->plan->isa->pack(least(2 * width, g->rows - i), g->depth,
                       at(p->A, p->in, p->ta ? g->k * p->lda + m : m * p->lda + g->k), p->lda,
                       !p->ta, p->in, width, to);
}

static void pack_b(const struct piece *g, int64_t j0, int64_t columns) {
    const struct hl_product *p = g->plan->p;
    int64_t width = g->plan->isa->tile_columns;
    for (int64_t j = 0; j < columns; j += width) {
        int64_t n = g->n + j0 + j;
        g->plan->isa->pack(least(width, columns - j), g->depth,
                           at(p->B, p->in, p->tb ? n * p->ldb + g->k : g->k * p->ldb + n), p->ldb,
                           p->tb, p->in, width, g->b + j * g->words);
    }
}

static void one_tile(const struct piece *g, const void *a, int64_t lda, const float *b, int64_t i,
                     int64_t j, int64_t columns) {
    const struct hl_product *p = g->plan->p;
    const struct hl_gemm_isa *isa = g->plan->isa;
    bool first = g->k == 0, last = g->k + g->depth == p->K, in_c = p->out == HL_F32;
    void *c = (void *)(uintptr_t)at(p->C, p->out, (g->m + i) * p->ldc + g->n + j);
    float *so_far = in_c ? c : g->sums + i * g->columns + j;
    int64_t ld = in_c ? p->ldc : g->columns;
    const float *from = first && !p->add ? NULL : so_far;
    int64_t rows = least(isa->tile_rows, g->rows - i);
    if (in_c || !last) isa->tile(g->words, a, lda, b, rows, columns, from, ld, so_far, ld, HL_F32);
    else isa->tile(g->words, a, lda, b, rows, columns, from, ld, c, p->ldc, HL_BF16);
}

/* All rows of the piece against the packed columns j0..j0+columns-1. */
static void multiply_group(const struct piece *g, int64_t j0, int64_t columns) {
    const struct hl_product *p = g->plan->p;
    int64_t width = g->plan->isa->tile_columns, height = g->plan->isa->tile_rows;
    for (int64_t i = 0; i < g->rows; i += height) {
        const void *a = g->a + i * g->words;
        int64_t lda = 0;
        if (g->plan->direct && g->rows - i >= height) {
            a = at(p->A, p->in, (g->m + i) * p->lda + g->k);
            lda = p->lda / g->plan->isa->k_per_word;
        } else if (g->plan->direct) {
            pack_a(g, i, g->a);
            a = g->a;
        }
        for (int64_t j = 0; j < columns; j += width)
            one_tile(g, a, lda, g->b + j * g->words, i, j0 + j, least(width, columns - j));
    }
}

static void run_piece(struct piece g) {
    const struct hl_gemm_isa *isa = g.plan->isa;
    int64_t K = g.plan->p->K;
    for (g.k = 0; g.k < K; g.k += isa->depth) {
        g.depth = least(isa->depth, K - g.k);
        g.words = ceil_div(g.depth, isa->k_per_word);
        for (int64_t i = 0; !g.plan->direct && i < g.rows; i += 2 * isa->tile_rows)
            pack_a(&g, i, g.a + i * g.words);
        for (int64_t j = 0; j < g.columns; j += g.plan->group) {
            int64_t columns = least(g.plan->group, g.columns - j);
            pack_b(&g, j, columns);
            multiply_group(&g, j, columns);
        }
    }
}

static void run_plan(const struct plan *plan, int team, float *buffer, int64_t floats) {
    int64_t across = ceil_div(plan->p->N, plan->columns),
            pieces = ceil_div(plan->p->M, plan->rows) * across;
#pragma omp parallel for schedule(dynamic) num_threads(team) if (team > 1)
    for (int64_t i = 0; i < pieces; i++) {
        struct piece g = {
            .plan = plan, .m = i / across * plan->rows, .n = i % across * plan->columns};
        g.rows = least(plan->rows, plan->p->M - g.m);
        g.columns = least(plan->columns, plan->p->N - g.n);
        g.a = buffer + omp_get_thread_num() * floats;
        g.b = g.a + plan->a_floats;
        g.sums = g.b + plan->b_floats;
        run_piece(g);
    }
}

/* A matrix times one or a few vectors: limited by reading B once. */
static void run_few_rows(const struct hl_gemm_isa *isa, const struct hl_product *p, int team) {
    enum { UNIT = 64 };
#pragma omp parallel for schedule(static) num_threads(team) if (team > 1)
    for (int64_t n = 0; n < p->N; n += UNIT) isa->few_rows(p, n, least(UNIT, p->N - n));
}

enum hl_status hl_gemm_run(struct hl_gemm *gemm, const struct hl_product *p, struct hl_diag *diag) {
    const struct hl_gemm_isa *isa = p->in == HL_BF16 ? gemm->bf16 : gemm->f32;
    int team = p->M * p->N > SERIAL_BELOW / p->K ? omp_get_max_threads() : 1;
    if (p->M <= HL_GEMM_FEW_ROWS && p->tb && !p->ta) {
        run_few_rows(isa, p, team);
        return HL_OK;
    }
    struct plan plan = make_plan(isa, p, team);
    int64_t floats = round_up(plan.a_floats + plan.b_floats + plan.sums_floats, 16);
    size_t bytes = (size_t)floats * (size_t)team * sizeof(float);
    float *buffer = hl_scratch_get(gemm->mem, &gemm->buffer, bytes);
    if (!buffer) return hl_fail_memory(diag, bytes, "packed operands of a product");
    run_plan(&plan, team, buffer, floats);
    return HL_OK;
}

void hl_gemm_free(struct hl_gemm *gemm) { hl_free(gemm->mem, gemm->buffer.data); }
