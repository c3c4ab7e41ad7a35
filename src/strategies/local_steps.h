/* What diloco, streaming_diloco and local_sgd share: ranks train on their own rows, each with its
 * own optimizer state, and now and then the OUTER weights, which are the same on all ranks, take a
 * step against the mean of what the ranks changed.
 *
 * Legend: M ranks, H steps between exchanges of a fragment, tau steps between the start of its
 * exchange and its use, Delta_i = outer - inner_i a rank's pseudo-gradient.
 *
 *     sum    = Delta_0 + ... + Delta_(M-1)                      rank order, f32; each as it is,
 *                                                               in bf16, or decoded from codes
 *     outer  = OuterOpt(outer, sum / M)                         tau steps later
 *     inner  = alpha inner + (1 - alpha) outer                  alpha 0: a copy; 1: untouched
 *     inner  = outer + (inner - inner when the exchange began)  instead, where that is carried over
 *
 * Off view the engine's master is inner and `other` is outer; in view they have changed places.
 *
 * An outer step has two phases: when all of a rank's sums have come it says so, and only when all
 * ranks have said so do they take it. Afterwards they compare hashes of the outer weights.
 * Papers: Douillard et al., arXiv:2311.08105 and arXiv:2501.18512; Stich, arXiv:1805.09767. */
#ifndef HALLEY_STRATEGIES_LOCAL_STEPS_H
#define HALLEY_STRATEGIES_LOCAL_STEPS_H

#include "halley/codec.h"
#include "halley/collective.h"
#include "strategies/own_step.h"

/* A method, as its options have it. */
struct hl_local_plan {
    int n_fragments;                  /* block b is of fragment b mod n_fragments */
    int64_t every;                    /* H */
    int64_t delay;                    /* tau < H */
    double alpha;                     /* 0 to 1 */
    bool carry;                       /* instead of alpha */
    enum hl_dtype wire;               /* of pseudo-gradients, when they are summed on the way */
    const struct hl_codec *codec;     /* NULL; else ranks get each other's codes and add them up */
    const struct hl_optimizer *outer; /* NULL: the mean itself, no state */
    struct hl_optimizer_options outer_options;
    double outer_lr;
};

/* Own options of a method with an outer optimizer, and their rows (offsets count from the start of
 * the struct). */
struct hl_outer_options {
    char *optimizer;
    double lr, momentum;
    bool nesterov;
};
#define HL_OUTER_ROWS(type, member, lr_text)                                                       \
    {.name = "outer_optimizer",                                                                    \
     .kind = HL_OPT_STRING,                                                                        \
     .offset = offsetof(type, member.optimizer),                                                   \
     .initial = "sgd",                                                                             \
     .section = "strategy",                                                                        \
     .help = "optimizer of the outer step: any that --optim takes"},                               \
        {.name = "outer_lr",                                                                       \
         .kind = HL_OPT_F64,                                                                       \
         .offset = offsetof(type, member.lr),                                                      \
         .initial = lr_text,                                                                       \
         .least = 0,                                                                               \
         .most = 10,                                                                               \
         .section = "strategy",                                                                    \
         .help = "learning rate of the outer step"},                                               \
        {.name = "outer_momentum",                                                                 \
         .kind = HL_OPT_F64,                                                                       \
         .offset = offsetof(type, member.momentum),                                                \
         .initial = "0.9",                                                                         \
         .least = 0,                                                                               \
         .most = 0.999999,                                                                         \
         .section = "strategy",                                                                    \
         .help = "momentum of an outer sgd; 0 = none"},                                            \
    {                                                                                              \
        .name = "outer_nesterov", .kind = HL_OPT_BOOL, .offset = offsetof(type, member.nesterov),  \
        .initial = "true", .section = "strategy",                                                  \
        .help = "an outer sgd with momentum looks ahead along it"                                  \
    }

/* Into a plan; what the options do not say (betas and the like) is as for the inner optimizer, but
 * without weight decay. strategy: its name, for messages. errors HL_E_USER: no such optimizer */
enum hl_status hl_local_outer(const struct hl_strategy_env *env, const char *strategy,
                              const struct hl_outer_options *options, struct hl_local_plan *out,
                              struct hl_diag *diag) HL_MUST_CHECK;

struct hl_strategy_need hl_local_cost(const struct hl_strategy_env *env,
                                      const struct hl_local_plan *plan);
enum hl_status hl_local_init(const struct hl_strategy_env *env, const struct hl_local_plan *plan,
                             void **state_out, struct hl_diag *diag) HL_MUST_CHECK;
void hl_local_fini(void *state);

/* Slots. */
enum hl_status hl_local_start(void *state, struct hl_diag *diag);
enum hl_status hl_local_block_exit(void *state, int block, bool backward, struct hl_diag *diag);
enum hl_status hl_local_grad_ready(void *state, int block, bool last_micro, struct hl_diag *diag);
enum hl_status hl_local_step_end(void *state, const struct hl_step *step,
                                 struct hl_step_result *out, struct hl_diag *diag);
bool hl_local_sync_due(void *state, int64_t step);
enum hl_status hl_local_sync(void *state, struct hl_diag *diag);
enum hl_status hl_local_poll(void *state, struct hl_diag *diag);
enum hl_status hl_local_drain(void *state, struct hl_diag *diag);
int hl_local_saved(void *state, struct hl_saved_state *out, int capacity);
void hl_local_view(void *state, bool on);
int hl_local_metrics(void *state, struct hl_metric *out, int capacity);

#define HL_LOCAL_SLOTS                                                                             \
    .caps = HL_CAP_DIVERGENT, .fini = hl_local_fini, .start = hl_local_start,                      \
    .block_exit = hl_local_block_exit, .grad_ready = hl_local_grad_ready,                          \
    .step_end = hl_local_step_end, .sync_due = hl_local_sync_due, .sync = hl_local_sync,           \
    .poll = hl_local_poll, .drain = hl_local_drain, .saved = hl_local_saved,                       \
    .view = hl_local_view, .metrics = hl_local_metrics

/* check, cost and init of a method from
 * enum hl_status plan_of(const struct hl_strategy_env *env, struct hl_local_plan *out,
 *                        struct hl_diag *diag) */
#define HL_LOCAL_LIFE(plan_of)                                                                     \
    static enum hl_status check(const struct hl_strategy_env *env, struct hl_diag *diag) {         \
        struct hl_local_plan plan;                                                                 \
        return plan_of(env, &plan, diag);                                                          \
    }                                                                                              \
    static struct hl_strategy_need cost(const struct hl_strategy_env *env) {                       \
        struct hl_local_plan plan;                                                                 \
        (void)!plan_of(env, &plan, NULL);                                                          \
        return hl_local_cost(env, &plan);                                                          \
    }                                                                                              \
    static enum hl_status init(const struct hl_strategy_env *env, void **state_out,                \
                               struct hl_diag *diag) {                                             \
        struct hl_local_plan plan;                                                                 \
        enum hl_status status = plan_of(env, &plan, diag);                                         \
        return status == HL_OK ? hl_local_init(env, &plan, state_out, diag) : status;              \
    }

#endif
