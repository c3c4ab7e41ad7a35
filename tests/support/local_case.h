/* A strategy driven directly by several ranks, without a model: a made-up layout, and gradients on
 * a grid, so that sums and differences of weights are exact in f32. */
#ifndef HALLEY_TESTS_LOCAL_CASE_H
#define HALLEY_TESTS_LOCAL_CASE_H

#include "support/trainer_fixture.h"

#include "support/train_ranks.h"

enum { LOCAL_BLOCKS = 5, LOCAL_RANKS = 4 };
static const int64_t local_sizes[LOCAL_BLOCKS] = {48, 1040, 16, 512, 160};
enum { LOCAL_PARAMETERS = 48 + 1040 + 16 + 512 + 160 };

struct local_case {
    const char *strategy;
    const char *options[12]; /* key, value, ... of the strategy's own */
    int n_ranks, n_steps;
    int first_rank; /* whose gradients rank 0 has */
    int64_t sync_every;
    int failing_rank, fails_at; /* fails_at: gives up before what follows that step; 0: nobody */
    int faulty_rank, faulty_at; /* a bit of its momentum flips after that step; 0: nobody's */

    /* what came of it */
    enum hl_status status[LOCAL_RANKS];
    struct hl_diag diag[LOCAL_RANKS];
    float outer[LOCAL_RANKS][LOCAL_PARAMETERS], inner[LOCAL_RANKS][LOCAL_PARAMETERS];
    double sent[LOCAL_RANKS], said[LOCAL_RANKS]; /* bytes */
};

/* One rank's end of it. */
struct local_rank {
    struct local_case *c;
    struct rank_context *r;
    struct hl_tensor tensors[LOCAL_BLOCKS];
    struct hl_range blocks[LOCAL_BLOCKS];
    struct hl_layout layout;
    struct hl_strategy_env env;
    struct hl_optimizer_options optimizer;
    struct hl_strategy_options options;
    struct hl_config *config;
    const struct hl_strategy *strategy;
    void *state;
};

static inline uint32_t local_noise(uint32_t a, uint32_t b, uint32_t c) {
    uint32_t h = a * 2654435761u ^ b * 2246822519u ^ c * 3266489917u;
    h = (h ^ h >> 15) * 2246822519u;
    return h ^ h >> 13;
}
static inline float local_weight(int64_t i) {
    return ((float)(local_noise(7, 0, (uint32_t)i) % 2049) - 1024) / 1024;
}
static inline float local_gradient(int rank, int step, int64_t i) {
    return ((float)(local_noise((uint32_t)rank, (uint32_t)step + 1, (uint32_t)i) % 129) - 64) / 64;
}

static inline void local_layout(struct local_rank *k) {
    int64_t at = 0;
    for (int b = 0; b < LOCAL_BLOCKS; at += local_sizes[b++]) {
        k->blocks[b] = (struct hl_range){at, local_sizes[b]};
        k->tensors[b] = (struct hl_tensor){.block = b,
                                           .offset = at,
                                           .n = local_sizes[b],
                                           .rows = 8,
                                           .padded_rows = 8,
                                           .cols = local_sizes[b] / 8,
                                           .n_dims = 2,
                                           .decay = true};
    }
    k->layout = (struct hl_layout){.n_parameters = at,
                                   .n_weights = at,
                                   .n_blocks = LOCAL_BLOCKS,
                                   .blocks = k->blocks,
                                   .n_tensors = LOCAL_BLOCKS,
                                   .tensors = k->tensors};
}

static inline enum hl_status local_options(struct local_rank *k, struct hl_diag *diag) {
    struct hl_option_set sets[HL_MAX_STRATEGIES];
    int n = hl_strategy_option_sets(&k->options, sets);
    enum hl_status status = hl_config_new(hl_mem_default(), sets, (size_t)n, &k->config, diag);
    for (int i = 0; status == HL_OK && k->c->options[i]; i += 2) {
        char key[80];
        (void)snprintf(key, sizeof key, "%s.%s", k->c->strategy, k->c->options[i]);
        status = hl_config_set(k->config, key, &k->c->options[i + 1], 1, "test", 0, diag);
    }
    return status;
}

static inline enum hl_status local_open(struct local_rank *k, struct hl_diag *diag) {
    const struct hl_engine_shape shape = {.train = true, .n_slots = 1};
    local_layout(k);
    k->optimizer = (struct hl_optimizer_options){.adam_beta1 = 0.9,
                                                 .adam_beta2 = 0.95,
                                                 .adam_epsilon = 1e-8,
                                                 .lion_beta1 = 0.9,
                                                 .lion_beta2 = 0.99,
                                                 .muon_momentum = 0.95,
                                                 .muon_steps = 5};
    k->env = (struct hl_strategy_env){.mem = hl_mem_default(),
                                      .far = hl_mem_default(),
                                      .layout = &k->layout,
                                      .optimizer_options = &k->optimizer,
                                      .rank = k->r->rank,
                                      .n_ranks = k->r->n_ranks,
                                      .accumulation = 1,
                                      .sync_every = k->c->sync_every};
    enum hl_status status = hl_kernels_get(HL_F32, &k->env.kernels, diag);
    if (status == HL_OK) status = hl_optimizer_find("sgd", &k->env.optimizer, diag);
    if (status == HL_OK) status = local_options(k, diag);
    if (status == HL_OK) status = hl_strategy_find(k->c->strategy, &k->strategy, diag);
    if (status == HL_OK)
        status = hl_group_new(hl_mem_default(), k->r->wire, k->env.kernels, 20000000000,
                              &k->env.group, diag);
    if (status == HL_OK)
        status = hl_engine_new(hl_mem_default(), &k->layout, &shape, &k->env.engine, diag);
    if (status == HL_OK) k->env.options = hl_strategy_options_of(&k->options, k->strategy);
    if (status == HL_OK) status = k->strategy->check(&k->env, diag);
    if (status == HL_OK) status = k->strategy->init(&k->env, &k->state, diag);
    return status;
}

static inline void local_close(struct local_rank *k) {
    if (k->state) k->strategy->fini(k->state);
    hl_engine_free(k->env.engine);
    hl_group_free(k->env.group);
    hl_config_free(k->config);
}

/* As the loop does. */
static inline bool local_again(struct local_rank *k, enum hl_status *status, struct hl_diag *diag) {
    if (*status != HL_PENDING) return false;
    while ((*status = k->strategy->poll(k->state, diag)) == HL_PENDING)
        hl_group_sleep(k->env.group, 1000000);
    return *status == HL_OK;
}

static inline enum hl_status local_step(struct local_rank *k, int index, struct hl_diag *diag) {
    const struct hl_step step = {.index = index, .n_supervised = 1, .learning_rate = 0.0625};
    struct hl_step_result result;
    enum hl_status status = HL_OK;
    float *grad = hl_engine_data(k->env.engine, HL_BUFFER_GRAD, hl_layout_all(&k->layout));
    for (int64_t i = 0; i < LOCAL_PARAMETERS; i++)
        grad[i] = local_gradient(k->c->first_rank + k->r->rank, index, i);
    for (int b = LOCAL_BLOCKS - 1; b >= 0 && status == HL_OK; b--) {
        do status = k->strategy->grad_ready(k->state, b, true, diag);
        while (local_again(k, &status, diag));
        if (status == HL_OK && k->strategy->block_exit)
            status = k->strategy->block_exit(k->state, b, true, diag);
    }
    if (status != HL_OK) return status;
    do status = k->strategy->step_end(k->state, &step, &result, diag);
    while (local_again(k, &status, diag));
    return status;
}

static inline enum hl_status local_sync(struct local_rank *k, int n_done, struct hl_diag *diag) {
    enum hl_status status = HL_OK;
    if (!k->strategy->sync_due || !k->strategy->sync_due(k->state, n_done)) return HL_OK;
    do status = k->strategy->sync(k->state, diag);
    while (local_again(k, &status, diag));
    return status;
}

static inline void local_flip(struct local_rank *k) {
    struct hl_saved_state saved[16];
    int n = k->strategy->saved(k->state, saved, 16);
    for (int i = 0; i < n; i++)
        if (!strcmp(saved[i].name, "outer_momentum_buffer")) *(float *)saved[i].data += 1;
}

static inline enum hl_status local_train(struct local_rank *k, struct hl_diag *diag) {
    const struct local_case *c = k->c;
    int rank = k->r->rank;
    enum hl_status status = HL_OK;
    for (int i = 0; i < c->n_steps && status == HL_OK; i++) {
        status = local_step(k, i, diag);
        if (c->fails_at == i + 1 && c->failing_rank == rank)
            return hl_group_give_up(k->env.group, "it was told to"), HL_E_STOPPED;
        if (c->faulty_at == i + 1 && c->faulty_rank == rank) local_flip(k);
        if (status == HL_OK) status = local_sync(k, i + 1, diag);
    }
    return status;
}

static inline void local_run_rank(struct rank_context *r) {
    struct local_case *c = r->shared;
    struct local_rank k = {.c = c, .r = r};
    struct hl_diag *diag = &c->diag[r->rank];
    struct hl_saved_state saved[16];
    if (local_open(&k, diag) != HL_OK) {
        ranks_fail(r, "%s", diag->text);
        hl_group_give_up(k.env.group, diag->text);
        local_close(&k);
        return;
    }
    struct hl_range all = hl_layout_all(&k.layout);
    float *master = hl_engine_data(k.env.engine, HL_BUFFER_MASTER, all);
    for (int64_t i = 0; i < all.n; i++) master[i] = local_weight(i);
    if (k.strategy->start) ranks_check(r, k.strategy->start(k.state, diag) == HL_OK);
    if (k.strategy->view) k.strategy->view(k.state, false);
    c->status[r->rank] = local_train(&k, diag);
    size_t bytes = (size_t)all.n * sizeof *master;
    memcpy(c->inner[r->rank], master, bytes);
    if (k.strategy->view) k.strategy->view(k.state, true);
    memcpy(c->outer[r->rank], master, bytes);
    if (k.strategy->saved && k.strategy->saved(k.state, saved, 16) > 0)
        ranks_check(r, !memcmp(saved[0].data, c->inner[r->rank], bytes));
    struct hl_strategy_need need = k.strategy->cost(&k.env);
    c->said[r->rank] =
        need.sent_bytes_per_parameter * (double)all.n * c->n_steps / (double)need.period_steps;
    c->sent[r->rank] = (double)hl_group_counted(k.env.group).bytes_out;
    local_close(&k);
}

static inline void local_run(struct local_case *c) {
    ranks_run(c->n_ranks, RANKS_LANES, RANKS_PART, local_run_rank, c);
}
/* No rank failed, and all hold the same outer weights. */
static inline void local_good(const struct local_case *c) {
    for (int r = 0; r < c->n_ranks; r++) {
        if (c->status[r] != HL_OK) fail_msg("rank %d: %s", r, c->diag[r].text);
        assert_memory_equal(c->outer[r], c->outer[0], sizeof c->outer[0]);
    }
}

/* ---- with a model ---- */

/* Rows of equally many targets (enough for all steps: an epoch's last one is short), no clipping.
 */
static inline void local_even_world(struct world *w, const char *optim) {
    struct hl_diag diag = {0};
    char path[128], *item = path;
    open_world(w, optim);
    (void)snprintf(path, sizeof path, "%s/letters.txt", w->folder);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (int i = 0; i < 12000; i++) fputc('a' + (i * 31 + i / 7 * i % 11) % 26, f);
    assert_int_equal(fclose(f), 0);
    hl_dataset_free(w->dataset);
    w->dataset = NULL;
    struct hl_data_options data = w->data;
    data.data = (struct hl_string_list){&item, 1};
    data.text_format = HL_TEXT_DOCUMENT;
    if (hl_dataset_open(hl_mem_default(), &data, w->tokenizer, 1, NULL, &w->dataset, &diag) !=
        HL_OK)
        fail_msg("%s", diag.text);
    w->setup.dataset = w->dataset;
    set_word(w, "max_grad_norm", "0");
    set_word(w, "max_steps", "20");
    set_word(w, "learning_rate", "0.05");
    set_word(w, "momentum", "0");
    set_word(w, "weight_decay", "0");
}

static inline void local_losses(struct world *w, const char *strategy, int n_ranks,
                                double *loss_out) {
    struct ranks_job job = {.world = w, .n_steps = RANKS_STEPS};
    set_word(w, "strategy", strategy);
    ranks_job_run(&job, n_ranks);
    memcpy(loss_out, job.loss, sizeof job.loss);
    free(job.state);
}

static inline void local_near(const double *a, const double *b, const char *what) {
    for (int i = 0; i < RANKS_STEPS; i++)
        if (!(fabs(a[i] - b[i]) <= 1e-5 * fabs(b[i])))
            fail_msg("%s: step %d: losses %.9g and %.9g", what, i + 1, a[i], b[i]);
}

/* ---- more and fewer ranks ---- */

struct local_join {
    const struct world *world;
    const char *from;                    /* a checkpoint */
    uint64_t outer, inner[HL_MAX_RANKS]; /* hashes, when resumed */
    bool trains;
};

/* Resumes, looks, and - if wanted - does two steps and an evaluation. */
static inline void local_resume_rank(struct rank_context *r) {
    struct local_join *j = r->shared;
    struct hl_trainer_setup setup = j->world->setup;
    struct hl_trainer *t = NULL;
    struct hl_group *group = NULL;
    struct hl_diag diag = {0};
    struct hl_step_report report;
    struct hl_saved_state saved[16];
    double loss;
    int64_t n;
    const struct hl_kernels *kernels = NULL;
    enum hl_status status = hl_kernels_get(HL_F32, &kernels, &diag);
    if (status == HL_OK)
        status = hl_group_new(hl_mem_default(), r->wire, kernels, 20000000000, &group, &diag);
    setup.group = group;
    if (status == HL_OK) status = hl_trainer_new(hl_mem_default(), &setup, &t, &diag);
    if (status == HL_OK) status = hl_trainer_resume(t, j->from, &diag);
    if (status == HL_OK) status = hl_trainer_view(t, true, &diag);
    if (status == HL_OK) {
        t->strategy->saved(t->strategy_state, saved, 16);
        size_t bytes = (size_t)t->model->layout.n_parameters * sizeof(float);
        j->inner[r->rank] = ranks_hash(saved[0].data, bytes);
        if (r->rank == 0) j->outer = ranks_hash(hl_trainer_params(t), bytes);
    }
    for (int i = 0; i < 2 && j->trains && status == HL_OK; i++)
        status = hl_trainer_step(t, &report, &diag);
    if (status == HL_OK && j->trains) status = hl_trainer_evaluate(t, &loss, &n, &diag);
    if (status != HL_OK) {
        ranks_fail(r, "%s", diag.text);
        hl_group_give_up(group, diag.text);
    }
    hl_trainer_free(t);
    hl_group_free(group);
}

/* Saved in the middle of an interval by so many ranks, resumed by others: old ranks have their own
 * weights again, new ones begin with the outer ones. */
static inline void local_other_ranks(const char *strategy, int then, int now) {
    struct world w;
    char checkpoint[160];
    struct local_join before = {.world = &w}, after = {.world = &w, .trains = true};
    open_world(&w, "adamw");
    set_word(&w, "strategy", strategy);
    set_word(&w, "sync_every", "2");
    struct ranks_job job = {.world = &w, .n_steps = 3, .save_to = w.folder};
    ranks_job_run(&job, then);
    free(job.state);
    (void)snprintf(checkpoint, sizeof checkpoint, "%s/checkpoint-3", w.folder);
    before.from = after.from = checkpoint;
    ranks_run(then, RANKS_LANES, RANKS_PART, local_resume_rank, &before);
    ranks_run(now, RANKS_LANES, RANKS_PART, local_resume_rank, &after);
    assert_true(before.outer == after.outer);
    for (int r = 0; r < now; r++)
        assert_true(after.inner[r] == (r < then ? before.inner[r] : after.outer));
    for (int r = 0; r < then; r++) assert_true(before.inner[r] != before.outer);
    close_world(&w);
}

#endif
