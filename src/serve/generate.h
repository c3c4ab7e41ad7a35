/* Text from a model, one token at a time, with a key/value cache. */
#ifndef HALLEY_SERVE_GENERATE_H
#define HALLEY_SERVE_GENERATE_H

#include "halley/data.h"
#include "memory/engine.h"
#include "model/run.h"

struct hl_generate_options {
    int64_t max_new_tokens;
    double temperature; /* 0: greedy, the most likely token */
    int64_t top_k;      /* draw among the k most likely; 0: all */
    double
        top_p; /* draw among the most likely that make up this share of what top_k leaves; 1: all */
    uint64_t seed;
    bool ignore_eos;  /* go on after the end-of-text token */
    int64_t n_tokens; /* draw among the first so many, those the tokenizer has a text for; 0: all of
                         the model's */
};

struct hl_generator {
    struct hl_mem *mem;
    const struct hl_model *model;
    struct hl_engine *engine;
    struct hl_model_run *run;
    enum hl_dtype dtype;
    int64_t window; /* longest sequence: the run's max_positions, at most its max_tokens */
};

/* Continue prompt [n >= 1]. emit gets each new token and answers false to stop early. Past the
 * window the text goes on from its last half. Pure function of (weights, prompt, options). errors
 * HL_E_NUMERIC: the logits are not finite. */
enum hl_status hl_generate(const struct hl_generator *generator, const int32_t *prompt, int64_t n,
                           const struct hl_generate_options *options, int32_t eos,
                           bool (*emit)(void *context, int32_t token), void *context,
                           struct hl_diag *diag) HL_MUST_CHECK;

/* Draw from logits [n]; scratch holds n candidates. index: how many tokens were drawn before.
 * Exposed for its test. */
struct hl_candidate {
    double p;
    int32_t token;
};
int32_t hl_sample_token(const float *logits, int64_t n, const struct hl_generate_options *options,
                        uint64_t index, struct hl_candidate *scratch);

#endif
