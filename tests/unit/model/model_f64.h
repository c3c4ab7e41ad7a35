/* A small model written a second time: forward only, in f64, as plainly as its equations (sources:
 * halley/model.h). It shares with the library the table of tensors and nothing else. Sizes are
 * fixed, so that everything lies on the stack.
 *
 * Legend: N rows of the packed documents, C hidden, H heads, K key/value heads, D head size, F
 * feed-forward, L layers. */
#ifndef HALLEY_TESTS_MODEL_F64_H
#define HALLEY_TESTS_MODEL_F64_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "halley/data.h"
#include "halley/model.h"

enum { N = 23, VOCAB = 37, F = 40, L = 2, HEAD = L + 1 };
enum { WIDEST = 48, MOST = 1 << 14 }; /* room: elements of a row, and of a whole model */

struct reference {
    const struct hl_model *model;
    const struct hl_batch *batch;
    double p[MOST];
    double entering[HEAD + 1][N * WIDEST]; /* the residual stream [N, C]; [0] is not used */
};

/* NULL: the block has no such tensor. */
static const double *weight(const struct reference *r, int block, const char *suffix) {
    for (int i = 0; i < r->model->layout.n_tensors; i++) {
        const struct hl_tensor *t = &r->model->layout.tensors[i];
        size_t length = strlen(t->name), n = strlen(suffix);
        if (t->block == block && length >= n && !strcmp(t->name + length - n, suffix))
            return r->p + t->offset;
    }
    return NULL;
}

/* y [N, O] = x [N, I] w^T + b */
static void linear(int64_t I, int64_t O, const double *x, const double *w, const double *b,
                   double *y) {
    for (int64_t n = 0; n < N; n++)
        for (int64_t o = 0; o < O; o++) {
            double sum = b ? b[o] : 0;
            for (int64_t i = 0; i < I; i++) sum += x[n * I + i] * w[o * I + i];
            y[n * O + o] = sum;
        }
}

static void add(int64_t n, const double *x, double *sum) {
    for (int64_t i = 0; i < n; i++) sum[i] += x[i];
}

static void layer_norm(int64_t C, double eps, const double *x, const double *w, const double *b,
                       double *y) {
    for (int64_t n = 0; n < N; n++, x += C, y += C) {
        double mean = 0, variance = 0;
        for (int64_t c = 0; c < C; c++) mean += x[c] / (double)C;
        for (int64_t c = 0; c < C; c++) variance += (x[c] - mean) * (x[c] - mean) / (double)C;
        double deviation = sqrt(variance + eps);
        for (int64_t c = 0; c < C; c++) y[c] = (x[c] - mean) / deviation * w[c] + b[c];
    }
}

/* y may be x. */
static void rms_norm(int64_t rows, int64_t C, double eps, const double *x, const double *w,
                     double *y) {
    for (int64_t n = 0; n < rows; n++, x += C, y += C) {
        double square = 0;
        for (int64_t c = 0; c < C; c++) square += x[c] * x[c] / (double)C;
        double root = sqrt(square + eps);
        for (int64_t c = 0; c < C; c++) y[c] = x[c] / root * w[c];
    }
}

static void rotate(const struct reference *r, int64_t heads, double *x) {
    int64_t D = r->model->config.head_dim, half = D / 2;
    for (int64_t n = 0; n < N; n++)
        for (int64_t j = 0; j < half; j++) {
            double angle = r->batch->position_N[n] *
                           pow(r->model->config.rope_theta, -2 * (double)j / (double)D);
            double c = cos(angle), s = sin(angle);
            for (int64_t h = 0; h < heads; h++) {
                double *a = x + (n * heads + h) * D + j, was = *a;
                *a = c * was - s * a[half];
                a[half] = c * a[half] + s * was;
            }
        }
}

/* One query row of one head looks at n rows of keys and values, `stride` apart; its own is last. */
static void attend(int64_t n, int64_t stride, int64_t D, const double *q, const double *k,
                   const double *v, double *y) {
    double total = 0;
    for (int64_t d = 0; d < D; d++) y[d] = 0;
    for (int64_t m = 0; m < n; m++) {
        double score = 0;
        for (int64_t d = 0; d < D; d++) score += q[d] * k[m * stride + d];
        double p = exp(score / sqrt((double)D)); /* scores are small: no maximum is needed */
        total += p;
        for (int64_t d = 0; d < D; d++) y[d] += p * v[m * stride + d];
    }
    for (int64_t d = 0; d < D; d++) y[d] /= total;
}

static void attention(const struct reference *r, const double *q, const double *k, const double *v,
                      double *y) {
    const struct hl_model_config *c = &r->model->config;
    int64_t H = c->num_attention_heads, K = c->num_key_value_heads, D = c->head_dim;
    for (int64_t s = 0; s < r->batch->n_sequences; s++)
        for (int64_t first = r->batch->offsets[s], n = first; n < r->batch->offsets[s + 1]; n++)
            for (int64_t h = 0; h < H; h++) {
                int64_t at = first * K * D + h / (H / K) * D, own = (n * H + h) * D;
                attend(n - first + 1, K * D, D, q + own, k + at, v + at, y + own);
            }
}

static double gelu(double x) {
    return x / 2 * (1 + tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x)));
}
static double silu(double x) { return x / (1 + exp(-x)); }

static void gpt2_layer(const struct reference *r, int block, double *x) {
    int64_t C = r->model->config.hidden_size;
    double y[N * WIDEST], qkv[3][N * WIDEST], up[N * F], eps = r->model->config.norm_epsilon;
    layer_norm(C, eps, x, weight(r, block, "ln_1.weight"), weight(r, block, "ln_1.bias"), y);
    for (int64_t i = 0; i < 3; i++)
        linear(C, C, y, weight(r, block, "attn.c_attn.weight") + i * C * C,
               weight(r, block, "attn.c_attn.bias") + i * C, qkv[i]);
    attention(r, qkv[0], qkv[1], qkv[2], y);
    linear(C, C, y, weight(r, block, "attn.c_proj.weight"), weight(r, block, "attn.c_proj.bias"),
           qkv[0]);
    add(N * C, qkv[0], x);
    layer_norm(C, eps, x, weight(r, block, "ln_2.weight"), weight(r, block, "ln_2.bias"), y);
    linear(C, F, y, weight(r, block, "mlp.c_fc.weight"), weight(r, block, "mlp.c_fc.bias"), up);
    for (int64_t i = 0; i < N * F; i++) up[i] = gelu(up[i]);
    linear(F, C, up, weight(r, block, "mlp.c_proj.weight"), weight(r, block, "mlp.c_proj.bias"), y);
    add(N * C, y, x);
}

static void llama_layer(const struct reference *r, int block, double *x) {
    const struct hl_model_config *c = &r->model->config;
    int64_t C = c->hidden_size, H = c->num_attention_heads, K = c->num_key_value_heads;
    int64_t D = c->head_dim;
    double y[N * WIDEST], q[N * WIDEST], k[N * WIDEST], v[N * WIDEST], gate[N * F], up[N * F];
    rms_norm(N, C, c->norm_epsilon, x, weight(r, block, "input_layernorm.weight"), y);
    linear(C, H * D, y, weight(r, block, "q_proj.weight"), weight(r, block, "q_proj.bias"), q);
    linear(C, K * D, y, weight(r, block, "k_proj.weight"), weight(r, block, "k_proj.bias"), k);
    linear(C, K * D, y, weight(r, block, "v_proj.weight"), weight(r, block, "v_proj.bias"), v);
    if (c->qk_norm) {
        rms_norm(N * H, D, c->norm_epsilon, q, weight(r, block, "q_norm.weight"), q);
        rms_norm(N * K, D, c->norm_epsilon, k, weight(r, block, "k_norm.weight"), k);
    }
    rotate(r, H, q);
    rotate(r, K, k);
    attention(r, q, k, v, y);
    linear(H * D, C, y, weight(r, block, "o_proj.weight"), NULL, q);
    add(N * C, q, x);
    rms_norm(N, C, c->norm_epsilon, x, weight(r, block, "post_attention_layernorm.weight"), y);
    linear(C, F, y, weight(r, block, "gate_proj.weight"), NULL, gate);
    linear(C, F, y, weight(r, block, "up_proj.weight"), NULL, up);
    for (int64_t i = 0; i < N * F; i++) up[i] *= silu(gate[i]);
    linear(F, C, up, weight(r, block, "down_proj.weight"), NULL, y);
    add(N * C, y, x);
}

static const double *vocabulary(const struct reference *r) {
    bool gpt2 = r->model->config.family == HL_FAMILY_GPT2;
    return weight(r, 0, gpt2 ? "wte.weight" : "embed_tokens.weight");
}

static void embed(const struct reference *r, double *x) {
    int64_t C = r->model->config.hidden_size;
    const double *wte = vocabulary(r), *wpe = weight(r, 0, "wpe.weight");
    for (int64_t n = 0; n < N; n++)
        for (int64_t c = 0; c < C; c++)
            x[n * C + c] = wte[r->batch->token_N[n] * C + c] +
                           (wpe ? wpe[r->batch->position_N[n] * C + c] : 0);
}

/* The sum of -log p over supervised rows. */
static double head(const struct reference *r, const double *x) {
    const struct hl_model_config *c = &r->model->config;
    const double *untied = weight(r, HEAD, "lm_head.weight");
    double y[N * WIDEST], logits[N * VOCAB], loss = 0;
    if (c->family == HL_FAMILY_GPT2)
        layer_norm(c->hidden_size, c->norm_epsilon, x, weight(r, HEAD, "ln_f.weight"),
                   weight(r, HEAD, "ln_f.bias"), y);
    else rms_norm(N, c->hidden_size, c->norm_epsilon, x, weight(r, HEAD, "norm.weight"), y);
    linear(c->hidden_size, VOCAB, y, untied ? untied : vocabulary(r), NULL, logits);
    for (int64_t n = 0; n < N; n++) {
        double total = 0;
        for (int64_t i = 0; i < VOCAB; i++) total += exp(logits[n * VOCAB + i]);
        int32_t target = r->batch->target_N[n];
        if (target >= 0) loss += log(total) - logits[n * VOCAB + target];
    }
    return loss;
}

/* What leaves a block that is not the head; x holds what entered it. */
static void forward(const struct reference *r, int block, double *x) {
    if (!block) embed(r, x);
    else (r->model->config.family == HL_FAMILY_GPT2 ? gpt2_layer : llama_layer)(r, block, x);
}

/* From the stream that enters `block` to the loss. */
static double loss_from(const struct reference *r, int block) {
    double x[N * WIDEST];
    memcpy(x, r->entering[block], sizeof x);
    for (; block < HEAD; block++) forward(r, block, x);
    return head(r, x);
}

#endif
