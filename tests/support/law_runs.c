/* See law_runs.h. */
#include "support/law_runs.h"

#include <assert.h>

#include "support/whole_state.h"
#include "train/state.h"
#include "wires/wrappers.h"

/* ---- what is counted ---- */

/* What the fault wrapper counts: commits and releases. */
static int64_t operations(const struct hl_wire *wire) {
    int64_t to_one = hl_wire_traffic(wire, HL_SENT, HL_ANY, HL_ANY, HL_FOR_ONE).parts,
            to_all = hl_wire_traffic(wire, HL_SENT, HL_ANY, HL_ANY, HL_FOR_EVERYONE).parts,
            in = hl_wire_traffic(wire, HL_RECEIVED, HL_ANY, HL_ANY, HL_ANY).parts;
    return to_one + (wire->n_ranks > 1 ? to_all / (wire->n_ranks - 1) : 0) + in;
}

static struct law_count count(const struct rank_context *r, const struct hl_mem_probe *probe) {
    return (struct law_count){.taken = __atomic_load_n(&probe->n_taken, __ATOMIC_RELAXED),
                              .sent_bytes =
                                  hl_wire_traffic(r->wire, HL_SENT, HL_ANY, HL_ANY, HL_ANY).bytes,
                              .operations = operations(r->wire)};
}

/* ---- what compute reads ---- */

static uint64_t hash(const void *data, size_t n) {
    uint64_t h = 1469598103934665603u;
    for (size_t i = 0; i < n; i++) h = (h ^ ((const unsigned char *)data)[i]) * 1099511628211u;
    return h;
}

static enum hl_status enter(struct hl_trainer *t, int block, struct hl_diag *diag) {
    const struct hl_strategy *s = t->strategy;
    if (!s->block_enter) return HL_OK;
    for (;;) {
        enum hl_status status = s->block_enter(t->strategy_state, block, false, diag);
        if (status != HL_PENDING) return status;
        while ((status = s->poll(t->strategy_state, diag)) == HL_PENDING)
            hl_group_sleep(t->setup.group, 100000000);
        if (status != HL_OK) return status;
    }
}

static enum hl_status hash_blocks(struct hl_trainer *t, struct law_rank *seen,
                                  struct hl_diag *diag) {
    const struct hl_layout *layout = &t->model->layout;
    enum hl_status status = hl_trainer_drain(t, diag);
    if (status == HL_OK) status = hl_trainer_view(t, true, diag);
    for (int b = 0; b < layout->n_blocks && status == HL_OK; b++) {
        status = enter(t, b, diag);
        if (status != HL_OK) break;
        assert(b < LAW_BLOCKS);
        seen->weights[b] = hash(hl_engine_acquire(t->engine, layout->blocks[b]),
                                (size_t)layout->blocks[b].n * hl_dtype_bytes(t->kernels->dtype));
        if (t->strategy->block_exit)
            status = t->strategy->block_exit(t->strategy_state, b, false, diag);
    }
    return status;
}

/* What of a checkpoint is this rank's own, or not in the engine. */
static enum hl_status hash_own(struct hl_trainer *t, struct law_rank *seen, struct hl_diag *diag) {
    struct hl_state_list list;
    struct hl_state_numbers names;
    enum hl_status status = hl_state_list(t, &list, diag);
    seen->own = 0;
    for (int i = 0; i < list.n && status == HL_OK; i++) {
        const struct hl_state_array *a = &list.items[i];
        bool own = a->kind == HL_STATE_OWN && a->rank == hl_group_rank(t->setup.group);
        if (own || a->kind == HL_STATE_ALIKE)
            seen->own = 31 * seen->own + hash(a->data, (size_t)a->n * sizeof *a->data);
    }
    hl_state_list_free(&list);
    hl_state_numbers(t, &names);
    for (int i = 0; i < names.n; i++)
        seen->own = 31 * seen->own + hash(names.at[i] ? (void *)names.at[i] : names.loss_sum, 8);
    return status;
}

static void hash_saved(const struct hl_trainer *t, struct law_run *run) {
    static _Thread_local struct hl_bf16 rounded[LAW_FLOATS];
    for (int b = 0; b < t->model->layout.n_blocks; b++) {
        struct hl_range range = t->model->layout.blocks[b];
        const void *data = run->state + range.offset;
        if (t->kernels->dtype == HL_BF16)
            t->kernels->to_bf16(range.n, run->state + range.offset, rounded), data = rounded;
        run->saved_weights[b] = hash(data, (size_t)range.n * hl_dtype_bytes(t->kernels->dtype));
    }
}

/* ---- a rank ---- */

struct rank_run {
    struct law_run *run;
    struct law_rank *seen;
    struct rank_context *r;
    struct hl_mem_probe *probe;
    struct hl_trainer *t;
};

static enum hl_status between_steps(struct rank_run *k, struct hl_diag *diag) {
    const struct law_plan *p = &k->run->plan;
    enum hl_status status = HL_OK;
    int64_t n;
    if (p->save) status = hl_trainer_save(k->t, p->folder, NULL, NULL, diag);
    if (p->evaluate && status == HL_OK)
        status = hl_trainer_evaluate(k->t, &k->seen->eval_loss[k->seen->n_done], &n, diag);
    return status;
}

static enum hl_status one_step(struct rank_run *k, struct hl_diag *diag) {
    struct hl_step_report report;
    enum hl_status status = hl_trainer_step(k->t, &report, diag);
    if (status != HL_OK) return status;
    int i = k->seen->n_done++;
    k->seen->loss[i] = report.loss;
    k->seen->norm[i] = report.grad_norm;
    k->seen->counts[i + 1] = count(k->r, k->probe);
    return between_steps(k, diag);
}

static enum hl_status look(struct rank_run *k, struct hl_diag *diag) {
    struct law_run *run = k->run;
    k->seen->n_blocks = k->t->model->layout.n_blocks;
    enum hl_status status = hash_blocks(k->t, k->seen, diag);
    if (status == HL_OK) status = hash_own(k->t, k->seen, diag);
    if (status != HL_OK || whole_state_size(k->t) > LAW_FLOATS) return status;
    if (k->r->rank == 0) {
        run->n_state = whole_state_size(k->t);
        run->n_arrays = (int)(run->n_state / k->t->model->layout.n_parameters);
    }
    status = whole_state(k->t, run->state, diag);
    if (status == HL_OK && k->r->rank == 0) hash_saved(k->t, run);
    return status;
}

static enum hl_status train(struct rank_run *k, struct hl_diag *diag) {
    const struct law_plan *p = &k->run->plan;
    enum hl_status status = hl_group_barrier(k->t->setup.group, diag); /* all have joined */
    if (status == HL_OK && p->resume_from) status = hl_trainer_resume(k->t, p->resume_from, diag);
    k->seen->n_parameters = k->t->model->layout.n_parameters;
    k->seen->counts[LAW_AT_START] = count(k->r, k->probe);
    if (status == HL_OK) status = between_steps(k, diag);
    for (int i = 0; i < p->n_steps && status == HL_OK; i++) status = one_step(k, diag);
    if (status == HL_OK && p->save_at_end)
        status = hl_trainer_save(k->t, p->folder, NULL, NULL, diag);
    if (status == HL_OK) status = hl_trainer_drain(k->t, diag);
    k->seen->counts[LAW_AT_SAVED] = count(k->r, k->probe);
    return status == HL_OK ? look(k, diag) : status;
}

/* What the strategy says of itself, on this rank. */
static struct hl_strategy_need need_of(const struct hl_trainer *t) {
    struct hl_strategy_env env = hl_plan_env(&t->setup);
    env.layout = &t->model->layout;
    env.kernels = t->kernels;
    env.optimizer = t->optimizer;
    env.options = t->strategy_options;
    return t->strategy->cost(&env);
}

static enum hl_status make_and_train(struct rank_run *k, struct hl_group **group,
                                     struct hl_diag *diag) {
    const struct law_plan *p = &k->run->plan;
    struct hl_trainer_setup setup = p->world->setup;
    const struct hl_kernels *kernels = NULL;
    int64_t timeout_ns = p->timeout_ns ? p->timeout_ns : 30000000000;
    enum hl_status status = hl_kernels_get(HL_F32, &kernels, diag);
    if (status == HL_OK)
        status = hl_group_new(&k->probe->mem, k->r->wire, kernels, timeout_ns, group, diag);
    if (status == HL_OK && hl_group_paths(*group))
        hl_group_set_share(*group, HL_SHARES * 2 / 3); /* both, and the same parts in each run */
    setup.group = *group;
    if (p->fail_at && p->failing_rank == k->r->rank)
        k->probe->fail_at = k->probe->n_taken + p->fail_at;
    if (status == HL_OK) status = hl_trainer_new(&k->probe->mem, &setup, &k->t, diag);
    if (status != HL_OK) return status;
    if (p->instead) k->t->strategy = p->instead;
    k->seen->need = need_of(k->t);
    if (p->only_make) return HL_OK;
    return train(k, diag);
}

static void run_rank(struct rank_context *r) {
    struct law_run *run = r->shared;
    struct rank_run k = {
        .run = run, .seen = &run->ranks[r->rank], .r = r, .probe = &run->probes[r->rank]};
    struct hl_group *group = NULL;
    struct hl_diag diag = {0};
    k.seen->status = make_and_train(&k, &group, &diag);
    k.seen->diag = diag;
    if (k.seen->status != HL_OK) hl_group_give_up(group, diag.text);
    hl_trainer_free(k.t);
    hl_group_free(group);
    r->wire->ops->close(r->wire);
    r->closed = true;
    k.seen->n_live = k.probe->n_live;
}

/* ---- the run ---- */

struct law_run *law_run(const struct law_plan *plan) {
    struct law_run *run = meeting_memory(sizeof *run);
    if (!run) return NULL;
    run->plan = *plan;
    struct hl_mem *mem[LAW_RANKS];
    assert(plan->n_ranks <= LAW_RANKS && plan->n_steps <= LAW_STEPS);
    for (int r = 0; r < plan->n_ranks; r++) {
        hl_mem_probe_init(&run->probes[r], 0);
        mem[r] = &run->probes[r].mem;
    }
    const struct meeting m = {.wire = plan->wire ? plan->wire : "threads",
                              .wrappers = plan->wrappers,
                              .n_ranks = plan->n_ranks,
                              .n_lanes = 3,
                              .part_bytes = plan->part_bytes ? plan->part_bytes : 4096,
                              .mem = mem};
    run->ran = meeting_run(&m, run_rank, run, &run->killed, run->why);
    return run;
}

void law_run_free(struct law_run *run) { meeting_memory_free(run, sizeof *run); }

bool law_run_is_good(const struct law_run *run, char why[LAW_WHY]) {
    if (!run->ran) return (void)snprintf(why, LAW_WHY, "%s", run->why), false;
    for (int r = 0; r < run->plan.n_ranks; r++) {
        const struct law_rank *k = &run->ranks[r];
        if (run->killed & 1u << r)
            return (void)snprintf(why, LAW_WHY, "rank %d was ended by a signal", r), false;
        if (k->status != HL_OK)
            return (void)snprintf(why, LAW_WHY, "rank %d, after %d steps: %.500s", r, k->n_done,
                                  k->diag.text),
                   false;
    }
    return true;
}

void law_run_name(const struct law_plan *p, char *out, size_t capacity) {
    const struct hl_train_options *o = &p->world->train;
    (void)snprintf(out, capacity, "%s over %s%s%s, %d rank%s, accumulation %lld, %s%s%s",
                   o->strategy, p->wire ? p->wire : "threads", p->wrappers ? " with " : "",
                   p->wrappers ? p->wrappers : "", p->n_ranks, p->n_ranks > 1 ? "s" : "",
                   (long long)o->gradient_accumulation_steps, o->bf16 ? "bf16" : "f32",
                   o->reduce_dtype == HL_BF16 ? ", bf16 gradients on the wire" : "",
                   o->reduce == HL_REDUCE_EACH_MICRO ? ", reduced every micro-batch" : "");
}
