/* Exchange beside compute. See overlapped.h. */
#include "strategies/overlapped.h"

#include <math.h>
#include <string.h>

#include "strategies/data_parallel.h"
#include "strategies/update.h"

/* Where the step is. */
enum phase {
    FILL,     /* micro-batches of a first gradient, with nothing to exchange meanwhile */
    ESTIMATE, /* acco: micro-batches at the weights, beside the trial */
    COMMIT,   /* micro-batches for the next update, beside the commit */
    SYNC,     /* warm-up: the update of this step's own micro-batches */
};

/* Where the exchange is. */
enum stage { IDLE, REDUCE, SHARE, GATHER, DONE };

/* Counts that a checkpoint holds. */
enum count { HAS_PENDING, PENDING_TOKENS, N_COUNTS };

struct overlap {
    struct hl_strategy_env env;
    struct hl_overlap_options o;
    float *pending; /* X [n_parameters] */
    float *sum;     /* of X over ranks, this rank's slices one after another */
    char *next;     /* [n_parameters] of the compute type: weights that are on their way */
    char *guess;    /* wp: the same for the predicted ones; in view, those in work */
    float *scratch; /* of a trial */
    double *shared; /* [n_ranks][n_blocks + 1] */
    struct hl_collective *reduces, *gathers, *guesses; /* [n_blocks] */
    struct hl_collective share;
    enum phase phase;
    enum stage stage;
    bool trial;
    struct hl_step step;
    struct hl_step_result result; /* of the exchange */
    int64_t open_tokens;          /* in Y */
    int64_t n_round;              /* micro-batches of this round */
    int counted;                  /* the last micro-batch that was counted */
    bool filled;                  /* this step began with a first gradient */
    int64_t rounds[2], n_steps;   /* micro-batches before and beside commits, since metrics */
    int64_t counts[N_COUNTS];
};

/* All on one lane, so that every rank starts them in one order whenever it gets to it; the loop's
 * own exchanges are on lane 0. */
enum { LANE = 1 };

/* ---- sizes ---- */

static size_t weight_bytes(const struct hl_strategy_env *env) {
    return hl_dtype_bytes(env->kernels ? env->kernels->dtype : HL_F32);
}

/* Whole floats, as a checkpoint takes them. */
static size_t guess_bytes(const struct overlap *s) {
    size_t bytes = (size_t)s->env.layout->n_parameters * weight_bytes(&s->env);
    return (bytes + sizeof(float) - 1) / sizeof(float) * sizeof(float);
}

static int64_t sliced_elements(const struct hl_strategy_env *env) {
    int64_t n = 0;
    for (int b = 0; b < env->layout->n_blocks; b++) n += hl_dp_slice(env, b, env->rank).n;
    return n;
}

static struct hl_collective_args reduce_of(const struct hl_strategy_env *env, int block) {
    return (struct hl_collective_args){.kind = HL_REDUCE_SCATTER,
                                       .lane = LANE,
                                       .n = env->layout->blocks[block].n,
                                       .element_bytes = sizeof(float),
                                       .wire = env->reduce_dtype};
}
static struct hl_collective_args gather_of(const struct hl_strategy_env *env, int block) {
    return (struct hl_collective_args){.kind = HL_ALL_GATHER,
                                       .lane = LANE,
                                       .n = env->layout->blocks[block].n,
                                       .element_bytes = weight_bytes(env)};
}
static struct hl_collective_args share_of(const struct hl_strategy_env *env) {
    struct hl_collective_args args = hl_grad_share(env);
    args.lane = LANE;
    return args;
}

/* ---- life ---- */

struct hl_strategy_need hl_overlap_cost(const struct hl_strategy_env *env,
                                        enum hl_overlap_rule rule) {
    struct hl_collective_args share = share_of(env);
    double each = (double)hl_collective_cost(&share, env->rank, env->n_ranks).bytes_out,
           gathered = 0, P = (double)env->layout->n_parameters;
    for (int b = 0; b < env->layout->n_blocks; b++) {
        struct hl_collective_args reduce = reduce_of(env, b), gather = gather_of(env, b);
        each += (double)hl_collective_cost(&reduce, env->rank, env->n_ranks).bytes_out;
        gathered += (double)hl_collective_cost(&gather, env->rank, env->n_ranks).bytes_out;
    }
    double sent = rule == HL_OVERLAP_ACCO ? 2 * (each + gathered)
                                          : each + gathered * (rule == HL_OVERLAP_WP ? 2 : 1);
    double buffers = rule == HL_OVERLAP_WP ? 2 : 1;
    return (struct hl_strategy_need){
        .sliced = HL_SLICED_STATE,
        .whole_gradient = true,
        .weights_apart = true,
        .state_bytes_per_parameter = 4.0 * (1 + env->optimizer->n_slots) / env->n_ranks,
        .own_bytes = P * (sizeof(float) + buffers * (double)weight_bytes(env)) +
                     (double)(sliced_elements(env) * (int64_t)sizeof(float)),
        .sent_bytes_per_parameter = sent / P,
        .period_steps = 1};
}

void hl_overlap_fini(void *state) {
    struct overlap *s = state;
    struct hl_mem *mem = s->env.mem;
    hl_free(mem, s->pending);
    hl_free(mem, s->sum);
    hl_free(mem, s->next);
    hl_free(mem, s->guess);
    hl_free(mem, s->scratch);
    hl_free(mem, s->shared);
    hl_free(mem, s->reduces);
    hl_free(mem, s->gathers);
    hl_free(mem, s->guesses);
    hl_free(mem, s);
}

static bool make_buffers(struct overlap *s) {
    struct hl_mem *mem = s->env.mem;
    size_t P = (size_t)s->env.layout->n_parameters, blocks = (size_t)s->env.layout->n_blocks;
    bool wp = s->o.rule == HL_OVERLAP_WP, tries = s->o.rule != HL_OVERLAP_DPU;
    s->pending = hl_alloc(mem, P, sizeof *s->pending);
    s->sum = hl_alloc(mem, (size_t)sliced_elements(&s->env), sizeof *s->sum);
    s->next = hl_alloc(mem, P, weight_bytes(&s->env));
    s->shared = hl_alloc(mem, (blocks + 1) * (size_t)s->env.n_ranks, sizeof *s->shared);
    s->reduces = hl_alloc(mem, blocks, sizeof *s->reduces);
    s->gathers = hl_alloc(mem, blocks, sizeof *s->gathers);
    if (wp) s->guess = hl_alloc(mem, guess_bytes(s), 1);
    if (wp) s->guesses = hl_alloc(mem, blocks, sizeof *s->guesses);
    if (tries) s->scratch = hl_alloc(mem, hl_update_trial_scratch(s->env.optimizer), sizeof(float));
    return s->pending && s->sum && s->next && s->shared && s->reduces && s->gathers &&
           (!wp || (s->guess && s->guesses)) && (!tries || s->scratch);
}

enum hl_status hl_overlap_init(const struct hl_strategy_env *env,
                               const struct hl_overlap_options *options, void **state_out,
                               struct hl_diag *diag) {
    if (env->n_ranks > 1 && hl_group_n_lanes(env->group) <= LANE)
        return hl_fail(diag, HL_E_UNSUPPORTED,
                       "the wire has one lane; an exchange beside others needs two");
    struct overlap *s = hl_alloc(env->mem, 1, sizeof *s);
    if (!s) return hl_fail_memory(diag, sizeof *s, "the strategy");
    s->env = *env;
    s->o = *options;
    if (!make_buffers(s)) {
        hl_overlap_fini(s);
        return hl_fail_memory(diag, (size_t)hl_overlap_cost(env, options->rule).own_bytes,
                              "the strategy's buffers");
    }
    *state_out = s;
    return HL_OK;
}

enum hl_status hl_overlap_init_lag(const struct hl_strategy_env *env, enum hl_overlap_rule rule,
                                   void **state_out, struct hl_diag *diag) {
    const struct hl_lag_options *own = env->options;
    const struct hl_overlap_options o = {.rule = rule,
                                         .micro_batches = env->accumulation,
                                         .exact = true,
                                         .warmup_steps = own->warmup_steps};
    return hl_overlap_init(env, &o, state_out, diag);
}

/* ---- the exchange ---- */

static struct hl_range everything(const struct overlap *s) {
    return (struct hl_range){0, s->env.layout->n_parameters};
}
static size_t all_weight_bytes(const struct overlap *s) {
    return (size_t)s->env.layout->n_parameters * weight_bytes(&s->env);
}

static void start_exchange(struct overlap *s, bool trial) {
    float *sum = s->sum;
    s->trial = trial;
    for (int b = 0; b < s->env.layout->n_blocks; b++) {
        struct hl_collective_args args = reduce_of(&s->env, b);
        args.data = s->pending + s->env.layout->blocks[b].offset;
        args.out = sum;
        hl_collective_start(s->env.group, &args, &s->reduces[b]);
        sum += hl_dp_slice(&s->env, b, s->env.rank).n;
    }
    s->stage = REDUCE;
}

static void start_share(struct overlap *s) {
    int n = s->env.layout->n_blocks;
    double *own = s->shared + (size_t)s->env.rank * (size_t)(n + 1);
    const float *sum = s->sum;
    for (int b = 0; b < n; b++) {
        int64_t held = hl_dp_slice(&s->env, b, s->env.rank).n;
        own[b] = s->env.kernels->sum_squares(held, sum);
        sum += held;
    }
    own[n] = (double)s->counts[PENDING_TOKENS];
    struct hl_collective_args args = share_of(&s->env);
    args.data = s->shared;
    hl_collective_start(s->env.group, &args, &s->share);
    s->stage = SHARE;
}

/* wp: compute goes on at a guess, and not at what is committed; warm-up is synchronous. */
static bool guesses(const struct overlap *s) { return s->guess && s->phase != SYNC; }

/* The next weights of one slice: of a trial or a commit, and a guess of those after it. */
static enum hl_status update_slice(struct overlap *s, struct hl_range slice, const float *sum,
                                   float factor, struct hl_diag *diag) {
    const struct hl_strategy_env *env = &s->env;
    double rate = s->step.learning_rate;
    char *next = s->next + (size_t)slice.offset * weight_bytes(env);
    if (s->trial)
        return hl_update_trial(env, slice, sum, s->step.index + 1, rate * s->o.trial_rate_scale,
                               factor, s->scratch, next, diag);
    enum hl_status status =
        hl_update_master(env, slice, sum, s->step.index + 1, rate, factor, diag);
    if (status != HL_OK) return status;
    const float *master = hl_engine_data(env->engine, HL_BUFFER_MASTER, slice);
    if (env->kernels->dtype == HL_BF16)
        env->kernels->to_bf16(slice.n, master, (struct hl_bf16 *)(void *)next);
    else memcpy(next, master, (size_t)slice.n * sizeof *master);
    if (!guesses(s)) return HL_OK;
    return hl_update_trial(env, slice, sum, s->step.index + 2, rate, factor, s->scratch,
                           s->guess + (size_t)slice.offset * weight_bytes(env), diag);
}

static void start_gather(struct overlap *s, char *weights, struct hl_collective *ops) {
    for (int b = 0; b < s->env.layout->n_blocks; b++) {
        struct hl_collective_args args = gather_of(&s->env, b);
        args.data = weights + (size_t)s->env.layout->blocks[b].offset * weight_bytes(&s->env);
        hl_collective_start(s->env.group, &args, &ops[b]);
    }
}

/* A gradient that is not finite changes nothing: a trial then leaves the weights, and its commit,
 * which contains it, is not applied. A trial without a token leaves them too. */
static enum hl_status update(struct overlap *s, struct hl_diag *diag) {
    const float *sum = s->sum;
    s->result = hl_grad_result(s->shared, s->env.layout->n_blocks, s->env.n_ranks);
    s->stage = DONE;
    if (s->trial && s->result.n_supervised == 0) s->result.applied = false;
    else if (s->result.n_supervised == 0)
        return hl_fail(diag, HL_E_USER,
                       "step %lld: no token of any rank is supervised, so there is no gradient; "
                       "check the data and block_size",
                       (long long)s->step.index + 1);
    if (!s->result.applied) return HL_OK;
    float factor =
        hl_grad_factor(s->result.grad_norm, s->step.max_grad_norm, s->result.n_supervised);
    for (int b = 0; b < s->env.layout->n_blocks; b++) {
        struct hl_range slice = hl_dp_slice(&s->env, b, s->env.rank);
        enum hl_status status = slice.n ? update_slice(s, slice, sum, factor, diag) : HL_OK;
        if (status != HL_OK) return status;
        sum += slice.n;
    }
    start_gather(s, s->next, s->gathers);
    if (guesses(s)) start_gather(s, s->guess, s->guesses);
    s->stage = GATHER;
    return HL_OK;
}

/* As far as it goes without waiting. HL_OK: nothing is in flight. */
static enum hl_status advance(struct overlap *s, struct hl_diag *diag) {
    int n = s->env.layout->n_blocks;
    enum hl_status status = hl_group_poll(s->env.group, diag);
    if (status < 0 || s->stage == IDLE || s->stage == DONE) return status < 0 ? status : HL_OK;
    if (s->stage == REDUCE && hl_collectives_done(s->reduces, n)) start_share(s);
    if (s->stage == SHARE && hl_collective_status(&s->share) == HL_OK &&
        (status = update(s, diag)) < 0)
        return status;
    if (s->stage == GATHER && hl_collectives_done(s->gathers, n) &&
        (!guesses(s) || hl_collectives_done(s->guesses, n)))
        s->stage = DONE;
    return s->stage == DONE ? HL_OK : HL_PENDING;
}

/* HL_OK where something may have changed: the loop asks the slot again. */
enum hl_status hl_overlap_poll(void *state, struct hl_diag *diag) {
    struct overlap *s = state;
    enum stage before = s->stage;
    enum hl_status status = advance(s, diag);
    return status == HL_PENDING && s->stage != before ? HL_OK : status;
}

enum hl_status hl_overlap_between_blocks(void *state, int block, bool backward,
                                         struct hl_diag *diag) {
    (void)block, (void)backward;
    enum hl_status status = advance(state, diag);
    return status < 0 ? status : HL_OK;
}

/* ---- hand-overs ---- */

/* What compute reads becomes what has come. */
static void take_weights(struct overlap *s) {
    if (s->result.applied)
        memcpy(hl_engine_weights(s->env.engine, everything(s)), guesses(s) ? s->guess : s->next,
               all_weight_bytes(s));
    s->stage = IDLE;
}

/* X = Y, or X += Y; Y = 0. Tokens likewise. */
static void take_gradient(struct overlap *s, bool adds) {
    int64_t n = s->env.layout->n_parameters;
    const float *open = hl_engine_data(s->env.engine, HL_BUFFER_GRAD, everything(s));
    const float *both[] = {s->pending, open};
    if (s->n_round > 0 && adds) s->env.kernels->sum_parts(n, 2, both, s->pending);
    else if (s->n_round > 0) memcpy(s->pending, open, (size_t)n * sizeof *open);
    if (!adds) s->counts[PENDING_TOKENS] = 0;
    s->counts[PENDING_TOKENS] += s->open_tokens;
    s->counts[HAS_PENDING] = adds || s->n_round > 0;
    s->open_tokens = s->n_round = 0;
    hl_engine_grad_clear(s->env.engine);
}

/* ---- slots ---- */

/* wp shows committed weights, which `guess` holds in work; see hl_overlap_view. */
enum hl_status hl_overlap_start(void *state, struct hl_diag *diag) {
    struct overlap *s = state;
    (void)diag;
    if (s->guess)
        memcpy(s->guess, hl_engine_weights(s->env.engine, everything(s)), all_weight_bytes(s));
    return HL_OK;
}

enum hl_status hl_overlap_step_begin(void *state, const struct hl_step *step,
                                     struct hl_diag *diag) {
    struct overlap *s = state;
    (void)diag;
    s->step = *step;
    s->counted = -1;
    s->phase = FILL;
    s->filled = false;
    if (step->index < s->o.warmup_steps) s->phase = SYNC;
    else if (s->counts[HAS_PENDING] && s->o.rule == HL_OVERLAP_ACCO) {
        start_exchange(s, true);
        s->phase = ESTIMATE;
    }
    return HL_OK;
}

/* Micro-batches of this round, of which the record of an earlier run may say how many. */
static int64_t wanted(const struct overlap *s, bool *exact_out) {
    int64_t fill = s->filled ? s->o.micro_batches : 0;
    int64_t told = s->phase == ESTIMATE ? s->step.until_round - fill
                   : s->phase == COMMIT ? s->step.after_round
                                        : 0;
    *exact_out = s->o.exact || told > 0;
    return told > 0 ? told : s->o.micro_batches;
}

/* A round that has grown so many times waits for its exchange, so that a peer which stands still is
 * noticed: whoever computes has no deadline. */
enum { MOST_TIMES = 64 };

/* Is the round over? HL_PENDING: when the exchange is, for which this rank waits. */
static enum hl_status round_is_over(struct overlap *s, bool *over_out, struct hl_diag *diag) {
    enum hl_status status = advance(s, diag);
    bool exact, enough = s->n_round >= wanted(s, &exact);
    *over_out = enough && status == HL_OK;
    if (status < 0) return status;
    exact |= s->n_round >= MOST_TIMES * s->o.micro_batches;
    return enough && status == HL_PENDING && exact ? HL_PENDING : HL_OK;
}

/* The commit begins: what comes now belongs to the next update. */
static void begin_commit(struct overlap *s, enum hl_micro_answer *answer) {
    start_exchange(s, false);
    s->phase = COMMIT;
    *answer = HL_MICRO_ROUND;
}

static void end_fill(struct overlap *s, enum hl_micro_answer *answer) {
    s->filled = true;
    take_gradient(s, false);
    if (s->phase == SYNC) {
        start_exchange(s, false);
        *answer = HL_MICRO_STEP;
    } else if (s->o.rule == HL_OVERLAP_ACCO) {
        start_exchange(s, true);
        s->phase = ESTIMATE;
    } else begin_commit(s, answer);
}

static void end_estimate(struct overlap *s, enum hl_micro_answer *answer) {
    s->rounds[0] += s->n_round;
    take_weights(s);
    take_gradient(s, true);
    begin_commit(s, answer);
}

enum hl_status hl_overlap_micro_end(void *state, int micro, int64_t n_supervised,
                                    enum hl_micro_answer *answer, struct hl_diag *diag) {
    struct overlap *s = state;
    bool over = false;
    *answer = HL_MICRO_MORE;
    if (micro < 0) {
        if (s->phase == FILL && s->counts[HAS_PENDING]) begin_commit(s, answer);
        return HL_OK;
    }
    if (micro > s->counted) s->n_round++, s->open_tokens += n_supervised, s->counted = micro;
    enum hl_status status = round_is_over(s, &over, diag);
    if (status != HL_OK || !over) return status;
    if (s->phase == FILL || s->phase == SYNC) end_fill(s, answer);
    else if (s->phase == ESTIMATE) end_estimate(s, answer);
    else *answer = HL_MICRO_STEP;
    return HL_OK;
}

enum hl_status hl_overlap_step_end(void *state, const struct hl_step *step,
                                   struct hl_step_result *out, struct hl_diag *diag) {
    struct overlap *s = state;
    (void)step;
    enum hl_status status = advance(s, diag);
    if (status != HL_OK) return status;
    *out = s->result;
    s->rounds[1] += s->n_round;
    s->n_steps++;
    take_weights(s);
    if (s->guess && s->result.applied) memcpy(s->guess, s->next, all_weight_bytes(s));
    take_gradient(s, false);
    return HL_OK;
}

/* wp: committed weights lie in `guess` while the guess is in work. */
void hl_overlap_view(void *state, bool on) {
    struct overlap *s = state;
    enum { PIECE = 4096 };
    char piece[PIECE], *a = hl_engine_weights(s->env.engine, everything(s)), *b = s->guess;
    (void)on;
    for (size_t at = 0, n, all = all_weight_bytes(s); at < all; at += n) {
        n = all - at < PIECE ? all - at : PIECE;
        memcpy(piece, a + at, n);
        memcpy(a + at, b + at, n);
        memcpy(b + at, piece, n);
    }
}

int hl_overlap_saved(void *state, struct hl_saved_state *out, int capacity) {
    struct overlap *s = state;
    int n = 0;
    (void)capacity;
    out[n++] = (struct hl_saved_state){.name = "has_pending",
                                       .data = &s->counts[HAS_PENDING],
                                       .n = 1,
                                       .counts = true,
                                       .where = HL_SAVED_OWN};
    out[n++] = (struct hl_saved_state){.name = "pending_tokens",
                                       .data = &s->counts[PENDING_TOKENS],
                                       .n = 1,
                                       .counts = true,
                                       .where = HL_SAVED_SUM};
    out[n++] = (struct hl_saved_state){.name = "pending_gradient",
                                       .data = s->pending,
                                       .n = s->env.layout->n_parameters,
                                       .where = HL_SAVED_SUM};
    if (s->guess) /* the bits of it, whatever the compute type */
        out[n++] = (struct hl_saved_state){.name = "weights_in_work",
                                           .data = s->guess,
                                           .n = (int64_t)(guess_bytes(s) / sizeof(float)),
                                           .where = HL_SAVED_ALIKE};
    return n;
}

int hl_overlap_metrics(void *state, struct hl_metric *out, int capacity) {
    struct overlap *s = state;
    double steps = s->n_steps > 0 ? (double)s->n_steps : 1;
    if (capacity < 2) return 0;
    out[0] = (struct hl_metric){"micro_batches_estimate", (double)s->rounds[0] / steps, false};
    out[1] = (struct hl_metric){"micro_batches_commit", (double)s->rounds[1] / steps, false};
    s->rounds[0] = s->rounds[1] = s->n_steps = 0;
    return 2;
}
