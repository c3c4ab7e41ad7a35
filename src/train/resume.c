/* From a trainer to a checkpoint and back: which arrays, and where in the run it is.
 * Everything else a step depends on is a function of these and of the configuration. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "kernels/threads.h"
#include "os/cpu.h"
#include "os/fs.h"
#include "train/state.h"

enum { MAX_ARRAYS = 32 };

/* Optimizer slots, then what the strategy keeps. Names: "optimizer.exp_avg", "strategy.NAME".
 * data NULL: comes from the source, block by block. */
struct arrays {
    struct hl_saved_array items[MAX_ARRAYS];
    char names[MAX_ARRAYS][96];
    int n;
};

static void add_array(struct arrays *a, const char *prefix, const char *name, float *data,
                      int64_t n) {
    (void)snprintf(a->names[a->n], sizeof a->names[0], "%s.%s", prefix, name);
    a->items[a->n] = (struct hl_saved_array){a->names[a->n], data, n};
    a->n++;
}

static void collect(struct hl_trainer *t, struct arrays *a) {
    a->n = 0;
    for (int s = 0; s < t->optimizer->n_slots; s++)
        add_array(a, "optimizer", t->optimizer->slot_names[s], NULL, t->model->layout.n_parameters);
    if (!t->strategy->saved) return;
    struct hl_saved_state saved[MAX_ARRAYS - HL_OPTIMIZER_MAX_SLOTS];
    int n = t->strategy->saved(t->strategy_state, saved, MAX_ARRAYS - HL_OPTIMIZER_MAX_SLOTS);
    for (int i = 0; i < n; i++) add_array(a, "strategy", saved[i].name, saved[i].data, saved[i].n);
}

void hl_trainer_write_loop(const struct hl_trainer *t, struct hl_buf *out) {
    hl_buf_printf(out,
                  "{\"version\": 1, \"step\": %" PRId64 ", \"rows_taken\": %" PRId64
                  ", \"tokens_seen\": %" PRId64,
                  t->step, t->rows_taken, t->tokens_seen);
    hl_buf_printf(out, ", \"seed\": %" PRIu64 ", \"data_hash\": \"%016" PRIx64 "\"", t->setup.seed,
                  hl_dataset_hash(t->setup.dataset));
    hl_buf_puts(out, ", \"optimizer\": ");
    hl_buf_json_string(out, t->optimizer->name);
    hl_buf_puts(out, ", \"strategy\": ");
    hl_buf_json_string(out, t->strategy->name);
    hl_buf_printf(out, ", \"block_size\": %" PRId64 "}", t->setup.block_size);
}

/* What the bits depend on beyond the configuration. */
static void write_made_with(const struct hl_trainer *t, struct hl_buf *out) {
    hl_buf_puts(out, "{\"halley\": ");
    hl_buf_json_string(out, HALLEY_VERSION);
    hl_buf_puts(out, ", \"isa\": ");
    hl_buf_json_string(out, hl_isa_name(t->kernels->isa));
    hl_buf_puts(out, ", \"products\": ");
    hl_buf_json_string(out, hl_products_describe());
    hl_buf_puts(out, ", \"processor\": ");
    hl_buf_json_string(out, t->processor);
    hl_buf_printf(out, ", \"compute\": \"%s\", \"threads\": %d, \"ranks\": %d}",
                  t->kernels->dtype == HL_BF16 ? "bf16" : "f32", t->threads,
                  hl_group_n_ranks(t->setup.group));
}

/* Rank 0 writes. */
static enum hl_status write_checkpoint(struct hl_trainer *t, const char *output_dir,
                                       const char *tokenizer_json, const char *run_yaml,
                                       struct hl_state_source *from, struct hl_diag *diag) {
    struct arrays arrays;
    const struct hl_checkpoint_source source = {.fetch = hl_state_fetch, .context = from};
    collect(t, &arrays);
    struct hl_buf loop = {.mem = t->mem}, made_with = {.mem = t->mem};
    hl_trainer_write_loop(t, &loop);
    write_made_with(t, &made_with);
    enum hl_status status = hl_fail_memory(diag, 4096, "the checkpoint's records");
    if (!loop.failed && !made_with.failed) {
        struct hl_checkpoint c = {.step = t->step,
                                  .model = t->model,
                                  .source = &source,
                                  .arrays = arrays.items,
                                  .n_arrays = arrays.n,
                                  .loop_json = loop.data,
                                  .tokenizer_json = tokenizer_json,
                                  .run_yaml = run_yaml ? run_yaml : "",
                                  .made_with_json = made_with.data};
        status = hl_checkpoint_save(t->mem, hl_fs_os(), output_dir, &c,
                                    t->setup.options->save_total_limit, t->setup.log, diag);
    }
    hl_buf_free(&loop);
    hl_buf_free(&made_with);
    return status;
}

enum hl_status hl_trainer_save(struct hl_trainer *t, const char *output_dir,
                               const char *tokenizer_json, const char *run_yaml,
                               struct hl_diag *diag) {
    struct hl_state_source source;
    hl_group_tell(t->setup.group, HL_PHASE_SAVE, t->step);
    enum hl_status status = hl_trainer_drain(t, diag);
    if (status == HL_OK) status = hl_state_source_open(t, &source, diag);
    if (status != HL_OK) return status;
    if (hl_group_rank(t->setup.group) == 0)
        status = write_checkpoint(t, output_dir, tokenizer_json, run_yaml, &source, diag);
    struct hl_diag broken;
    enum hl_status finished = hl_state_source_finish(&source, &broken);
    hl_state_source_close(&source);
    if (finished != HL_OK) *diag = broken; /* the group's failure is the graver one */
    return finished != HL_OK ? finished : status;
}

/* ---- back ---- */

static enum hl_status same_text(const json_t *loop, const char *key, const char *now,
                                const char *folder, struct hl_diag *diag) {
    const char *then = json_string_value(json_object_get(loop, key));
    if (then && !strcmp(then, now)) return HL_OK;
    return hl_fail(diag, HL_E_USER,
                   "%s: was made with %s '%s', but this run has '%s'; to start a new run from its "
                   "weights use --model %s",
                   folder, key, then ? then : "(none)", now, folder);
}

static enum hl_status same_number(const json_t *loop, const char *key, int64_t now,
                                  const char *folder, struct hl_diag *diag) {
    int64_t then = json_integer_value(json_object_get(loop, key));
    if (then == now) return HL_OK;
    return hl_fail(diag, HL_E_USER,
                   "%s: was made with %s %" PRId64 ", but this run has %" PRId64
                   "; to start a new run from its weights use --model %s",
                   folder, key, then, now, folder);
}

/* Last of the checks: block_size, which has a sentence of its own, is in the hash too. */
static enum hl_status same_data(const struct hl_trainer *t, const json_t *loop, const char *folder,
                                struct hl_diag *diag) {
    char now[20];
    (void)snprintf(now, sizeof now, "%016" PRIx64, hl_dataset_hash(t->setup.dataset));
    const char *then = json_string_value(json_object_get(loop, "data_hash"));
    if (then && !strcmp(then, now)) return HL_OK;
    return hl_fail(diag, HL_E_USER,
                   "%s: was made with other data, or with another tokenizer, validation_split or "
                   "document_mask (data_hash %s, now %s); to start a new run from its weights use "
                   "--model %s",
                   folder, then ? then : "(none)", now, folder);
}

/* Strategies that keep nothing of their own go on from each other's checkpoints. */
static enum hl_status fitting_strategy(const struct hl_trainer *t, const json_t *loop,
                                       const char *folder, struct hl_diag *diag) {
    const char *then = json_string_value(json_object_get(loop, "strategy"));
    const struct hl_strategy *strategy;
    if (then && hl_strategy_find(then, &strategy, NULL) == HL_OK && !strategy->saved &&
        !t->strategy->saved)
        return HL_OK;
    return same_text(loop, "strategy", t->strategy->name, folder, diag);
}

static enum hl_status check_loop(const struct hl_trainer *t, const json_t *loop, const char *folder,
                                 struct hl_diag *diag) {
    enum hl_status status = same_number(loop, "version", 1, folder, diag);
    if (status == HL_OK) status = same_text(loop, "optimizer", t->optimizer->name, folder, diag);
    if (status == HL_OK) status = fitting_strategy(t, loop, folder, diag);
    if (status == HL_OK)
        status = same_number(loop, "block_size", t->setup.block_size, folder, diag);
    if (status == HL_OK) status = same_number(loop, "seed", (int64_t)t->setup.seed, folder, diag);
    if (status == HL_OK) status = same_data(t, loop, folder, diag);
    static const char *const counts[] = {"step", "rows_taken", "tokens_seen"};
    for (size_t i = 0; i < sizeof counts / sizeof *counts && status == HL_OK; i++) {
        const json_t *count = json_object_get(loop, counts[i]);
        if (!json_is_integer(count) || json_integer_value(count) < 0)
            status = hl_fail_at(
                diag, HL_E_FORMAT, folder, 0, 0,
                "loop.json: %s is not a count; the checkpoint is damaged, use an older one",
                counts[i]);
    }
    return status;
}

static enum hl_status check_model(const struct hl_model_config *then,
                                  const struct hl_model_config *now, const char *folder,
                                  struct hl_diag *diag) {
    const struct {
        const char *name;
        int64_t then, now;
    } sizes[] = {
        {"num_hidden_layers", then->num_hidden_layers, now->num_hidden_layers},
        {"hidden_size", then->hidden_size, now->hidden_size},
        {"num_attention_heads", then->num_attention_heads, now->num_attention_heads},
        {"num_key_value_heads", then->num_key_value_heads, now->num_key_value_heads},
        {"head_dim", then->head_dim, now->head_dim},
        {"intermediate_size", then->intermediate_size, now->intermediate_size},
        {"vocab_size", then->vocab_size, now->vocab_size},
    };
    if (then->family != now->family)
        return hl_fail(diag, HL_E_USER, "%s: holds a model of another family than this run's",
                       folder);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i].then != sizes[i].now)
            return hl_fail(diag, HL_E_USER,
                           "%s: its model has %s %" PRId64 ", but this run asks for %" PRId64
                           "; give the same model",
                           folder, sizes[i].name, sizes[i].then, sizes[i].now);
    return HL_OK;
}

static void warn_if_changed(struct hl_trainer *t, const char *then) {
    struct hl_buf now = {.mem = t->mem};
    write_made_with(t, &now);
    json_t *a = then ? json_loads(then, 0, NULL) : NULL,
           *b = now.failed ? NULL : json_loads(now.data, 0, NULL);
    const char *key;
    json_t *value;
    json_object_foreach(b, key, value) {
        const json_t *old = json_object_get(a, key);
        if (!old || json_equal(old, value)) continue;
        if (json_is_string(value) && json_is_string(old))
            hl_log(t->setup.log, HL_LOG_WARN,
                   "%s was '%s' and is '%s' now: going on, but not with the same bits", key,
                   json_string_value(old), json_string_value(value));
        else
            hl_log(t->setup.log, HL_LOG_WARN,
                   "%s was %" JSON_INTEGER_FORMAT " and is %" JSON_INTEGER_FORMAT
                   " now: going on, but perhaps not with the same bits",
                   key, json_integer_value(old), json_integer_value(value));
    }
    json_decref(a);
    json_decref(b);
    hl_buf_free(&now);
}

/* Unless the user wants a number: not more threads per rank than before, since fewer ranks would
 * get more of them, and other bits. More than now are not tried: the cores are not there, or
 * shared. */
static void keep_threads(struct hl_trainer *t, const char *made_with) {
    json_t *then = made_with ? json_loads(made_with, 0, NULL) : NULL;
    json_int_t n = json_integer_value(json_object_get(then, "threads"));
    json_decref(then);
    if (hl_cpu_threads_asked(t->setup.options->threads) || n <= 0 || n >= t->threads) return;
    (void)snprintf(t->threads_why, sizeof t->threads_why,
                   "as before, for the same bits; --threads %d takes all cores", t->threads);
    t->threads = (int)n;
    hl_threads_set(t->threads);
}

enum hl_status hl_trainer_read_loop(struct hl_trainer *t, const char *text, const char *from,
                                    struct hl_diag *diag) {
    json_error_t error;
    json_t *loop = json_loads(text, 0, &error);
    if (!loop)
        return hl_fail_at(diag, HL_E_FORMAT, from, error.line, error.column, "loop.json: %s",
                          error.text);
    enum hl_status status = check_loop(t, loop, from, diag);
    if (status == HL_OK) {
        t->step = json_integer_value(json_object_get(loop, "step"));
        t->rows_taken = json_integer_value(json_object_get(loop, "rows_taken"));
        t->tokens_seen = json_integer_value(json_object_get(loop, "tokens_seen"));
        hl_trainer_progress_changed(t);
    }
    json_decref(loop);
    return status;
}

static enum hl_status read_state(struct hl_trainer *t, struct hl_checkpoint_reader *reader,
                                 const char *folder, struct hl_diag *diag) {
    if (!hl_checkpoint_has_state(reader))
        return hl_fail(
            diag, HL_E_USER,
            "%s: holds weights but no training state; start a new run from them with --model %s",
            folder, folder);
    enum hl_status status = hl_trainer_read_loop(t, hl_checkpoint_loop_json(reader), folder, diag);
    if (status == HL_OK)
        status = check_model(hl_checkpoint_config(reader), &t->model->config, folder, diag);
    if (status == HL_OK) status = hl_state_load_weights(t, reader, diag);
    struct arrays arrays;
    collect(t, &arrays);
    for (int i = 0; i < arrays.n && status == HL_OK; i++)
        status = i < t->optimizer->n_slots
                     ? hl_state_load_slot(t, reader, arrays.items[i].name,
                                          (enum hl_buffer)(HL_BUFFER_SLOT0 + i), diag)
                     : hl_checkpoint_read_array(reader, &arrays.items[i], diag);
    if (status == HL_OK) {
        keep_threads(t, hl_checkpoint_made_with_json(reader));
        warn_if_changed(t, hl_checkpoint_made_with_json(reader));
    }
    return status;
}

enum hl_status hl_trainer_resume(struct hl_trainer *t, const char *folder, struct hl_diag *diag) {
    struct hl_checkpoint_reader *reader;
    enum hl_status status =
        hl_checkpoint_open(t->mem, hl_fs_os(), folder, &reader, t->setup.log, diag);
    if (status != HL_OK) return status;
    status = read_state(t, reader, folder, diag);
    hl_checkpoint_close(reader);
    return status;
}
