/* Everything of attention that one instruction set compiles: tasks, scratch layout, both compute
 * types. Included by attention_avx2.c and attention_avx512.c; FILL is the name of the function that
 * fills the table. */
#include <math.h>
#include <omp.h>
#include <string.h>

#include "kernels/attention.h"
#include "kernels/chunks.h"
#include "kernels/x86/attention_tiles.h"

enum { ROWS_AHEAD = 6 }; /* rows are pages apart: the processor fetches none ahead by itself */
enum {
    SUPER = 8 * BQ
}; /* query rows that share one widening of keys and values in the forward pass */

/* Query rows begin..end-1 (relative to the sequence's first row) of all heads that share key/value
 * head kv. */
struct task {
    int64_t first, kv, begin, end;
};

static int64_t n_supers(int64_t rows, int64_t super) { return rows / super + (rows % super != 0); }

static int64_t count_tasks(const struct hl_attention *a, int64_t super) {
    int64_t n = 0;
    for (int64_t s = 0; s < a->n_sequences; s++)
        n += n_supers(a->offsets[s + 1] - a->offsets[s], super);
    return n * a->n_kv_heads;
}

static struct task find_task(const struct hl_attention *a, int64_t super, int64_t index) {
    int64_t s = 0, block = index / a->n_kv_heads;
    for (;; s++) {
        int64_t here = n_supers(a->offsets[s + 1] - a->offsets[s], super);
        if (block < here) break;
        block -= here;
    }
    int64_t rows = a->offsets[s + 1] - a->offsets[s], begin = block ? block * super : 0;
    return (struct task){a->offsets[s], index % a->n_kv_heads, begin,
                         rows - begin > super ? begin + super : rows};
}

/* ---- scratch of one thread, all f32, linear in the longest sequence ---- */

struct forward_scratch {
    float *k_across;  /* tiles [D, BK] */
    float *v;         /* [T, P] */
    float *q, *out;   /* [BQ, P] */
    float *score;     /* [STRIP, BK] */
    float *top, *sum; /* [BQ] */
};

struct backward_scratch {
    float *q, *dout, *dq;           /* [T, P] of one head */
    float *dk, *dv;                 /* [T, P] summed over the heads that share them */
    float *lse, *delta;             /* [T] */
    float *k, *k_across, *v_across; /* one tile: [BK, P], [D, BK] twice */
    float *p, *dp;                  /* [BQ, BK] */
};

static float *carve(char **at, int64_t n) {
    float *x = (float *)(void *)*at;
    *at += round_up(n, 16) * (int64_t)sizeof *x;
    return x;
}

static struct forward_scratch forward_carve(const struct hl_attention *a, char **at) {
    int64_t T = round_up(hl_attention_longest(a), BK), D = a->head_dim, P = round_up(D, LANES);
    struct forward_scratch w;
    w.k_across = carve(at, T * D);
    w.v = carve(at, T * P);
    w.q = carve(at, BQ * P);
    w.out = carve(at, BQ * P);
    w.score = carve(at, STRIP * BK);
    w.top = carve(at, BQ);
    w.sum = carve(at, BQ);
    return w;
}

static struct backward_scratch backward_carve(const struct hl_attention *a, char **at) {
    int64_t T = round_up(hl_attention_longest(a), BQ), D = a->head_dim, P = round_up(D, LANES);
    struct backward_scratch w;
    float **rows[] = {&w.q, &w.dout, &w.dq, &w.dk, &w.dv};
    for (int i = 0; i < 5; i++) *rows[i] = carve(at, T * P);
    w.lse = carve(at, T);
    w.delta = carve(at, T);
    w.k = carve(at, BK * P);
    w.k_across = carve(at, D * BK);
    w.v_across = carve(at, D * BK);
    w.p = carve(at, BQ * BK);
    w.dp = carve(at, BQ * BK);
    return w;
}

static struct forward_scratch forward_layout(const struct hl_attention *a, char *at) {
    return forward_carve(a, &at);
}
static struct backward_scratch backward_layout(const struct hl_attention *a, char *at) {
    return backward_carve(a, &at);
}

static int64_t forward_bytes(const struct hl_attention *a) {
    char *at = NULL;
    (void)forward_carve(a, &at);
    return (int64_t)(uintptr_t)at;
}

static int64_t backward_bytes(const struct hl_attention *a) {
    char *at = NULL;
    (void)backward_carve(a, &at);
    return (int64_t)(uintptr_t)at;
}

static size_t scratch_bytes(const struct hl_attention *a) {
    return (size_t)larger(forward_bytes(a), backward_bytes(a)) * (size_t)omp_get_max_threads();
}

/* ---- the two passes over one pair of tiles ---- */

/* Query rows i0..i0+n-1 of one head against all keys they may see. */
static void forward_tile(const struct forward_scratch *w, int64_t D, int64_t i0, int64_t n) {
    int64_t P = round_up(D, LANES);
    memset(w->out, 0, (size_t)(BQ * P) * sizeof *w->out);
    for (int64_t i = 0; i < n; i++) w->top[i] = -__FLT_MAX__, w->sum[i] = 0;
    for (int64_t j0 = 0; j0 < i0 + n; j0 += BK)
        for (int64_t r = 0; r < n; r += STRIP) {
            int64_t rows = smaller(STRIP, n - r), keys = smaller(BK, i0 + r + rows - j0),
                    columns = round_up(keys, LANES);
            if (keys <= 0) continue;
            product_strip(rows, columns, D, (struct left){w->q + r * P, P, 1}, w->k_across + j0 * D,
                          BK, w->score, BK, false);
            for (int64_t i = 0; i < rows; i++) {
                int64_t seen = smaller(keys, i0 + r + i + 1 - j0);
                float factor = 0;
                if (seen > 0)
                    factor = softmax_join(seen, columns, w->score + i * BK, &w->top[r + i],
                                          &w->sum[r + i]);
                else memset(w->score + i * BK, 0, (size_t)columns * sizeof *w->score);
                if (seen > 0 && factor != 1)
                    for (int64_t d = 0; d < P; d += LANES)
                        vf_store(w->out + (r + i) * P + d,
                                 vf_mul(vf_load(w->out + (r + i) * P + d), vf_all(factor)));
            }
            product_strip(rows, P, keys, (struct left){w->score, BK, 1}, w->v + j0 * P, P,
                          w->out + r * P, P, true);
        }
}

/* Key rows j0..j0+keys-1 and query rows i0..i0+n-1 of one head: dk, dv (of this key tile) and dq
 * grow. */
static void backward_tile(const struct backward_scratch *w, int64_t D, int64_t j0, int64_t keys,
                          int64_t i0, int64_t n) {
    int64_t P = round_up(D, LANES);
    const float *q = w->q + i0 * P, *dout = w->dout + i0 * P;
    float *dk = w->dk + j0 * P, *dv = w->dv + j0 * P;
    for (int64_t r = 0; r < n; r += STRIP) {
        int64_t rows = smaller(STRIP, n - r), seen_most = smaller(keys, i0 + r + rows - j0),
                columns = round_up(seen_most, LANES);
        if (seen_most <= 0) continue;
        float *p = w->p + r * BK, *dp = w->dp + r * BK;
        product_strip(rows, columns, D, (struct left){q + r * P, P, 1}, w->k_across, BK, p, BK,
                      false);
        product_strip(rows, columns, D, (struct left){dout + r * P, P, 1}, w->v_across, BK, dp, BK,
                      false);
        for (int64_t i = 0; i < rows; i++) {
            int64_t seen = larger(0, smaller(keys, i0 + r + i + 1 - j0));
            softmax_again(seen, columns, p + i * BK, w->lse[i0 + r + i]);
            vf delta = vf_all(w->delta[i0 + r + i]);
            for (int64_t j = 0; j < columns; j += LANES)
                vf_store(dp + i * BK + j,
                         vf_mul(vf_load(p + i * BK + j), vf_sub(vf_load(dp + i * BK + j), delta)));
        }
        product_strip(rows, P, seen_most, (struct left){dp, BK, 1}, w->k, P, w->dq + (i0 + r) * P,
                      P, true);
    }
    for (int64_t c = 0; c < keys; c += STRIP) {
        int64_t from = larger(0, (j0 + c - i0) / STRIP * STRIP), rows = smaller(STRIP, keys - c);
        if (from >= n) break;
        product_strip(rows, P, n - from, (struct left){w->p + from * BK + c, 1, BK},
                      dout + from * P, P, dv + c * P, P, true);
        product_strip(rows, P, n - from, (struct left){w->dp + from * BK + c, 1, BK}, q + from * P,
                      P, dk + c * P, P, true);
    }
}

/* ---- both compute types ---- */

#define T float
#define NAME(x) x##_f32
#define LOAD vf_load
#define LOAD_PART vf_load_part
#define STORE vf_store
#define STORE_PART vf_store_part
#include "kernels/x86/attention_body.h"
#undef T
#undef NAME
#undef LOAD
#undef LOAD_PART
#undef STORE
#undef STORE_PART

#define T struct hl_bf16
#define NAME(x) x##_bf16
#define LOAD vf_load_bf16
#define LOAD_PART vf_load_part_bf16
#define STORE vf_store_bf16
#define STORE_PART vf_store_part_bf16
#include "kernels/x86/attention_body.h"

void FILL(struct hl_kernels *table) {
    bool f32 = table->dtype == HL_F32;
    table->attention_scratch = scratch_bytes;
    table->attention_fwd = f32 ? forward_f32 : forward_bf16;
    table->attention_bwd = f32 ? backward_f32 : backward_bf16;
    table->attention_decode = f32 ? decode_f32 : decode_bf16;
}
