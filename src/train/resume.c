/* From a trainer to a checkpoint and back: which arrays, and where in the run it is.
 * Everything else a step depends on is a function of these and of the configuration. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "halley/text_number.h"
#include "kernels/threads.h"
#include "os/cpu.h"
#include "os/fs.h"
#include "train/state.h"

/* Of all ranks, one row each: ints as they are, doubles with all their digits. */
static void write_numbers(const struct hl_state_numbers *names, const double *numbers, int n_ranks,
                          struct hl_buf *out) {
    char text[40];
    hl_buf_puts(out, ", \"ranks\": [");
    for (int r = 0; r < n_ranks; r++)
        for (int i = 0; i < names->n; i++) {
            hl_print_f64(text, sizeof text, numbers[r * names->n + i]);
            hl_buf_puts(out, i ? ", " : r ? ", {" : "{");
            hl_buf_json_string(out, names->names[i]);
            hl_buf_printf(out, ": %s%s", text, i + 1 == names->n ? "}" : "");
        }
    hl_buf_puts(out, "]");
}

void hl_trainer_write_loop(const struct hl_trainer *t, const struct hl_state_numbers *names,
                           const double *numbers, struct hl_buf *out) {
    hl_buf_printf(out,
                  "{\"version\": 1, \"step\": %" PRId64 ", \"rows_taken\": %" PRId64
                  ", \"tokens_seen\": %" PRId64,
                  t->step, t->rows_taken, t->tokens_seen);
    if (hl_trainer_has_pace(t)) hl_buf_printf(out, ", \"step_rows\": %" PRId64, t->step_rows);
    hl_buf_printf(out, ", \"seed\": %" PRIu64 ", \"data_hash\": \"%016" PRIx64 "\"", t->setup.seed,
                  hl_dataset_hash(t->setup.dataset));
    hl_buf_puts(out, ", \"optimizer\": ");
    hl_buf_json_string(out, t->optimizer->name);
    hl_buf_puts(out, ", \"strategy\": ");
    hl_buf_json_string(out, t->strategy->name);
    if (names && names->n) write_numbers(names, numbers, hl_group_n_ranks(t->setup.group), out);
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

/* All that a save takes along. */
struct save {
    struct hl_state_list list;
    struct hl_state_numbers names;
    double *numbers; /* [n_ranks, names.n] */
    struct hl_state_source source;
};

/* Rank 0 writes. */
static enum hl_status write_checkpoint(struct hl_trainer *t, const char *output_dir,
                                       const char *tokenizer_json, const char *run_yaml,
                                       struct save *from, struct hl_diag *diag) {
    const struct hl_checkpoint_source source = {.fetch = hl_state_fetch, .context = &from->source};
    size_t n = (size_t)from->list.n;
    struct hl_saved_array *arrays = hl_alloc(t->mem, n, sizeof *arrays);
    struct hl_buf loop = {.mem = t->mem}, made_with = {.mem = t->mem};
    hl_trainer_write_loop(t, &from->names, from->numbers, &loop);
    write_made_with(t, &made_with);
    enum hl_status status = hl_fail_memory(diag, 4096, "the checkpoint's records");
    if (arrays && !loop.failed && !made_with.failed) {
        for (int i = 1; i < from->list.n; i++) {
            const struct hl_state_array *item = &from->list.items[i];
            float *data = item->kind == HL_STATE_ALIKE ? item->data : NULL;
            arrays[i - 1] = (struct hl_saved_array){item->name, data, item->n};
        }
        struct hl_checkpoint c = {.step = t->step,
                                  .model = t->model,
                                  .source = &source,
                                  .arrays = arrays,
                                  .n_arrays = from->list.n - 1,
                                  .loop_json = loop.data,
                                  .tokenizer_json = tokenizer_json,
                                  .run_yaml = run_yaml ? run_yaml : "",
                                  .made_with_json = made_with.data};
        status = hl_checkpoint_save(t->mem, hl_fs_os(), output_dir, &c,
                                    t->setup.options->save_total_limit, t->setup.log, diag);
    }
    hl_free(t->mem, arrays);
    hl_buf_free(&loop);
    hl_buf_free(&made_with);
    return status;
}

/* Numbers of all ranks, to all. */
static enum hl_status share_numbers(struct hl_trainer *t, struct save *s, struct hl_diag *diag) {
    struct hl_group *group = t->setup.group;
    hl_state_numbers(t, &s->names);
    if (s->names.n == 0) return HL_OK;
    size_t n = (size_t)(s->names.n * hl_group_n_ranks(group));
    s->numbers = hl_alloc(t->mem, n, sizeof *s->numbers);
    if (!s->numbers) return hl_fail_memory(diag, n * sizeof *s->numbers, "the ranks' numbers");
    double *own = s->numbers + hl_group_rank(group) * s->names.n;
    hl_state_numbers_now(&s->names, own);
    return hl_group_share(group, s->numbers, s->names.n, diag);
}

static enum hl_status open_save(struct hl_trainer *t, struct save *s, struct hl_diag *diag) {
    *s = (struct save){0};
    enum hl_status status = hl_trainer_drain(t, diag);
    if (status == HL_OK) status = hl_trainer_view(t, true, diag);
    if (status == HL_OK) status = hl_state_list(t, &s->list, diag);
    if (status == HL_OK) status = share_numbers(t, s, diag);
    if (status == HL_OK) status = hl_state_source_open(t, &s->list, &s->source, diag);
    return status;
}

static void close_save(struct hl_trainer *t, struct save *s) {
    hl_state_source_close(&s->source);
    hl_state_list_free(&s->list);
    hl_free(t->mem, s->numbers);
}

enum hl_status hl_trainer_save(struct hl_trainer *t, const char *output_dir,
                               const char *tokenizer_json, const char *run_yaml,
                               struct hl_diag *diag) {
    struct save s;
    hl_group_tell(t->setup.group, HL_PHASE_SAVE, t->step);
    enum hl_status status = open_save(t, &s, diag), finished = HL_OK;
    struct hl_diag broken;
    if (status == HL_OK) {
        if (hl_group_rank(t->setup.group) == 0)
            status = write_checkpoint(t, output_dir, tokenizer_json, run_yaml, &s, diag);
        finished = hl_state_source_finish(&s.source, &broken);
    }
    close_save(t, &s);
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

/* This rank's numbers, as they were; else from what all had. */
static enum hl_status read_numbers(struct hl_trainer *t, const json_t *rows,
                                   const struct hl_state_past *past, const char *from,
                                   struct hl_diag *diag) {
    struct hl_state_numbers names;
    hl_state_numbers(t, &names);
    if (names.n && !past->number && json_array_size(rows) != (size_t)past->n_ranks)
        return hl_fail_at(diag, HL_E_FORMAT, from, 0, 0,
                          "loop.json: has no numbers of its ranks, and strategy '%s' needs them; "
                          "the checkpoint is damaged, use an older one",
                          t->strategy->name);
    for (int i = 0; i < names.n; i++) {
        double sum = 0, most = 0, own = 0;
        for (int r = 0; r < past->n_ranks; r++) {
            double value = past->number ? past->number(past->context, r, i)
                                        : json_number_value(json_object_get(
                                              json_array_get(rows, (size_t)r), names.names[i]));
            sum += value;
            if (value > most) most = value;
            if (r == past->rank) own = value;
        }
        if (!past->same) own = !names.sums[i] ? most : hl_group_rank(t->setup.group) ? 0 : sum;
        if (names.at[i]) *names.at[i] = (int64_t)own;
        else *names.loss_sum = own;
    }
    return HL_OK;
}

enum hl_status hl_trainer_read_loop(struct hl_trainer *t, const char *text,
                                    const struct hl_state_past *past, const char *from,
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
        int64_t step_rows = json_integer_value(json_object_get(loop, "step_rows"));
        if (hl_trainer_has_pace(t) && step_rows > 0) t->step_rows = step_rows;
        status = read_numbers(t, json_object_get(loop, "ranks"), past, from, diag);
        hl_trainer_progress_changed(t);
    }
    json_decref(loop);
    return status;
}

static int ranks_then(const char *made_with) {
    json_t *then = made_with ? json_loads(made_with, 0, NULL) : NULL;
    json_int_t n = json_integer_value(json_object_get(then, "ranks"));
    json_decref(then);
    return n > 0 ? (int)n : 1;
}

static enum hl_status read_array(void *context, const struct hl_state_array *array, int rank,
                                 int64_t first, int64_t n, float *out, struct hl_diag *diag) {
    char name[sizeof array->name];
    int n_base = (int)strlen(array->name);
    if (array->kind == HL_STATE_OWN) n_base = (int)(strrchr(array->name, '.') - array->name);
    (void)snprintf(name, sizeof name, "%.*s", n_base, array->name);
    if (array->kind == HL_STATE_OWN)
        (void)snprintf(name + n_base, sizeof name - (size_t)n_base, ".rank%d", rank);
    return hl_checkpoint_read_part(context, name, array->n, first, n, out, diag);
}

/* Ranks are those that have their number. */
static struct hl_state_past past_of(const struct hl_trainer *t,
                                    struct hl_checkpoint_reader *reader) {
    int rank = hl_group_rank(t->setup.group), n = hl_group_n_ranks(t->setup.group),
        then = ranks_then(hl_checkpoint_made_with_json(reader));
    return (struct hl_state_past){.n_ranks = then,
                                  .rank = rank < then ? rank : -1,
                                  .same = n == then,
                                  .read = read_array,
                                  .context = reader};
}

static enum hl_status read_state(struct hl_trainer *t, struct hl_checkpoint_reader *reader,
                                 const char *folder, struct hl_diag *diag) {
    if (!hl_checkpoint_has_state(reader))
        return hl_fail(
            diag, HL_E_USER,
            "%s: holds weights but no training state; start a new run from them with --model %s",
            folder, folder);
    const struct hl_state_past past = past_of(t, reader);
    struct hl_state_list list = {.n = 0};
    bool joins = false;
    enum hl_status status = hl_trainer_view(t, true, diag);
    if (status == HL_OK) status = hl_state_list(t, &list, diag);
    if (status == HL_OK)
        status = hl_trainer_read_loop(t, hl_checkpoint_loop_json(reader), &past, folder, diag);
    if (status == HL_OK)
        status = check_model(hl_checkpoint_config(reader), &t->model->config, folder, diag);
    if (status == HL_OK) status = hl_state_load_weights(t, reader, diag);
    if (status == HL_OK) status = hl_state_load(t, &list, &past, &joins, diag);
    hl_state_list_free(&list);
    t->started = !joins;
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
