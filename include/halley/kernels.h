/* The table of maths. Reference kernels (src/kernels/ref, plain C) are the specification and fill
 * the table; each instruction set overwrites what it does better. All are pure functions of their
 * arguments.
 *
 * Legend: N rows (tokens of the ragged batch), C channels, H query heads, K key/value heads, D head
 * size, E = (H + 2K) * D width of a packed q,k,v row, F feed-forward width, V vocabulary. T is the
 * compute type of the table: float, or bf16 (struct hl_bf16). `void *` arguments are arrays of T;
 * `float *` arguments are f32 in both tables. Arrays need only their type's alignment. Outputs do
 * not overlap inputs unless said.
 *
 * Threads: every kernel may use the calling thread's OpenMP team. Each result has the same bits for
 * every team size: reductions over rows go through partial sums over fixed chunks of rows, added in
 * order; never through a team-sized split. Accumulating outputs (marked +=) take `bool add`: false
 * overwrites, true adds to what is there. NaN and infinity in inputs propagate; nothing traps. */
#ifndef HALLEY_KERNELS_H
#define HALLEY_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "halley/mem.h"
#include "halley/status.h"

struct hl_bf16 {
    uint16_t bits;
};

enum hl_dtype { HL_F32 = 0, HL_BF16 = 1 };
static inline size_t hl_dtype_bytes(enum hl_dtype t) { return t == HL_F32 ? 4 : 2; }

static inline float hl_bf16_to_f32(struct hl_bf16 x) {
    union {
        uint32_t u;
        float f;
    } v = {.u = (uint32_t)x.bits << 16};
    return v.f;
}
/* Round to nearest, ties to even; NaN stays NaN (quiet). */
static inline struct hl_bf16 hl_bf16_from_f32(float x) {
    union {
        float f;
        uint32_t u;
    } v = {.f = x};
    if ((v.u & 0x7fffffffu) > 0x7f800000u) return (struct hl_bf16){(uint16_t)((v.u >> 16) | 0x40u)};
    return (struct hl_bf16){(uint16_t)((v.u + 0x7fffu + ((v.u >> 16) & 1u)) >> 16)};
}

/* Each includes those before it; the last differs from AVX-512 in products of bf16 alone. */
enum hl_isa { HL_ISA_REF, HL_ISA_AVX2, HL_ISA_AVX512, HL_ISA_AVX512BF16 };

/* Rows that are summed into one partial by reductions over N: part of the numerics, not a tuning
 * knob. */
enum { HL_ROW_CHUNK = 64 };

/* Sequences of a ragged batch: sequence s holds rows offsets[s] .. offsets[s+1]-1. Attention never
 * crosses them. */
struct hl_attention {
    int64_t n_sequences;
    const int64_t *offsets;                /* [n_sequences + 1], ascending */
    int64_t n_heads, n_kv_heads, head_dim; /* n_heads is a multiple of n_kv_heads */
    float scale;                           /* usually 1/sqrt(D) */
};

/* The updates' hyper-parameters. f64, because 1 - beta and products of them are formed in f64 and
 * rounded once inside (1 - 0.999f is wrong by 1.3e-5). grad_scale: every gradient is multiplied by
 * it first (1/n_tokens and clipping).
 *
 * AdamW, as torch.optim.AdamW:  m += (1-beta1) (g - m);  v += (1-beta2) (g g - v);
 *   master -= lr weight_decay master + (lr correction1) m / (sqrt(v) sqrt(correction2) + epsilon)
 */
struct hl_adamw {
    double lr, beta1, beta2, epsilon, weight_decay;
    double correction1, correction2; /* 1/(1-beta1^t), 1/(1-beta2^t), t = 1 for the first step */
    float grad_scale;
};
/* SGD, as torch.optim.SGD (decay is added to the gradient):  g += weight_decay master;  buffer =
 * momentum buffer + g; master -= lr (nesterov ? g + momentum buffer : buffer).   first: buffer = g.
 * No buffer (NULL): master -= lr g */
struct hl_sgd {
    float lr, momentum, weight_decay, grad_scale;
    bool nesterov, first;
};
/* Lion (arXiv:2302.06675, algorithm 2):  master -= lr weight_decay master + lr sign(m + (1-beta1)
 * (g - m)); m += (1-beta2) (g - m) */
struct hl_lion {
    double lr, beta1, beta2, weight_decay;
    float grad_scale;
};

struct hl_kernels {
    enum hl_isa isa;
    enum hl_dtype dtype; /* T */

    /* ---- norms. x is the f32 residual stream ---- */
    /* s = x + a (a NULL: s = x, and sum_NC may be NULL), y = (s - mean) * rstd * w + b.  bias_C (T,
     * may be NULL) is added to a. sum_NC may be x_NC itself. mean/rstd f32 [N]. Variance is biased
     * (divide by C). */
    void (*layernorm_fwd)(int64_t N, int64_t C, const float *x_NC, const void *a_NC,
                          const void *a_bias_C, float *sum_NC, const void *w_C, const void *b_C,
                          float eps, void *y_NC, float *mean_N, float *rstd_N);
    /* y again from saved mean/rstd: same bits as forward gave. */
    void (*layernorm_again)(int64_t N, int64_t C, const float *x_NC, const void *w_C,
                            const void *b_C, const float *mean_N, const float *rstd_N, void *y_NC);
    /* dx_NC += (f32, always adds), dw_C, db_C +=. scratch: norm_scratch(N, C) floats. */
    void (*layernorm_bwd)(int64_t N, int64_t C, const void *dy_NC, const float *x_NC,
                          const void *w_C, const float *mean_N, const float *rstd_N, float *dx_NC,
                          float *dw_C, float *db_C, bool add, float *scratch);
    /* RMSNorm: y = s * rstd * w, rstd = 1/sqrt(mean(s^2) + eps). Otherwise as above. */
    void (*rmsnorm_fwd)(int64_t N, int64_t C, const float *x_NC, const void *a_NC,
                        const void *a_bias_C, float *sum_NC, const void *w_C, float eps, void *y_NC,
                        float *rstd_N);
    void (*rmsnorm_again)(int64_t N, int64_t C, const float *x_NC, const void *w_C,
                          const float *rstd_N, void *y_NC);
    void (*rmsnorm_bwd)(int64_t N, int64_t C, const void *dy_NC, const float *x_NC, const void *w_C,
                        const float *rstd_N, float *dx_NC, float *dw_C, bool add, float *scratch);
    /* sum = x + a + bias (T, may be NULL), where no norm follows at once. sum_NC may be x_NC. */
    void (*residual_add)(int64_t N, int64_t C, const float *x_NC, const void *a_NC,
                         const void *bias_C, float *sum_NC);

    /* ---- elementwise ---- */
    void (*bias_add)(int64_t N, int64_t C, void *x_NC, const void *bias_C); /* in place */
    /* Column sums: db_C += sum over rows of dy. scratch: norm_scratch(N, C) floats. */
    void (*bias_bwd)(int64_t N, int64_t C, const void *dy_NC, float *db_C, bool add,
                     float *scratch);
    /* GELU with tanh (Hendrycks & Gimpel 2016): y = gelu(x + bias). */
    void (*gelu_fwd)(int64_t N, int64_t F, const void *x_NF, const void *bias_F, void *y_NF);
    /* dx = dy * gelu'(x + bias) into dy_dx_NF (in place of dy); y again into y_NF (NULL: not
     * wanted). */
    void (*gelu_bwd)(int64_t N, int64_t F, const void *x_NF, const void *bias_F, void *dy_dx_NF,
                     void *y_NF);
    /* SwiGLU (Shazeer 2020): gu_N2F holds gate in columns 0..F-1 and up in F..2F-1; y = silu(gate)
     * * up. */
    void (*swiglu_fwd)(int64_t N, int64_t F, const void *gu_N2F, void *y_NF);
    /* dgu_N2F from dy_NF; y again into y_NF (NULL: not wanted; may be dy_NF itself). */
    void (*swiglu_bwd)(int64_t N, int64_t F, const void *gu_N2F, const void *dy_NF, void *dgu_N2F,
                       void *y_NF);
    /* Rotary embedding, halves split as in Hugging Face's Llama, in place on the q and k part of
     * packed rows. cos/sin f32 [max_position, D/2]; positions int32 [N]; inverse: rotate back
     * (backward pass). */
    void (*rope)(int64_t N, int64_t H, int64_t K, int64_t D, void *qkv_NE,
                 const int32_t *position_N, const float *cos_PD, const float *sin_PD, bool inverse);
    /* Per-head RMSNorm of q and k (Qwen3), x from in_NE to the q,k part of out_NE (v is copied).
     * wq_D, wk_D. rstd f32 [N, H+K]. */
    void (*headnorm_fwd)(int64_t N, int64_t H, int64_t K, int64_t D, const void *in_NE,
                         const void *wq_D, const void *wk_D, float eps, void *out_NE,
                         float *rstd_NH);
    /* dqkv_NE in place: gradient of out becomes gradient of in. dwq_D, dwk_D +=. scratch:
     * norm_scratch(N, 2D) floats. */
    void (*headnorm_bwd)(int64_t N, int64_t H, int64_t K, int64_t D, const void *in_NE,
                         const void *wq_D, const void *wk_D, const float *rstd_NH, void *dqkv_NE,
                         float *dwq_D, float *dwk_D, bool add, float *scratch);

    /* ---- embedding ---- */
    /* x = wte[token] + wpe[position] (wpe NULL: none). Tokens were checked by the caller. */
    void (*embed_fwd)(int64_t N, int64_t C, const int32_t *token_N, const int32_t *position_N,
                      const void *wte_VC, const void *wpe_PC, float *x_NC);
    /* dwte[token] += dx, dwpe[position] += dx, rows in ascending order for each element. Always
     * adds. */
    void (*embed_bwd)(int64_t N, int64_t C, const float *dx_NC, const int32_t *token_N,
                      const int32_t *position_N, float *dwte_VC, float *dwpe_PC);

    /* ---- loss over a chunk of R rows ---- */
    /* Row r: logits f32 [V valid of stride ld]; target < 0: no loss, zero gradient, loss 0. loss_R
     * f32 = -log softmax[target]. When grad: replaced in place by softmax - onehot in T, row r
     * starting at the same address as before (stride ld floats); columns V..ld-1 become zero.
     * Softmax is taken over columns 0..V-1 only. */
    void (*cross_entropy)(int64_t R, int64_t V, int64_t ld, float *logits_RV,
                          const int32_t *target_R, float *loss_R, bool grad);

    /* ---- attention, causal, on packed rows; never a T x T matrix (tiled online softmax,
     * arXiv:2205.14135) ---- */
    size_t (*attention_scratch)(
        const struct hl_attention *a); /* bytes for fwd and bwd at the current team size */
    /* out_ND: [N, H*D]; lse_NH f32: log-sum-exp of each row's scaled scores. */
    void (*attention_fwd)(const struct hl_attention *a, const void *qkv_NE, void *out_ND,
                          float *lse_NH, void *scratch);
    void (*attention_bwd)(const struct hl_attention *a, const void *qkv_NE, const void *out_ND,
                          const float *lse_NH, const void *dout_ND, void *dqkv_NE, void *scratch);
    /* One new token per sequence against a cache: q_HD, cache rows [n_cached, 2KD] packed k then v;
     * out_HD. */
    void (*attention_decode)(int64_t n_cached, int64_t H, int64_t K, int64_t D, float scale,
                             const void *q_HD, const void *cache_kv, void *out_HD,
                             float *scratch_n_cached_H);

    /* ---- updates: the same bits on every instruction set (no fused multiply-add, no
     * reassociation) ---- master, m, v f32 [n]; copy_n: T copy of master for compute (NULL: none,
     * the table's T is f32) */
    void (*adamw)(int64_t n, const struct hl_adamw *p, const float *grad, float *master, float *m,
                  float *v, struct hl_bf16 *copy);
    void (*sgd)(int64_t n, const struct hl_sgd *p, const float *grad, float *master,
                float *momentum, struct hl_bf16 *copy);
    void (*lion)(int64_t n, const struct hl_lion *p, const float *grad, float *master, float *m,
                 struct hl_bf16 *copy);
    /* Sum of squares in f64: sums over fixed chunks of 65,536 elements (each in 16 fixed lanes:
     * element i goes to lane i % 16, lanes added in ascending order), chunks in ascending order.
     * The same bits on every instruction set. NaN and infinity show. */
    double (*sum_squares)(int64_t n, const float *x);
    void (*to_bf16)(int64_t n, const float *x, struct hl_bf16 *y);
    void (*from_bf16)(int64_t n, const struct hl_bf16 *x, float *y);
    void (*add)(int64_t n, const float *x, float *y); /* y += x */
    void (*scale)(int64_t n, float factor, float *x); /* x *= factor */
    /* y = parts[0] + parts[1] + ... in this order, f32: [n_parts] arrays of n elements; y may be
     * one of them. n_parts >= 1. The bf16 form rounds the sum to bf16 once more, and keeps it as
     * f32. */
    void (*sum_parts)(int64_t n, int n_parts, const float *const *parts, float *y);
    void (*sum_parts_bf16)(int64_t n, int n_parts, const struct hl_bf16 *const *parts, float *y);
};

/* Floats of scratch for norm and bias backward. */
int64_t hl_norm_scratch(int64_t N, int64_t C);

/* The best table for this processor, or the one HALLEY_ISA names (ref, avx2, avx512,
 * avx512bf16).
 * errors HL_E_USER: HALLEY_ISA is unknown or this processor lacks it. Static storage; never freed.
 */
enum hl_status hl_kernels_get(enum hl_dtype dtype, const struct hl_kernels **out,
                              struct hl_diag *diag) HL_MUST_CHECK;
enum hl_status hl_kernels_of(enum hl_isa isa, enum hl_dtype dtype, const struct hl_kernels **out,
                             struct hl_diag *diag) HL_MUST_CHECK;
const char *hl_isa_name(enum hl_isa isa);

/* ---- products ---- */
/* C [M, N] = op(A) op(B) (+ C when add).  op(A) is [M, K], op(B) is [K, N], all row-major.
 * ta: A is stored [K, M];  tb: B is stored [N, K].  lda/ldb/ldc: row strides in elements of what is
 * stored. A and B have type `in`, C has type `out`; (in, out) is (f32, f32), (bf16, bf16) or (bf16,
 * f32). Sums are kept in f32. add with out = bf16 is not offered. M, N or K 0 is allowed (K 0
 * writes zeros unless add). */
struct hl_product {
    int64_t M, N, K;
    bool ta, tb, add;
    enum hl_dtype in, out;
    const void *A, *B;
    void *C;
    int64_t lda, ldb, ldc;
};
/* One per compute thread that calls products; not shared between threads. */
struct hl_products;
enum hl_status hl_products_new(struct hl_mem *mem, struct hl_products **out,
                               struct hl_diag *diag) HL_MUST_CHECK;
void hl_products_free(struct hl_products *products);
/* errors HL_E_MEMORY; HL_E_IO when the library fails (its status is in diag). */
enum hl_status hl_product_run(struct hl_products *products, const struct hl_product *p,
                              struct hl_diag *diag) HL_MUST_CHECK;
/* "oneDNN 2.6.3 + avx512 kernels": what computes products here, for logs, doctor and the manifest.
 */
const char *hl_products_describe(void);

/* Flush-to-zero and denormals-are-zero in the calling thread and all threads of its OpenMP team. */
void hl_denormals_off(void);

#endif
