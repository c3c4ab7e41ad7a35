/* Generation: fill the cache with the prompt, then one new row per token. See generate.h.
 * Top-k: Fan et al., arXiv:1805.04833. Top-p: Holtzman et al., arXiv:1904.09751. */
#include "serve/generate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "halley/rng.h"

/* ---- drawing a token ---- */

static int by_probability(const void *a, const void *b) {
    const struct hl_candidate *x = a, *y = b;
    if (x->p != y->p) return x->p < y->p ? 1 : -1;
    return (x->token > y->token) - (x->token < y->token);
}

static int32_t most_likely(const float *logits, int64_t n) {
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    return (int32_t)best;
}

int32_t hl_sample_token(const float *logits, int64_t n, const struct hl_generate_options *o,
                        uint64_t index, struct hl_candidate *c) {
    int32_t best = most_likely(logits, n);
    if (o->temperature <= 0) return best;
    double total = 0;
    for (int64_t i = 0; i < n; i++) {
        c[i] = (struct hl_candidate){
            exp(((double)logits[i] - (double)logits[best]) / o->temperature), (int32_t)i};
        total += c[i].p;
    }
    bool cut = (o->top_k > 0 && o->top_k < n) || o->top_p < 1;
    if (cut) {
        qsort(c, (size_t)n, sizeof *c, by_probability);
        if (o->top_k > 0 && o->top_k < n) {
            n = o->top_k;
            total = 0;
            for (int64_t i = 0; i < n; i++)
                total += c[i].p; /* top_p is a share of what top_k leaves */
        }
        double kept = 0;
        int64_t k = 0;
        while (k < n && (k == 0 || kept < o->top_p * total)) kept += c[k++].p;
        n = k;
        total = kept;
    }
    double u = hl_rng_uniform(o->seed, HL_RNG_SAMPLE, index) * total, sum = 0;
    for (int64_t i = 0; i < n; i++)
        if ((sum += c[i].p) > u) return c[i].token;
    return c[n - 1].token;
}

/* A row of logits from which a token can be drawn: none is NaN, and the largest is a number. */
static bool sound(const float *logits, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (isnan(logits[i])) return false;
    return isfinite(logits[most_likely(logits, n)]);
}

/* ---- running the model ---- */

struct session {
    const struct hl_generator *g;
    struct hl_kv_cache cache;
    int32_t *tokens, *targets, *positions; /* [window] */
    int64_t n;                             /* tokens in the window */
    struct hl_candidate *candidates;       /* [vocab] */
};

static struct hl_block_data block(const struct hl_generator *g, int b) {
    return (struct hl_block_data){.params =
                                      hl_engine_acquire(g->engine, g->model->layout.blocks[b])};
}

/* Put rows [first, n) of the window through all layers; logits of the last row. */
static enum hl_status advance(struct session *s, int64_t first, const float **logits,
                              struct hl_diag *diag) {
    const struct hl_generator *g = s->g;
    int64_t offsets[2] = {0, s->n - first};
    struct hl_batch batch = {.n_tokens = s->n - first,
                             .token_N = s->tokens + first,
                             .target_N = s->targets,
                             .position_N = s->positions + first,
                             .n_sequences = 1,
                             .offsets = offsets};
    s->cache.n = first;
    enum hl_status status = hl_model_begin(g->run, &batch, diag);
    int last = g->model->layout.n_blocks - 1;
    struct hl_block_data embedding = block(g, 0), head = block(g, last);
    for (int b = 0; b < last && status == HL_OK; b++) {
        struct hl_block_data own = block(g, b);
        status = hl_model_forward(g->run, b, &own, &embedding, &s->cache, diag);
    }
    if (status != HL_OK) return status;
    s->cache.n = s->n;
    return hl_model_logits(g->run, batch.n_tokens - 1, &head, &embedding, logits, diag);
}

static void session_free(struct session *s) {
    struct hl_mem *mem = s->g->mem;
    if (s->cache.data) hl_kv_cache_free(&s->cache);
    hl_free(mem, s->tokens);
    hl_free(mem, s->targets);
    hl_free(mem, s->positions);
    hl_free(mem, s->candidates);
}

static enum hl_status session_init(struct session *s, const struct hl_generator *g,
                                   struct hl_diag *diag) {
    *s = (struct session){.g = g};
    size_t window = (size_t)g->window, vocab = (size_t)g->model->config.vocab_size;
    s->tokens = hl_alloc(g->mem, window, sizeof *s->tokens);
    s->targets = hl_alloc(g->mem, window, sizeof *s->targets);
    s->positions = hl_alloc(g->mem, window, sizeof *s->positions);
    s->candidates = hl_alloc(g->mem, vocab, sizeof *s->candidates);
    if (!s->tokens || !s->targets || !s->positions || !s->candidates)
        return hl_fail_memory(diag, vocab * sizeof *s->candidates, "generation");
    for (size_t i = 0; i < window; i++) {
        s->targets[i] = -1;
        s->positions[i] = (int32_t)i;
    }
    return hl_kv_cache_init(g->mem, g->model, g->dtype, g->window, &s->cache, diag);
}

/* A full window goes on from its last half, counted from position 0 again. */
static void slide(struct session *s) {
    int64_t keep = s->n / 2; /* a window of one token keeps none */
    memmove(s->tokens, s->tokens + (s->n - keep), (size_t)keep * sizeof *s->tokens);
    s->n = keep;
}

enum hl_status hl_generate(const struct hl_generator *g, const int32_t *prompt, int64_t n,
                           const struct hl_generate_options *options, int32_t eos,
                           bool (*emit)(void *context, int32_t token), void *context,
                           struct hl_diag *diag) {
    struct session s;
    enum hl_status status = session_init(&s, g, diag);
    int64_t skip = n > g->window ? n - g->window : 0, vocab = g->model->config.vocab_size, done = 0;
    if (options->n_tokens > 0 && options->n_tokens < vocab) vocab = options->n_tokens;
    if (status == HL_OK) {
        s.n = n - skip;
        memcpy(s.tokens, prompt + skip, (size_t)s.n * sizeof *prompt);
    }
    for (int64_t made = 0; status == HL_OK && made < options->max_new_tokens; made++) {
        const float *logits;
        status = advance(&s, done, &logits, diag);
        if (status != HL_OK) break;
        if (!sound(logits, vocab)) {
            status = hl_fail(
                diag, HL_E_NUMERIC,
                "the model's output is not finite after %lld tokens; are the weights sound?",
                (long long)(n + made));
            break;
        }
        int32_t token = hl_sample_token(logits, vocab, options, (uint64_t)made, s.candidates);
        if (token == eos && !options->ignore_eos) break;
        if (!emit(context, token)) break;
        done = s.n;
        if (s.n == g->window) slide(&s), done = 0;
        s.tokens[s.n++] = token;
    }
    session_free(&s);
    return status;
}
