/* What acco, dpu and wp share: the exchange of a gradient goes on while the next one is computed.
 *
 * A gradient that is complete is moved out of the way (`pending`, X); micro-batches go on adding to
 * the engine's (Y), from zero. Meanwhile X is reduce-scattered (it is only read), norm and tokens
 * are shared, every rank updates its slices (the optimizer's state lies in slices, as in zero1),
 * and the new weights are gathered into `next`, while compute still reads the old ones. At a
 * hand-over `next` becomes what compute reads.
 *
 * An exchange commits (master and optimizer state move on) or is a trial (a pure function of both,
 * written to `next` and nowhere else). */
#ifndef HALLEY_STRATEGIES_OVERLAPPED_H
#define HALLEY_STRATEGIES_OVERLAPPED_H

#include "halley/strategy.h"

enum hl_overlap_rule {
    HL_OVERLAP_ACCO, /* a trial with the first half of a batch, a commit with both */
    HL_OVERLAP_DPU,  /* the update lags one step behind */
    HL_OVERLAP_WP,   /* the same, and compute reads a guess of the next weights */
};

/* As resolved from the plug-in's own options. */
struct hl_overlap_options {
    enum hl_overlap_rule rule;
    int64_t micro_batches;   /* of a round, at least */
    bool exact;              /* and not more: ranks wait for the exchange instead */
    int64_t warmup_steps;    /* that are synchronous */
    double trial_rate_scale; /* on the trial's learning rate */
};

struct hl_strategy_need hl_overlap_cost(const struct hl_strategy_env *env,
                                        enum hl_overlap_rule rule);
enum hl_status hl_overlap_init(const struct hl_strategy_env *env,
                               const struct hl_overlap_options *options, void **state_out,
                               struct hl_diag *diag) HL_MUST_CHECK;
void hl_overlap_fini(void *state);

/* The own options of methods whose updates lag a step, their row, and init from them. */
struct hl_lag_options {
    int64_t warmup_steps;
};
#define HL_LAG_ROW(others)                                                                         \
    {                                                                                              \
        .name = "warmup_steps", .kind = HL_OPT_I64,                                                \
        .offset = offsetof(struct hl_lag_options, warmup_steps), .initial = "40", .least = 0,      \
        .most = 1e15, .unit = "steps", .aliases = others, .section = "strategy",                   \
        .help = "synchronous steps at the start"                                                   \
    }
enum hl_status hl_overlap_init_lag(const struct hl_strategy_env *env, enum hl_overlap_rule rule,
                                   void **state_out, struct hl_diag *diag) HL_MUST_CHECK;

/* Slots. */
enum hl_status hl_overlap_start(void *state, struct hl_diag *diag);
enum hl_status hl_overlap_step_begin(void *state, const struct hl_step *step, struct hl_diag *diag);
enum hl_status hl_overlap_between_blocks(void *state, int block, bool backward,
                                         struct hl_diag *diag);
enum hl_status hl_overlap_micro_end(void *state, int micro, int64_t n_supervised,
                                    enum hl_micro_answer *answer, struct hl_diag *diag);
enum hl_status hl_overlap_step_end(void *state, const struct hl_step *step,
                                   struct hl_step_result *out, struct hl_diag *diag);
enum hl_status hl_overlap_poll(void *state, struct hl_diag *diag);
int hl_overlap_saved(void *state, struct hl_saved_state *out, int capacity);
void hl_overlap_view(void *state, bool on);                               /* wp */
int hl_overlap_metrics(void *state, struct hl_metric *out, int capacity); /* acco */

#define HL_OVERLAP_SLOTS                                                                           \
    .caps = HL_CAP_ROUNDS, .fini = hl_overlap_fini, .step_begin = hl_overlap_step_begin,           \
    .block_exit = hl_overlap_between_blocks, .micro_end = hl_overlap_micro_end,                    \
    .step_end = hl_overlap_step_end, .poll = hl_overlap_poll, .saved = hl_overlap_saved

#endif
