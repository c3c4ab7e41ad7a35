/* Rank by rank between exchanges. See local_steps.h. */
#include "strategies/local_steps.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "optimizers/optimizers.h"

/* Of an outer round. IDLE: none; sums may be in flight all the same. */
enum stage { IDLE, ARRIVING, CONFIRMING, COMPARING };
enum { LANE_SMALL, LANE_SUMS };

struct local {
    struct hl_own_step own;
    struct hl_local_plan plan;
    float *other; /* [n_parameters]: off view the outer weights, in view this rank's own */
    float *sums;  /* [n_parameters]: Delta, then its sum over ranks. NULL, when it is used at once:
                     the engine's gradient, which nobody needs between steps */
    float *sent;  /* [n_parameters]: this rank's own weights when their exchange began. NULL, when
                     nothing is carried over */
    float *slots[HL_OPTIMIZER_MAX_SLOTS]; /* [n_parameters] each: the outer optimizer's */
    float *scratch;                       /* dito */
    float *rounds;                        /* [n_blocks]: outer steps so far; counts, as f32 */
    float *pending; /* [n_blocks]: 0: no sum is under way or has come; else steps until it is used,
                       and 1 */
    float *summed;  /* [n_blocks]: ranks behind a block's sum; another number than now when some
                       were lost, or joined, since */
    struct hl_collective *exchanges; /* [n_blocks] */
    char **codes; /* [n_blocks]: all ranks' codes of a block, in a room, until they are decoded;
                     NULL: none */
    int *room_of; /* [n_fragments] -1: none */
    char *rooms;  /* [n_rooms][room_bytes] */
    bool *taken;  /* [n_rooms] */
    int n_rooms;
    size_t room_bytes;
    struct hl_collective small;
    uint64_t hashes[HL_MAX_RANKS];
    char slot_names[HL_OPTIMIZER_MAX_SLOTS][64];
    int64_t step; /* committed */
    enum stage stage;
    double norm; /* of the last mean pseudo-gradient */
};

/* ---- the outer optimizer ---- */

enum hl_status hl_local_outer(const struct hl_strategy_env *env, const char *strategy,
                              const struct hl_outer_options *options, struct hl_local_plan *out,
                              struct hl_diag *diag) {
    struct hl_diag why = {0};
    enum hl_status status = hl_optimizer_find(options->optimizer, &out->outer, &why);
    if (env->optimizer_options) out->outer_options = *env->optimizer_options;
    out->outer_options.weight_decay = 0;
    out->outer_options.momentum = options->momentum;
    out->outer_options.nesterov = options->nesterov && options->momentum > 0;
    out->outer_lr = options->lr;
    if (status == HL_OK && out->outer->check) status = out->outer->check(&out->outer_options, &why);
    if (status == HL_OK) return HL_OK;
    return hl_fail(diag, HL_E_USER, "%s.outer_optimizer: '%s': %s", strategy, options->optimizer,
                   why.text);
}

/* Sums that outlive a step have a place of their own. */
static bool has_sums(const struct hl_local_plan *plan) { return plan->delay > 0; }

static bool carries(const struct hl_local_plan *plan) { return plan->carry && plan->delay > 0; }

static int n_slots(const struct hl_local_plan *plan) {
    return plan->outer ? plan->outer->n_slots : 0;
}

/* ---- when ---- */

static int fragment_of(const struct hl_local_plan *plan, int block) {
    return block % plan->n_fragments;
}
static int64_t offset_of(const struct hl_local_plan *plan, int fragment) {
    return fragment * plan->every / plan->n_fragments;
}
/* The exchange of a block begins after this step. */
static bool is_due(const struct hl_local_plan *plan, int block, int64_t step) {
    return step > 0 && (step - offset_of(plan, fragment_of(plan, block))) % plan->every == 0;
}
static bool is_mature(const struct local *s, int block) { return s->pending[block] == 1; }

/* ---- what is exchanged, and what that costs ---- */

static struct hl_collective_args exchange_of(const struct hl_strategy_env *env,
                                             const struct hl_local_plan *plan, int block) {
    int64_t n = env->layout->blocks[block].n;
    if (plan->codec) {
        int64_t bytes = (int64_t)plan->codec->bytes(n);
        return (struct hl_collective_args){
            .kind = HL_ALL_GATHER, .n = bytes * env->n_ranks, .element_bytes = 1, .unit = bytes};
    }
    return (struct hl_collective_args){.kind = HL_ALL_REDUCE,
                                       .n = n,
                                       .element_bytes = sizeof(float),
                                       .wire = plan->wire,
                                       .one_stage = hl_all_reduce_one_stage(n, env->n_ranks)};
}

static struct hl_collective_args hashes_of(const struct hl_strategy_env *env) {
    return (struct hl_collective_args){
        .kind = HL_ALL_GATHER, .n = env->n_ranks, .element_bytes = sizeof(uint64_t), .unit = 1};
}

static const struct hl_collective_args confirmation = {.kind = HL_BARRIER, .lane = LANE_SMALL};

static double bytes_out(const struct hl_strategy_env *env, const struct hl_collective_args *args) {
    return (double)hl_collective_cost(args, env->rank, env->n_ranks).bytes_out;
}

/* Fragments of the same offset are exchanged, confirmed and compared together. */
static int n_rounds(const struct hl_local_plan *plan) {
    int n = 1;
    for (int f = 1; f < plan->n_fragments; f++) n += offset_of(plan, f) != offset_of(plan, f - 1);
    return n;
}

static double sent_bytes(const struct hl_strategy_env *env, const struct hl_local_plan *plan) {
    struct hl_collective_args hashes = hashes_of(env);
    double bytes = n_rounds(plan) * (bytes_out(env, &confirmation) + bytes_out(env, &hashes));
    for (int b = 0; b < env->layout->n_blocks; b++) {
        struct hl_collective_args exchange = exchange_of(env, plan, b);
        bytes += bytes_out(env, &exchange);
    }
    return bytes;
}

/* ---- rooms for codes ---- */

static size_t codes_bytes(const struct hl_strategy_env *env, const struct hl_local_plan *plan,
                          int block) {
    return plan->codec->bytes(env->layout->blocks[block].n) * (size_t)env->n_ranks;
}

/* Where the codes of a block lie in its fragment's room. */
static size_t place_of(const struct hl_strategy_env *env, const struct hl_local_plan *plan,
                       int block) {
    size_t at = 0;
    for (int b = fragment_of(plan, block); b < block; b += plan->n_fragments)
        at += codes_bytes(env, plan, b);
    return at;
}

static size_t room_bytes(const struct hl_strategy_env *env, const struct hl_local_plan *plan) {
    size_t most = 0;
    for (int b = 0; b < env->layout->n_blocks && plan->codec; b++) {
        size_t end = place_of(env, plan, b) + codes_bytes(env, plan, b);
        if (end > most) most = end;
    }
    return most;
}

/* Fragments that may be under way at once: those that begin within tau steps of another one. */
static int n_rooms(const struct hl_local_plan *plan) {
    int most = 0;
    for (int f = 0; f < plan->n_fragments && plan->codec; f++) {
        int n = 0;
        for (int g = 0; g < plan->n_fragments; g++) {
            int64_t later = offset_of(plan, g) - offset_of(plan, f) + plan->every;
            n += later % plan->every <= plan->delay;
        }
        if (n > most) most = n;
    }
    return most;
}

struct hl_strategy_need hl_local_cost(const struct hl_strategy_env *env,
                                      const struct hl_local_plan *plan) {
    double n = (double)env->layout->n_parameters;
    return (struct hl_strategy_need){
        .state_bytes_per_parameter = 4.0 * (1 + env->optimizer->n_slots),
        .own_bytes = 4.0 * n * (1 + n_slots(plan) + has_sums(plan) + carries(plan)) +
                     (double)room_bytes(env, plan) * n_rooms(plan),
        .sent_bytes_per_parameter = sent_bytes(env, plan) / n,
        .period_steps = plan->every};
}

/* ---- life ---- */

void hl_local_fini(void *state) {
    struct local *s = state;
    struct hl_mem *mem = s->own.env.mem, *far = s->own.env.far;
    for (int i = 0; i < n_slots(&s->plan); i++) hl_free(far, s->slots[i]);
    hl_free(far, s->other);
    hl_free(far, s->sums);
    hl_free(far, s->sent);
    hl_free(mem, s->scratch);
    hl_free(mem, s->rounds);
    hl_free(mem, s->pending);
    hl_free(mem, s->summed);
    hl_free(mem, s->exchanges);
    hl_free(mem, s->codes);
    hl_free(mem, s->room_of);
    hl_free(mem, s->rooms);
    hl_free(mem, s->taken);
    hl_own_step_fini(&s->own);
    hl_free(mem, s);
}

static bool allocate(struct local *s) {
    const struct hl_strategy_env *env = &s->own.env;
    size_t n = (size_t)env->layout->n_parameters, blocks = (size_t)env->layout->n_blocks,
           fragments = (size_t)s->plan.n_fragments;
    s->n_rooms = n_rooms(&s->plan);
    s->room_bytes = room_bytes(env, &s->plan);
    size_t scratch =
        s->plan.outer ? (size_t)hl_optimizer_scratch(s->plan.outer, env->layout) : (size_t)0;
    bool good = (s->other = hl_alloc(env->far, n, sizeof *s->other)) &&
                (s->rounds = hl_alloc(env->mem, blocks, sizeof *s->rounds)) &&
                (s->pending = hl_alloc(env->mem, blocks, sizeof *s->pending)) &&
                (s->summed = hl_alloc(env->mem, blocks, sizeof *s->summed)) &&
                (s->exchanges = hl_alloc(env->mem, blocks, sizeof *s->exchanges)) &&
                (s->codes = hl_alloc(env->mem, blocks, sizeof *s->codes)) &&
                (s->room_of = hl_alloc(env->mem, fragments, sizeof *s->room_of)) &&
                (s->rooms = hl_alloc(env->mem, (size_t)s->n_rooms, s->room_bytes)) &&
                (s->taken = hl_alloc(env->mem, (size_t)s->n_rooms, sizeof *s->taken)) &&
                (s->scratch = hl_alloc(env->mem, scratch, sizeof *s->scratch));
    if (good && has_sums(&s->plan))
        good = (s->sums = hl_alloc(env->far, n, sizeof *s->sums)) != NULL;
    if (good && carries(&s->plan))
        good = (s->sent = hl_alloc(env->far, n, sizeof *s->sent)) != NULL;
    for (int i = 0; i < n_slots(&s->plan) && good; i++) {
        (void)snprintf(s->slot_names[i], sizeof s->slot_names[i], "outer_%s",
                       s->plan.outer->slot_names[i]);
        good = (s->slots[i] = hl_alloc(env->far, n, sizeof(float))) != NULL;
    }
    return good;
}

enum hl_status hl_local_init(const struct hl_strategy_env *env, const struct hl_local_plan *plan,
                             void **state_out, struct hl_diag *diag) {
    struct local *s = hl_alloc(env->mem, 1, sizeof *s);
    if (!s) return hl_fail_memory(diag, sizeof *s, "the strategy");
    enum hl_status status = hl_own_step_init(env, &s->own, diag);
    s->own.env = *env;
    s->plan = *plan;
    assert(plan->n_fragments >= 1 && plan->delay < plan->every);
    if (status == HL_OK && !allocate(s))
        status = hl_fail_memory(diag, (unsigned long long)hl_local_cost(env, plan).own_bytes,
                                "the outer weights and their state");
    for (int f = 0; f < plan->n_fragments && status == HL_OK; f++) s->room_of[f] = -1;
    if (status == HL_OK) *state_out = s;
    else hl_local_fini(s);
    return status;
}

/* ---- whose weights are where ---- */

static float *master_of(const struct local *s, struct hl_range range) {
    return hl_engine_data(s->own.env.engine, HL_BUFFER_MASTER, range);
}
static float *sums_of(const struct local *s, struct hl_range range) {
    return s->sums ? s->sums + range.offset
                   : hl_engine_data(s->own.env.engine, HL_BUFFER_GRAD, range);
}

enum hl_status hl_local_start(void *state, struct hl_diag *diag) {
    struct local *s = state;
    const struct hl_layout *layout = s->own.env.layout;
    (void)diag;
    for (int b = 0; b < layout->n_blocks; b++) {
        struct hl_range range = layout->blocks[b];
        memcpy(s->other + range.offset, master_of(s, range), (size_t)range.n * sizeof(float));
        if (s->sent)
            memcpy(s->sent + range.offset, master_of(s, range), (size_t)range.n * sizeof(float));
    }
    return HL_OK;
}

void hl_local_view(void *state, bool on) {
    struct local *s = state;
    const struct hl_layout *layout = s->own.env.layout;
    (void)on;
    for (int b = 0; b < layout->n_blocks; b++) {
        struct hl_range range = layout->blocks[b];
        float *master = master_of(s, range), *other = s->other + range.offset;
        for (int64_t i = 0; i < range.n; i++) {
            float held = master[i];
            master[i] = other[i];
            other[i] = held;
        }
        hl_engine_publish(s->own.env.engine, s->own.env.kernels, range);
    }
}

/* A rank that joins lacks `inner` and `sent`, which begin as the outer weights. */
int hl_local_saved(void *state, struct hl_saved_state *out, int capacity) {
    struct local *s = state;
    int64_t n = s->own.env.layout->n_parameters, blocks = s->own.env.layout->n_blocks;
    int k = 0;
    assert(capacity >= 6 + HL_OPTIMIZER_MAX_SLOTS);
    (void)capacity;
    out[k++] = (struct hl_saved_state){"inner", s->other, n, HL_SAVED_OWN, false};
    out[k++] = (struct hl_saved_state){"rounds", s->rounds, blocks, HL_SAVED_ALIKE, false};
    for (int i = 0; i < n_slots(&s->plan); i++)
        out[k++] = (struct hl_saved_state){s->slot_names[i], s->slots[i], n, HL_SAVED_ALIKE, false};
    if (s->sent) out[k++] = (struct hl_saved_state){"sent", s->sent, n, HL_SAVED_OWN, false};
    if (!s->sums) return k;
    out[k++] = (struct hl_saved_state){"sums", s->sums, n, HL_SAVED_ALIKE, false};
    out[k++] = (struct hl_saved_state){"pending", s->pending, blocks, HL_SAVED_ALIKE, false};
    out[k++] = (struct hl_saved_state){"summed", s->summed, blocks, HL_SAVED_ALIKE, false};
    return k;
}

/* ---- steps of this rank ---- */

enum hl_status hl_local_grad_ready(void *state, int block, bool last_micro, struct hl_diag *diag) {
    struct local *s = state;
    (void)diag;
    hl_own_step_grad_ready(&s->own, block, last_micro);
    return HL_OK;
}

/* What is in flight goes on between blocks. */
enum hl_status hl_local_block_exit(void *state, int block, bool backward, struct hl_diag *diag) {
    struct local *s = state;
    (void)block, (void)backward;
    if (!s->plan.delay) return HL_OK;
    enum hl_status status = hl_group_poll(s->own.env.group, diag);
    return status < 0 ? status : HL_OK;
}

enum hl_status hl_local_step_end(void *state, const struct hl_step *step,
                                 struct hl_step_result *out, struct hl_diag *diag) {
    struct local *s = state;
    enum hl_status status = hl_own_step_end(&s->own, step, out, diag);
    if (status != HL_OK || !out->applied) return status;
    s->step = step->index + 1;
    for (int b = 0; b < s->own.env.layout->n_blocks; b++)
        if (s->pending[b] > 1) s->pending[b]--;
    return HL_OK;
}

/* ---- the outer round ---- */

bool hl_local_sync_due(void *state, int64_t step) {
    const struct local *s = state;
    for (int b = 0; b < s->own.env.layout->n_blocks; b++)
        if (is_mature(s, b) || is_due(&s->plan, b, step)) return true;
    return false;
}

static enum hl_status not_finite(const struct local *s, const char *whose, struct hl_diag *diag) {
    return hl_fail(diag, HL_E_NUMERIC,
                   "step %lld: %s change of the weights since the last outer step is not finite; "
                   "the next one was not taken. Try a lower learning_rate or a smaller sync_every, "
                   "from the last checkpoint",
                   (long long)s->step, whose);
}

/* The block's place in its fragment's room; the first of its blocks takes one. */
static char *take_room(struct local *s, int block) {
    int *room = &s->room_of[fragment_of(&s->plan, block)];
    if (*room < 0) {
        for (*room = 0; s->taken[*room]; ++*room) assert(*room + 1 < s->n_rooms);
        s->taken[*room] = true;
    }
    return s->rooms + (size_t)*room * s->room_bytes + place_of(&s->own.env, &s->plan, block);
}

/* The last of a fragment's blocks gives the room back. */
static void leave_room(struct local *s, int block) {
    int fragment = fragment_of(&s->plan, block);
    s->codes[block] = NULL;
    for (int b = fragment; b < s->own.env.layout->n_blocks; b += s->plan.n_fragments)
        if (s->codes[b]) return;
    s->taken[s->room_of[fragment]] = false;
    s->room_of[fragment] = -1;
}

/* This rank's code, in its place among those of all ranks. errors HL_E_NUMERIC */
static enum hl_status encode(struct local *s, int block, const float *delta) {
    int64_t n = s->own.env.layout->blocks[block].n;
    s->codes[block] = take_room(s, block);
    return s->plan.codec->encode(
        n, delta, s->codes[block] + s->plan.codec->bytes(n) * (size_t)s->own.env.rank);
}

/* Codes that have come, one's own too, are added up in rank order. */
static void decode(struct local *s, int block) {
    struct hl_range range = s->own.env.layout->blocks[block];
    const char *code = s->codes[block];
    if (!code) return;
    s->plan.codec->decode(range.n, code, sums_of(s, range));
    for (int r = 1; r < s->own.env.n_ranks; r++)
        s->plan.codec->add(range.n, 1, code += s->plan.codec->bytes(range.n), sums_of(s, range));
    leave_room(s, block);
}

static enum hl_status start_exchange(struct local *s, int block, struct hl_diag *diag) {
    struct hl_range range = s->own.env.layout->blocks[block];
    const float *inner = master_of(s, range), *outer = s->other + range.offset;
    float *delta = sums_of(s, range);
    for (int64_t i = 0; i < range.n; i++) delta[i] = outer[i] - inner[i];
    if (s->sent) memcpy(s->sent + range.offset, inner, (size_t)range.n * sizeof *inner);
    if (s->plan.codec && encode(s, block, delta) != HL_OK)
        return not_finite(s, "this rank's", diag);
    struct hl_collective_args args = exchange_of(&s->own.env, &s->plan, block);
    args.lane = LANE_SUMS % hl_group_n_lanes(s->own.env.group);
    args.data = s->plan.codec ? (void *)s->codes[block] : delta;
    hl_collective_start(s->own.env.group, &args, &s->exchanges[block]);
    s->pending[block] = (float)(s->plan.delay + 1);
    s->summed[block] = (float)s->own.env.n_ranks;
    return HL_OK;
}

/* Blocks of fragments that are due. One that other options, before a restart, have under way is
 * finished first. */
static enum hl_status begin_due(struct local *s, struct hl_diag *diag) {
    enum hl_status status = HL_OK;
    for (int b = 0; b < s->own.env.layout->n_blocks && status == HL_OK; b++)
        if (s->pending[b] == 0 && is_due(&s->plan, b, s->step)) status = start_exchange(s, b, diag);
    return status;
}

static bool any_mature(const struct local *s) {
    for (int b = 0; b < s->own.env.layout->n_blocks; b++)
        if (is_mature(s, b)) return true;
    return false;
}

/* Mature sums are here, or all when there is no round. */
static bool have_come(const struct local *s) {
    for (int b = 0; b < s->own.env.layout->n_blocks; b++)
        if ((s->stage == IDLE || is_mature(s, b)) &&
            hl_collective_status(&s->exchanges[b]) != HL_OK)
            return false;
    return true;
}

static bool is_ready(const struct local *s) {
    bool small = s->stage == CONFIRMING || s->stage == COMPARING;
    return small ? hl_collective_status(&s->small) == HL_OK : have_come(s);
}

enum hl_status hl_local_poll(void *state, struct hl_diag *diag) {
    struct local *s = state;
    enum hl_status status = hl_group_poll(s->own.env.group, diag);
    return status < 0 ? status : is_ready(s) ? HL_OK : HL_PENDING;
}

enum hl_status hl_local_drain(void *state, struct hl_diag *diag) {
    struct local *s = state;
    enum hl_status status = hl_local_poll(state, diag);
    for (int b = 0; b < s->own.env.layout->n_blocks && status == HL_OK; b++) decode(s, b);
    return status;
}

/* errors HL_E_NUMERIC, on all ranks */
static enum hl_status add_up(struct local *s, struct hl_diag *diag) {
    const struct hl_strategy_env *env = &s->own.env;
    double sum = 0;
    for (int b = 0; b < env->layout->n_blocks; b++) {
        struct hl_range range = env->layout->blocks[b];
        if (!is_mature(s, b)) continue;
        decode(s, b);
        sum += env->kernels->sum_squares(range.n, sums_of(s, range)) / s->summed[b] / s->summed[b];
    }
    s->norm = sqrt(sum);
    if (isfinite(s->norm)) return HL_OK;
    return not_finite(s, "the ranks' mean", diag);
}

/* outer = outer - mean of Delta, which is the mean of the ranks' weights. */
static void average(struct local *s, struct hl_range range) {
    const struct hl_strategy_env *env = &s->own.env;
    const struct hl_sgd plain = {.lr = 1, .grad_scale = 1 / (float)env->n_ranks};
    float *outer = s->other + range.offset;
    if (env->n_ranks == 1) memcpy(outer, master_of(s, range), (size_t)range.n * sizeof *outer);
    else env->kernels->sgd(range.n, &plain, sums_of(s, range), outer, NULL, NULL);
}

static enum hl_status update_outer(struct local *s, int block, struct hl_diag *diag) {
    const struct hl_strategy_env *env = &s->own.env;
    struct hl_range range = env->layout->blocks[block];
    s->rounds[block]++;
    if (!s->plan.outer) return average(s, range), HL_OK;
    struct hl_update u = {.kernels = env->kernels,
                          .options = &s->plan.outer_options,
                          .step = (int64_t)s->rounds[block],
                          .learning_rate = s->plan.outer_lr,
                          .grad_scale = 1 / s->summed[block],
                          .grad = sums_of(s, range),
                          .master = s->other + range.offset,
                          .products = env->products,
                          .scratch = s->scratch};
    for (int i = 0; i < n_slots(&s->plan); i++) u.slots[i] = s->slots[i] + range.offset;
    return hl_optimizer_apply(s->plan.outer, &u, env->layout, range, diag);
}

/* What this rank goes on from. No arithmetic where there is nothing to mix: -0 and infinity stay
 * what they are. */
static void meet(struct local *s, int block) {
    struct hl_range range = s->own.env.layout->blocks[block];
    float *inner = master_of(s, range), keep = (float)s->plan.alpha,
          take = (float)(1 - s->plan.alpha);
    const float *outer = s->other + range.offset;
    if (s->sent) {
        const float *sent = s->sent + range.offset;
        for (int64_t i = 0; i < range.n; i++) inner[i] = outer[i] + (inner[i] - sent[i]);
    } else if (s->plan.alpha == 0) memcpy(inner, outer, (size_t)range.n * sizeof *inner);
    else if (s->plan.alpha < 1)
        for (int64_t i = 0; i < range.n; i++) inner[i] = keep * inner[i] + take * outer[i];
    hl_engine_publish(s->own.env.engine, s->own.env.kernels, range);
}

/* All ranks have all sums: use them, and begin to compare. */
static enum hl_status outer_step(struct local *s, struct hl_diag *diag) {
    const struct hl_strategy_env *env = &s->own.env;
    uint64_t hash = 0;
    enum hl_status status = add_up(s, diag);
    for (int b = 0; b < env->layout->n_blocks && status == HL_OK; b++) {
        struct hl_range range = env->layout->blocks[b];
        if (!is_mature(s, b)) continue;
        status = update_outer(s, b, diag);
        meet(s, b);
        s->pending[b] = 0;
        hash = XXH3_64bits_withSeed(s->other + range.offset, (size_t)range.n * sizeof(float), hash);
    }
    if (!s->sums) hl_engine_grad_clear(env->engine);
    if (status != HL_OK) return status;
    struct hl_collective_args args = hashes_of(env);
    args.data = s->hashes;
    s->hashes[env->rank] = hash;
    hl_collective_start(env->group, &args, &s->small);
    return HL_OK;
}

/* Names those that differ from rank 0. */
static enum hl_status compare(const struct local *s, struct hl_diag *diag) {
    char names[200] = "";
    size_t n = 0;
    for (int r = 1; r < s->own.env.n_ranks && n + 8 < sizeof names; r++)
        if (s->hashes[r] != s->hashes[0])
            n += (size_t)snprintf(names + n, sizeof names - n, n ? ", %d" : "%d", r);
    if (n == 0) return HL_OK;
    return hl_fail(diag, HL_E_FORMAT,
                   "step %lld: after the outer step the outer weights of rank %s differ from those "
                   "of rank 0: memory or a network is faulty, or the ranks run different programs; "
                   "go on from the last checkpoint",
                   (long long)s->step, names);
}

/* What has come is used before the next exchange begins: the few bytes that confirm and compare
 * would wait behind all of its bytes, and with them every rank. Only what is used at once begins
 * first. */
enum hl_status hl_local_sync(void *state, struct hl_diag *diag) {
    struct local *s = state;
    enum hl_status status = HL_OK;
    if (s->stage == IDLE) {
        if (!s->plan.delay) status = begin_due(s, diag);
        if (status == HL_OK && any_mature(s)) s->stage = ARRIVING;
    }
    while (status == HL_OK && s->stage != IDLE) {
        status = hl_local_poll(s, diag);
        if (status != HL_OK) return status;
        if (s->stage == ARRIVING) hl_collective_start(s->own.env.group, &confirmation, &s->small);
        else status = s->stage == CONFIRMING ? outer_step(s, diag) : compare(s, diag);
        if (status == HL_OK) s->stage = s->stage == COMPARING ? IDLE : s->stage + 1;
    }
    return status == HL_OK && s->plan.delay ? begin_due(s, diag) : status;
}

int hl_local_metrics(void *state, struct hl_metric *out, int capacity) {
    const struct local *s = state;
    if (capacity < 1) return 0;
    out[0] = (struct hl_metric){"outer_grad_norm", s->norm, false};
    return 1;
}
