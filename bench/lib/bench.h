/* What is measured, apart from who asks: `halley bench` prints a table for people, bench_worker
 * answers bench/run.py, which sets each figure beside a peer's. Every measurement is a call that
 * returns the seconds it took.
 *
 * Legend: B rows, T tokens per row, C channels, F feed-forward width, V vocabulary (padded). */
#ifndef HALLEY_BENCH_H
#define HALLEY_BENCH_H

#include "halley/halley.h"

/* ---- a whole training step, through the trainer that `halley train` uses ---- */
struct bench_step_setup {
    const char *model; /* preset */
    int64_t B, T;
    int64_t threads; /* 0: as a run would choose */
    bool bf16, recompute;
};
struct bench_step;
/* Writes a shard of random tokens to the temporary folder, opens it and removes it. The setup is
 * copied. */
enum hl_status bench_step_new(struct hl_mem *mem, const struct bench_step_setup *setup,
                              struct bench_step **out, struct hl_diag *diag) HL_MUST_CHECK;
void bench_step_free(struct bench_step *step);
/* One optimizer step. loss_out may be NULL. */
enum hl_status bench_step_run(struct bench_step *step, double *seconds_out, double *loss_out,
                              struct hl_diag *diag) HL_MUST_CHECK;
struct hl_trainer *bench_step_trainer(struct bench_step *step);

/* ---- the products of a step ---- */
enum { BENCH_MOST_PRODUCTS = 18 };
enum bench_weight {
    BENCH_WEIGHT_B,
    BENCH_WEIGHT_C
}; /* which operand is a weight or its gradient */
struct bench_product {
    char name[16];
    int64_t M, N, K;
    bool ta, tb, add, f32_out;
    int64_t times; /* in one step */
    enum bench_weight weight;
};
/* Forward and both backward products of every matrix, for N tokens, the head in chunks of R rows.
 * Returns their number. */
int bench_products_of(const struct hl_model *model, int64_t N, int64_t R,
                      struct bench_product out[BENCH_MOST_PRODUCTS]);
double bench_product_flops(const struct bench_product *p);

/* Who multiplies. */
enum bench_engine {
    BENCH_ENGINE_HALLEY,  /* hl_product_run as a run would call it */
    BENCH_ENGINE_LIBRARY, /* the library itself: dnnl_sgemm and dnnl matmul, or a CBLAS */
};
struct bench_products;
/* Operands for all products of the list. Activations lie in caches as after the operation before;
 * weights and their gradients come from arrays that are larger than the caches, as in a step. */
enum hl_status bench_products_new(struct hl_mem *mem, const struct bench_product *list, int n,
                                  enum hl_dtype dtype, struct bench_products **out,
                                  struct hl_diag *diag) HL_MUST_CHECK;
void bench_products_free(struct bench_products *products);
/* Product i of the list, `times` times. */
enum hl_status bench_products_run(struct bench_products *products, enum bench_engine engine, int i,
                                  int64_t times, double *seconds_out,
                                  struct hl_diag *diag) HL_MUST_CHECK;
/* All of them, as often as in a step. */
enum hl_status bench_products_step(struct bench_products *products, enum bench_engine engine,
                                   double *seconds_out, struct hl_diag *diag) HL_MUST_CHECK;

/* The library's products in f32 and bf16, straight through its interface.
 * errors HL_E_IO: the library refuses; HL_E_UNSUPPORTED: a CBLAS has no bf16 */
struct bench_library;
enum hl_status bench_library_new(struct hl_mem *mem, int most_products, struct bench_library **out,
                                 struct hl_diag *diag) HL_MUST_CHECK;
void bench_library_free(struct bench_library *library);
/* slot: which product of the list this is; the library prepares each once. */
enum hl_status bench_library_run(struct bench_library *library, int slot,
                                 const struct hl_product *p, struct hl_diag *diag) HL_MUST_CHECK;

/* ---- kernels ---- */
struct bench_attention;
enum hl_status bench_attention_new(struct hl_mem *mem, enum hl_dtype dtype, int64_t B, int64_t T,
                                   int64_t H, int64_t D, struct bench_attention **out,
                                   struct hl_diag *diag) HL_MUST_CHECK;
void bench_attention_free(struct bench_attention *attention);
double bench_attention_run(struct bench_attention *attention); /* forward + backward */
double bench_attention_flops(const struct bench_attention *attention);

struct bench_adamw;
enum hl_status bench_adamw_new(struct hl_mem *mem, enum hl_dtype dtype, int64_t n,
                               struct bench_adamw **out, struct hl_diag *diag) HL_MUST_CHECK;
void bench_adamw_free(struct bench_adamw *adamw);
double bench_adamw_run(struct bench_adamw *adamw);
double bench_adamw_copy(struct bench_adamw *adamw); /* a plain copy that moves as many bytes */
double bench_adamw_bytes(const struct bench_adamw *adamw);

/* n elements through a codec. errors HL_E_USER: there is no such codec */
struct bench_codec;
enum hl_status bench_codec_new(struct hl_mem *mem, const char *name, int64_t n,
                               struct bench_codec **out, struct hl_diag *diag) HL_MUST_CHECK;
void bench_codec_free(struct bench_codec *codec);
double bench_codec_encode(struct bench_codec *codec);
double bench_codec_decode(struct bench_codec *codec);
double bench_codec_feedback(struct bench_codec *codec); /* encode with error feedback */
double bench_codec_copy(struct bench_codec *codec);     /* a plain copy of the f32 array */

/* Final norm, product with the vocabulary, cross entropy and their backward, N tokens of GPT-2
 * 124M's head. */
struct bench_head;
enum hl_status bench_head_new(struct hl_mem *mem, enum hl_dtype dtype, int64_t N,
                              struct bench_head **out, struct hl_diag *diag) HL_MUST_CHECK;
void bench_head_free(struct bench_head *head);
size_t bench_head_logits_bytes(const struct bench_head *head); /* the most that ever exist */
enum hl_status bench_head_run(struct bench_head *head, double *seconds_out,
                              struct hl_diag *diag) HL_MUST_CHECK;

/* ---- helpers ---- */
double bench_now(void);
void bench_fill(void *x, enum hl_dtype dtype, int64_t n, float scale);
double bench_median(double *x, int n); /* sorts x */
/* Seconds of a plain copy by all threads. */
double bench_copy(void *to, const void *from, size_t bytes);

#endif
