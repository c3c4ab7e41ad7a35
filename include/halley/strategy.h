/* A strategy listens to the loop's events and decides when, with whom and what to exchange, and
 * when parameters are updated. It sees parameters, gradients, collectives, a clock and a random
 * stream - and nothing else - so that the same object runs in training and in the simulator.
 * Plug-ins: src/strategies/<name>.c + a line in strategies.def.
 *
 * The loop calls the slots on one thread, in the order of the schedule. Slots start work and never
 * block: where something must be waited for, the slot returns HL_PENDING, the loop calls poll until
 * that answers HL_OK (or a deadline passes) and then the same slot again, which must not start its
 * work twice. */
#ifndef HALLEY_STRATEGY_H
#define HALLEY_STRATEGY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "halley/collective.h"
#include "halley/kernels.h"
#include "halley/layout.h"
#include "halley/log.h"
#include "halley/mem.h"
#include "halley/option.h"
#include "halley/optimizer.h"
#include "halley/report.h"
#include "halley/status.h"

/* Properties the laws suite and the planner ask for. */
enum hl_strategy_caps {
    HL_CAP_DIVERGENT = 1, /* ranks hold different parameters between synchronisations */
    HL_CAP_ASYNC = 2,     /* results are applied on arrival, not at a fixed step */
    HL_CAP_ROUNDS = 4, /* micro_end answers HL_MICRO_ROUND; each rank takes rows at its own pace */
};

/* The engine owns the buffers: parameter versions, gradients, optimizer slots. A strategy asks for
 * ranges by name. */
struct hl_engine;

enum hl_buffer {
    HL_BUFFER_MASTER, /* f32 weights that the optimizer writes */
    HL_BUFFER_GRAD,   /* f32 sums over supervised tokens since the last grad_clear */
    HL_BUFFER_SLOT0,  /* optimizer state */
    HL_BUFFER_SLOT1,
};

/* What a rank keeps of the whole only in its slices (hl_slice of each block, HL_SLICE_UNIT). */
enum hl_sliced {
    HL_SLICED_NOTHING,
    HL_SLICED_STATE,     /* optimizer slots, and the master where compute reads a bf16 copy */
    HL_SLICED_GRADIENTS, /* these too, once they are reduced */
    HL_SLICED_WEIGHTS,   /* and what compute reads: a block is there between fetch and drop */
};

struct hl_strategy_need { /* what `cost` and `plan --memory` and the engine's allocation read */
    enum hl_sliced sliced;
    bool whole_gradient; /* though sliced says more: micro-batches are added up in full */
    bool
        grad_windows; /* micro-batches are reduced one by one: each makes its gradient in windows */
    bool weights_apart;               /* compute never reads the master itself, in f32 neither */
    double state_bytes_per_parameter; /* master and optimizer slots of this rank */
    double own_bytes;                 /* what the strategy allocates for itself, on this rank */
    double sent_bytes_per_parameter;  /* by this rank to all peers, per period */
    int64_t period_steps;
};

/* Everything a strategy may touch. Borrowed for the life of the strategy. */
struct hl_strategy_env {
    struct hl_mem *mem;
    struct hl_mem *far; /* for large state that is touched once in a while; may be mem */
    struct hl_log *log;
    const struct hl_layout *layout;
    struct hl_engine *engine;
    const struct hl_kernels *kernels;
    struct hl_products *products;
    const struct hl_optimizer *optimizer;
    const struct hl_optimizer_options *optimizer_options;
    const void *options;    /* the plug-in's own options struct; NULL: it has none */
    struct hl_group *group; /* its collectives; NULL: one rank. Lane 0 is for small, waited-for
                               exchanges, which the loop makes too between steps */
    int rank, n_ranks;
    int64_t accumulation;       /* micro-batches of a step, as planned */
    enum hl_dtype reduce_dtype; /* of gradients on the wire */
    bool reduce_each_micro;     /* gradients: after every micro-batch, and not once per step */
    int64_t sync_every;         /* steps between outer rounds, of methods that have them */
    uint64_t seed;
    double (*now)(void *clock); /* seconds; virtual in the simulator */
    void *clock;
};

/* f32 data of a range in a buffer; valid until the next call on the engine. Of a sliced buffer, the
 * range lies within this rank's slice of one block. Of a gradient that has a window: what is there,
 * and all of the block may be asked for. */
float *hl_engine_data(struct hl_engine *engine, enum hl_buffer buffer, struct hl_range range);
/* bf16 compute copy of a range, NULL when compute is f32 and reads the master. With sliced weights
 * the range lies within this rank's slice of one block. */
struct hl_bf16 *hl_engine_copy(struct hl_engine *engine, struct hl_range range);

/* What compute reads of a range, for writing: of the compute type; the master itself where there is
 * no copy. As hl_engine_copy with sliced weights. */
void *hl_engine_weights(struct hl_engine *engine, struct hl_range range);
/* f32 weights of a range become what compute reads; with a copy the master stays as it is. */
void hl_engine_put_weights(struct hl_engine *engine, const struct hl_kernels *kernels,
                           struct hl_range range, const float *data);
/* The master of a range changed without an update (initialised, loaded): refresh what compute
 * reads. */
void hl_engine_publish(struct hl_engine *engine, const struct hl_kernels *kernels,
                       struct hl_range range);

/* Sliced gradients, or need.grad_windows: a block's gradient is made in a window and reduced there.
 * room: is there a window, or one to be had? close: add what this rank keeps - its slice, or all -
 * to what earlier windows of the block gave since grad_clear, and give the window up. Elsewhere
 * there is always room and nothing to close. */
bool hl_engine_grad_room(struct hl_engine *engine, int block);
void hl_engine_grad_close(struct hl_engine *engine, int block);

enum { HL_LAYER_WINDOWS = 3 }; /* that layers share: in use, the next, the one before */
/* Sliced weights: compute reads a block in a window, which other blocks may take over later.
 * open: the window of the block, taken from the one used longest ago when it has none; *fresh_out:
 * its content is not there yet, but this rank's slice is in its place. NULL: all are held.
 * hold and let go: nobody takes it over in between. stale: weights changed, all windows are void.
 */
void *hl_engine_weights_open(struct hl_engine *engine, int block, bool *fresh_out);
void hl_engine_weights_hold(struct hl_engine *engine, int block, bool hold);
void hl_engine_weights_stale(struct hl_engine *engine);

/* The gradient of the whole vector is spent: the next contribution to each range overwrites. */
void hl_engine_grad_clear(struct hl_engine *engine);

/* A step: what is known when it begins, and at step_end what it was made of. */
struct hl_step {
    int64_t index;        /* committed updates before this one */
    int64_t n_supervised; /* step_end: tokens behind the gradient on this rank */
    double learning_rate;
    double max_grad_norm; /* 0: no clipping */
    /* HL_CAP_ROUNDS: micro-batches of this rank until ROUND and after it, as in the run that is
     * repeated; 0: it decides itself */
    int64_t until_round, after_round;
};
struct hl_step_result {
    bool applied;     /* false: gradient not finite, nothing changed */
    double grad_norm; /* global norm of the mean gradient, before clipping */
    int bad_block; /* when not applied: the block of the backward pass in which it began; else -1 */
    int64_t n_supervised; /* over all ranks */
};
/* After a micro-batch: another one, or the step is over. A strategy that answers decides how many
 * micro-batches a step has, within the rows of the run; the plan is gradient_accumulation_steps.
 * ROUND: another one, and all up to this one are what this step's update is made of; those that
 * follow belong to the next update. When the update is the run's last, none follows. With
 * HL_CAP_ROUNDS it is asked before the first micro-batch too (micro -1). */
enum hl_micro_answer { HL_MICRO_MORE, HL_MICRO_ROUND, HL_MICRO_STEP };

/* Arrays beyond master and optimizer slots that a checkpoint must hold. */
enum hl_saved_where {
    HL_SAVED_ALIKE, /* the same on all ranks */
    HL_SAVED_OWN, /* each rank has its own; a rank that was not there when it was saved has none */
    HL_SAVED_SUM, /* the same, but at another number of ranks rank 0 takes the sum of all */
};
struct hl_saved_state {
    const char *name;
    void *data; /* f32 [n], or int64 [n] */
    int64_t n;
    enum hl_saved_where where;
    bool counts; /* int64 */
};

struct hl_strategy {
    const char *name, *summary, *paper;
    unsigned caps;                /* enum hl_strategy_caps */
    const struct hl_option *rows; /* own options, keys "name.option"; NULL: none */
    size_t n_rows, options_bytes;
    const char *reproducible; /* "option=value" of its own: with it, the same seed gives the same
                                 bits; NULL: it always does */

    /* Before anything is allocated; pure. errors HL_E_USER with the option's name and a hint. */
    enum hl_status (*check)(const struct hl_strategy_env *env, struct hl_diag *diag);
    struct hl_strategy_need (*cost)(const struct hl_strategy_env *env);

    enum hl_status (*init)(const struct hl_strategy_env *env, void **state_out,
                           struct hl_diag *diag);
    void (*fini)(void *state);

    /* Weights are in place (initialised, or read) and this rank has no state of its own yet, since
     * the run begins or the rank joins it: start from them. Called in view, when there is one. */
    enum hl_status (*start)(void *state, struct hl_diag *diag);

    enum hl_status (*step_begin)(void *state, const struct hl_step *step, struct hl_diag *diag);
    /* Before a block runs: its parameters must be there when this returns HL_OK. backward: for its
     * gradient, or to compute again what the backward pass will read. Evaluation enters and exits
     * blocks too, without a step around them. */
    enum hl_status (*block_enter)(void *state, int block, bool backward, struct hl_diag *diag);
    enum hl_status (*block_exit)(void *state, int block, bool backward, struct hl_diag *diag);
    /* The gradient of a block has this micro-batch's last contribution; last_micro: as planned, the
     * step's too. */
    enum hl_status (*grad_ready)(void *state, int block, bool last_micro, struct hl_diag *diag);
    enum hl_status (*micro_end)(void *state, int micro, int64_t n_supervised,
                                enum hl_micro_answer *answer, struct hl_diag *diag);
    enum hl_status (*step_end)(void *state, const struct hl_step *step, struct hl_step_result *out,
                               struct hl_diag *diag);

    bool (*sync_due)(void *state,
                     int64_t step); /* after a committed step; step: how many there are now; pure */
    enum hl_status (*sync)(void *state, struct hl_diag *diag);
    enum hl_status (*poll)(void *state, struct hl_diag *diag);
    /* Before evaluation and checkpoints: nothing is in flight afterwards. */
    enum hl_status (*drain)(void *state, struct hl_diag *diag);

    /* Arrays to save beside master and slots; the loader fills the same arrays before the first
     * step. Asked in view. Names and sizes never change. returns how many */
    int (*saved)(void *state, struct hl_saved_state *out, int capacity);
    /* on: the engine's master, and what compute reads, become the parameters that evaluation and
     * checkpoints shall see, equal on all ranks; off: those in work again. NULL: they are the same.
     */
    void (*view)(void *state, bool on);
    int (*metrics)(void *state, struct hl_metric *out, int capacity);
};
/* Slots that may be NULL: start step_begin block_enter block_exit grad_ready micro_end sync_due
 * sync poll drain saved view metrics. */

/* Values of all strategies' own options. */
enum { HL_MAX_STRATEGIES = 32, HL_STRATEGY_OPTION_BYTES = 256 };
struct hl_strategy_options {
    _Alignas(16) char of[HL_MAX_STRATEGIES][HL_STRATEGY_OPTION_BYTES];
};
/* A set for each strategy that has options, prefix its name, over values. returns how many */
int hl_strategy_option_sets(struct hl_strategy_options *values,
                            struct hl_option_set sets[HL_MAX_STRATEGIES]);
/* Of one strategy; NULL: it has none. */
const void *hl_strategy_options_of(const struct hl_strategy_options *values,
                                   const struct hl_strategy *strategy);

enum hl_status hl_strategy_find(const char *name, const struct hl_strategy **out,
                                struct hl_diag *diag) HL_MUST_CHECK;
const struct hl_strategy *const *hl_strategies(void); /* NULL-terminated */

#endif
