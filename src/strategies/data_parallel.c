/* Synchronous data parallelism, whole or in slices. See data_parallel.h. */
#include "strategies/data_parallel.h"

#include "optimizers/optimizers.h"
#include "strategies/update.h"

struct hl_range hl_dp_slice(const struct hl_strategy_env *env, int block, int rank) {
    struct hl_range range = env->layout->blocks[block];
    struct hl_range slice = hl_slice(range.n, HL_SLICE_UNIT, rank, env->n_ranks);
    return (struct hl_range){range.offset + slice.offset, slice.n};
}

enum hl_status hl_dp_check(const struct hl_strategy_env *env, const char *name,
                           enum hl_sliced sliced, struct hl_diag *diag) {
    return sliced && env->n_ranks > 1 ? hl_update_check_cuts(env, name, diag) : HL_OK;
}

/* Micro-batches are reduced one by one. */
static bool each_micro(const struct hl_strategy_env *env) {
    return env->reduce_each_micro && env->n_ranks > 1 && env->accumulation > 1;
}

/* A gradient that is reduced at once need not be kept in full by whoever updates slices. */
static enum hl_sliced as_sliced(const struct hl_strategy_env *env, enum hl_sliced sliced) {
    return each_micro(env) && sliced == HL_SLICED_STATE ? HL_SLICED_GRADIENTS : sliced;
}

static bool has_grad_windows(const struct hl_strategy_env *env, enum hl_sliced sliced) {
    return each_micro(env) ||
           (sliced >= HL_SLICED_GRADIENTS && env->n_ranks > 1 && env->accumulation == 1);
}

/* ---- what is exchanged, and what that costs ---- */

static struct hl_collective_args reduce_of(const struct hl_strategy_env *env, bool sliced,
                                           int block) {
    int64_t n = env->layout->blocks[block].n;
    return (struct hl_collective_args){.kind = sliced ? HL_REDUCE_SCATTER : HL_ALL_REDUCE,
                                       .n = n,
                                       .element_bytes = sizeof(float),
                                       .wire = env->reduce_dtype,
                                       .one_stage = hl_all_reduce_one_stage(n, env->n_ranks)};
}

/* Of what compute reads. */
static struct hl_collective_args gather_of(const struct hl_strategy_env *env, int block) {
    bool bf16 = env->kernels && env->kernels->dtype == HL_BF16;
    return (struct hl_collective_args){.kind = HL_ALL_GATHER,
                                       .n = env->layout->blocks[block].n,
                                       .element_bytes =
                                           bf16 ? sizeof(struct hl_bf16) : sizeof(float)};
}

/* How often a step gathers a block. With weights in slices: once, and again when the windows of
 * layers were needed by others in between. The forward pass leaves the last layers there for the
 * backward pass, and that the first ones for the next micro-batch. */
static int64_t gathers_of(const struct hl_strategy_env *env, enum hl_sliced sliced, int block) {
    int last_layer = env->layout->n_blocks - 2;
    bool layer = block > 0 && block <= last_layer;
    if (!sliced) return 0;
    if (sliced < HL_SLICED_WEIGHTS || !layer) return 1;
    return 1 + (block <= last_layer - HL_LAYER_WINDOWS) * env->accumulation +
           (block > HL_LAYER_WINDOWS) * (env->accumulation - 1);
}

static double sent_bytes(const struct hl_strategy_env *env, enum hl_sliced sliced) {
    struct hl_collective_args share = hl_grad_share(env);
    double bytes = (double)hl_collective_cost(&share, env->rank, env->n_ranks).bytes_out;
    for (int b = 0; b < env->layout->n_blocks; b++) {
        struct hl_collective_args reduce = reduce_of(env, sliced, b), gather = gather_of(env, b);
        bytes += (double)(each_micro(env) ? env->accumulation : 1) *
                 (double)hl_collective_cost(&reduce, env->rank, env->n_ranks).bytes_out;
        bytes += (double)gathers_of(env, sliced, b) *
                 (double)hl_collective_cost(&gather, env->rank, env->n_ranks).bytes_out;
    }
    return bytes;
}

struct hl_strategy_need hl_dp_cost(const struct hl_strategy_env *env, enum hl_sliced sliced) {
    double n = env->n_ranks;
    sliced = as_sliced(env, sliced);
    bool bf16 = env->kernels && env->kernels->dtype == HL_BF16;
    struct hl_strategy_need need = {.sliced = sliced,
                                    .whole_gradient = sliced && !has_grad_windows(env, sliced),
                                    .grad_windows = each_micro(env),
                                    .period_steps = 1};
    bool cut_master = sliced && (bf16 || sliced == HL_SLICED_WEIGHTS);
    need.state_bytes_per_parameter =
        4.0 * env->optimizer->n_slots / (sliced ? n : 1) + 4.0 / (cut_master ? n : 1);
    need.sent_bytes_per_parameter = sent_bytes(env, sliced) / (double)env->layout->n_parameters;
    return need;
}

/* ---- life ---- */

void hl_dp_fini(void *state) {
    struct hl_dp *s = state;
    struct hl_mem *mem = s->env.mem;
    hl_free(mem, s->scratch);
    hl_free(mem, s->reduces);
    hl_free(mem, s->gathers);
    hl_free(mem, s->reducing);
    hl_free(mem, s->shared);
    hl_free(mem, s);
}

enum hl_status hl_dp_init(const struct hl_strategy_env *env, enum hl_sliced sliced,
                          void **state_out, struct hl_diag *diag) {
    struct hl_dp *s = hl_alloc(env->mem, 1, sizeof *s);
    if (!s) return hl_fail_memory(diag, sizeof *s, "the strategy");
    s->env = *env;
    s->sliced = env->n_ranks > 1 ? as_sliced(env, sliced) : HL_SLICED_NOTHING;
    s->grad_windows = has_grad_windows(env, sliced);
    size_t blocks = (size_t)env->layout->n_blocks;
    size_t floats = (size_t)hl_optimizer_scratch(env->optimizer, env->layout);
    s->scratch = hl_alloc(env->mem, floats, sizeof *s->scratch);
    s->reduces = hl_alloc(env->mem, blocks, sizeof *s->reduces);
    s->gathers = hl_alloc(env->mem, s->sliced ? blocks : 0, sizeof *s->gathers);
    s->reducing = hl_alloc(env->mem, blocks, sizeof *s->reducing);
    s->shared = hl_alloc(env->mem, (blocks + 1) * (size_t)env->n_ranks, sizeof *s->shared);
    if (!s->scratch || !s->reduces || !s->gathers || !s->reducing || !s->shared) {
        hl_dp_fini(s);
        return hl_fail_memory(diag, floats * sizeof(float) + 2 * blocks * sizeof *s->reduces,
                              "the strategy's records");
    }
    *state_out = s;
    return HL_OK;
}

/* Lane 0 is for small exchanges that are waited for at once. */
enum lane { LANE_SMALL, LANE_REDUCE, LANE_GATHER };
static int lane(const struct hl_dp *s, enum lane wanted) {
    return (int)wanted % hl_group_n_lanes(s->env.group);
}

/* ---- during the passes ---- */

/* Progress; what is reduced needs its window no longer. */
enum hl_status hl_dp_poll(void *state, struct hl_diag *diag) {
    struct hl_dp *s = state;
    enum hl_status status = hl_group_poll(s->env.group, diag);
    for (int b = 0; b < s->env.layout->n_blocks && status >= 0; b++)
        if (s->reducing[b] && hl_collective_status(&s->reduces[b]) == HL_OK) {
            hl_engine_grad_close(s->env.engine, b);
            s->reducing[b] = false;
        }
    return status;
}

/* All slices of what compute reads of a block, into data. */
static void start_gather(struct hl_dp *s, int block, void *data) {
    struct hl_collective_args args = gather_of(&s->env, block);
    args.lane = lane(s, LANE_GATHER);
    args.data = data;
    hl_collective_start(s->env.group, &args, &s->gathers[block]);
}

/* The block's weights are here, or on their way. */
static bool fetch(struct hl_dp *s, int block) {
    bool fresh = false;
    void *window = hl_engine_weights_open(s->env.engine, block, &fresh);
    if (!window) return false;
    if (fresh) start_gather(s, block, window);
    hl_engine_weights_hold(s->env.engine, block, true);
    return true;
}

/* The gradient's window, if it needs one, is there and not being reduced. */
static bool has_room(const struct hl_dp *s, int block) {
    return !s->reducing[block] && hl_engine_grad_room(s->env.engine, block);
}

/* Will the gradient of the block, or of what is tied to it, be written? The head makes both in its
 * forward pass. */
static bool needs_room(const struct hl_dp *s, int block, bool backward) {
    return s->grad_windows &&
           (backward || (each_micro(&s->env) && block == s->env.layout->n_blocks - 1));
}

/* Weights in slices: wait for the block's, and have the next block's sent meanwhile. Gradients in
 * windows: wait for one. */
enum hl_status hl_dp_block_enter(void *state, int block, bool backward, struct hl_diag *diag) {
    struct hl_dp *s = state;
    enum hl_status status = hl_dp_poll(state, diag);
    if (status < 0) return status;
    if (s->sliced == HL_SLICED_WEIGHTS) {
        if (!fetch(s, block) || hl_collective_status(&s->gathers[block]) != HL_OK)
            return HL_PENDING;
        int next = backward ? block - 1 : block + 1;
        if (next >= 0 && next < s->env.layout->n_blocks) (void)fetch(s, next);
    }
    if (!needs_room(s, block, backward)) return HL_OK;
    return has_room(s, block) && (backward || has_room(s, 0)) ? HL_OK : HL_PENDING;
}

/* Whatever has come in the meantime is passed on between blocks, so that it overlaps with them. */
enum hl_status hl_dp_block_exit(void *state, int block, bool backward, struct hl_diag *diag) {
    struct hl_dp *s = state;
    (void)backward;
    if (s->sliced == HL_SLICED_WEIGHTS) hl_engine_weights_hold(s->env.engine, block, false);
    enum hl_status status = hl_dp_poll(state, diag);
    return status < 0 ? status : HL_OK;
}

enum hl_status hl_dp_grad_ready(void *state, int block, bool last_micro, struct hl_diag *diag) {
    struct hl_dp *s = state;
    struct hl_range range = s->env.layout->blocks[block];
    if (!last_micro && !each_micro(&s->env)) return HL_OK;
    struct hl_collective_args args = reduce_of(&s->env, s->sliced, block);
    args.lane = lane(s, LANE_REDUCE);
    args.data = hl_engine_data(s->env.engine, HL_BUFFER_GRAD, range);
    hl_collective_start(s->env.group, &args, &s->reduces[block]);
    s->reducing[block] = true;
    enum hl_status status = hl_dp_poll(state, diag);
    return status < 0 ? status : HL_OK;
}

/* ---- the end of the step ---- */

/* Squares of this rank's slices of the reduced gradient, and its tokens, to everyone. */
static void start_share(struct hl_dp *s, int64_t n_supervised) {
    int n = s->env.layout->n_blocks;
    double *own = s->shared + (size_t)s->env.rank * (size_t)(n + 1);
    for (int b = 0; b < n; b++) {
        struct hl_range slice = hl_dp_slice(&s->env, b, s->env.rank);
        own[b] = s->env.kernels->sum_squares(slice.n,
                                             hl_engine_data(s->env.engine, HL_BUFFER_GRAD, slice));
    }
    own[n] = (double)n_supervised;
    struct hl_collective_args args = hl_grad_share(&s->env);
    args.lane = LANE_SMALL;
    args.data = s->shared;
    hl_collective_start(s->env.group, &args, &s->share);
}

static enum hl_status update(struct hl_dp *s, const struct hl_step *step, struct hl_diag *diag) {
    float factor = hl_grad_factor(s->result.grad_norm, step->max_grad_norm, s->result.n_supervised);
    enum hl_status status = HL_OK;
    for (int b = 0; b < s->env.layout->n_blocks && status == HL_OK; b++) {
        struct hl_range range =
            s->sliced ? hl_dp_slice(&s->env, b, s->env.rank) : s->env.layout->blocks[b];
        if (range.n == 0) continue;
        status = hl_update_range(&s->env, range, step->index + 1, step->learning_rate, factor,
                                 s->scratch, diag);
    }
    return status;
}

/* Updated slices to everybody, or - with weights in slices - when they are needed again. */
static void hand_out(struct hl_dp *s) {
    hl_engine_weights_stale(s->env.engine);
    for (int b = 0; b < s->env.layout->n_blocks && s->sliced < HL_SLICED_WEIGHTS; b++) {
        struct hl_range range = s->env.layout->blocks[b];
        struct hl_bf16 *copy = hl_engine_copy(s->env.engine, range);
        start_gather(s, b,
                     copy ? (void *)copy : hl_engine_data(s->env.engine, HL_BUFFER_MASTER, range));
    }
}

enum hl_status hl_dp_step_end(void *state, const struct hl_step *step, struct hl_step_result *out,
                              struct hl_diag *diag) {
    struct hl_dp *s = state;
    int n = s->env.layout->n_blocks;
    enum hl_status status = hl_dp_poll(state, diag);
    if (status < 0) return status;
    if (s->stage == HL_DP_REDUCE) {
        for (int b = 0; b < n; b++)
            if (s->reducing[b]) return HL_PENDING;
        start_share(s, step->n_supervised);
        s->stage = HL_DP_SHARE;
    }
    if (s->stage == HL_DP_SHARE) {
        if ((status = hl_dp_poll(state, diag)) < 0) return status;
        if (hl_collective_status(&s->share) != HL_OK) return HL_PENDING;
        s->stage = HL_DP_UPDATE;
    }
    if (s->stage == HL_DP_UPDATE) {
        s->result = hl_grad_result(s->shared, n, s->env.n_ranks);
        if (s->result.n_supervised == 0)
            return hl_fail(diag, HL_E_USER,
                           "step %lld: no token of any rank is supervised, so there is no "
                           "gradient; check the data and block_size",
                           (long long)step->index + 1);
        if (s->result.applied && (status = update(s, step, diag)) != HL_OK) return status;
        hl_engine_grad_clear(s->env.engine);
        if (s->sliced && s->result.applied) hand_out(s);
        s->stage = HL_DP_GATHER;
    }
    if (s->sliced && s->result.applied) {
        if ((status = hl_dp_poll(state, diag)) < 0) return status;
        if (!hl_collectives_done(s->gathers, n)) return HL_PENDING;
    }
    *out = s->result;
    s->stage = HL_DP_REDUCE;
    return HL_OK;
}
