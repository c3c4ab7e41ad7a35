/* A whole run: when to log, evaluate, sample, save and stop. The steps themselves are step.c's.
 *
 * A metrics row is written every logging_steps, and at each evaluation; evaluation and saving
 * happen between steps and never change the bits of the next one. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "halley/text_number.h"
#include "os/clock.h"
#include "os/fs.h"
#include "os/signal.h"
#include "os/terminal.h"
#include "report/utf8.h"
#include "serve/generate.h"
#include "train/agree.h"
#include "train/elastic.h"
#include "train/fetch.h"
#include "train/folder.h"
#include "train/peak.h"
#include "train/plan.h"
#include "train/state.h"

struct run {
    const struct hl_train_run *setup;
    const struct hl_train_options *o;
    struct hl_mem *mem;
    struct hl_trainer *t;
    struct hl_metrics *metrics;
    struct hl_progress *progress;
    double peak_flops;   /* of products, measured at start */
    double eval_loss;    /* NaN: none yet */
    int64_t saved_step;  /* newest checkpoint of this run, -1 none */
    struct hl_lock lock; /* on output_dir */
    /* since the last metrics row */
    int64_t tokens, n_steps;
    double seconds, data_wait;
    int64_t started_ns;             /* when the first step began */
    struct hl_group_counts counted; /* of the group, until then */
    int64_t snapshot_ns;            /* of elastic.written_ns, until then */
    double step_seconds;            /* smoothed, for the ETA */
    int64_t n_unsaved;              /* checkpoints in a row that could not be written */
    struct hl_elastic elastic;
    bool told_flush;
    bool leads; /* rank 0: writes files and talks */
};

/* Rank 0 speaks for the run. */
static void say(struct run *r, const char *text) {
    if (!r->leads) return;
    if (r->progress) hl_progress_line(r->progress, text);
    else hl_log(r->setup->trainer.log, HL_LOG_INFO, "%s", text);
}

/* A metric that cannot be written (a full disk) is worth a warning, not a run. */
static void warn(struct run *r, enum hl_status status, const struct hl_diag *diag) {
    if (status == HL_OK) return;
    char text[1200];
    (void)snprintf(text, sizeof text, "warning: %s", diag->text);
    say(r, text);
}

/* ---- start ---- */

static enum hl_status load_weights(struct run *r, const char *folder, struct hl_diag *diag) {
    struct hl_checkpoint_reader *reader;
    enum hl_status status =
        hl_checkpoint_open(r->mem, hl_fs_os(), folder, &reader, r->setup->trainer.log, diag);
    if (status != HL_OK) return status;
    status = hl_state_load_weights(r->t, reader, diag);
    hl_checkpoint_close(reader);
    return status;
}

/* Each rank reads its own copy of the folder: all must have read the same. */
static enum hl_status load_start(struct run *r, const char *resume_dir, struct hl_diag *diag) {
    const char *folder = resume_dir ? resume_dir : r->setup->weights_dir;
    struct hl_agree_item items[2];
    if (r->elastic.found) return hl_elastic_restore(&r->elastic, r->t, diag);
    if (!folder) return HL_OK;
    enum hl_status status =
        resume_dir ? hl_trainer_resume(r->t, folder, diag) : load_weights(r, folder, diag);
    if (status != HL_OK) return status;
    char step[32];
    (void)snprintf(step, sizeof step, "%lld", (long long)r->t->step);
    hl_agree_set(&items[0], "its step", step);
    hl_agree_set_hash(&items[1], "the content of its weights", r->t->loaded_hash);
    return hl_agree(r->mem, r->setup->trainer.group,
                    resume_dir ? "checkpoint to go on from" : "model in --model", items, 2, diag);
}

/* The checkpoint to go on from: named, or the newest in output_dir; empty: start anew. */
static enum hl_status look_for_resume(struct run *r, char *path, size_t capacity,
                                      struct hl_diag *diag) {
    path[0] = 0;
    if (*r->o->resume_from_checkpoint) {
        (void)snprintf(path, capacity, "%s", r->o->resume_from_checkpoint);
        return HL_OK;
    }
    if (!r->o->resume) return HL_OK;
    enum hl_status status = hl_checkpoint_latest(r->mem, hl_fs_os(), r->o->output_dir, path,
                                                 capacity, r->setup->trainer.log, diag);
    if (status != HL_END) return status;
    path[0] = 0;
    say(r, "no complete checkpoint to resume from: starting at step 0");
    return HL_OK;
}

/* Rank 0 looks and tells the others: a folder may change while they look. */
static enum hl_status tell_resume(struct run *r, char *path, size_t capacity,
                                  struct hl_diag *diag) {
    enum hl_status status = HL_OK;
    memset(path, 0, capacity);
    if (r->leads) status = look_for_resume(r, path, capacity, diag);
    if (status != HL_OK) return status;
    return hl_group_broadcast(r->setup->trainer.group, path, capacity, diag);
}

/* ... and sends it to machines that do not have it. */
static enum hl_status find_resume(struct run *r, char path[HL_PATH_CAPACITY],
                                  struct hl_diag *diag) {
    char text[100];
    int n = 0;
    enum hl_status status = tell_resume(r, path, HL_PATH_CAPACITY, diag);
    if (status == HL_OK && *path)
        status = hl_fetch_checkpoint(r->mem, hl_fs_os(), r->setup->trainer.group, r->o->output_dir,
                                     path, &n, diag);
    (void)snprintf(text, sizeof text, "the checkpoint was sent to %d machine%s that lacked it", n,
                   n == 1 ? "" : "s");
    if (status == HL_OK && n > 0) say(r, text);
    return status;
}

static enum hl_status write_records(struct run *r, struct hl_diag *diag) {
    enum hl_status status = HL_OK;
    if (r->setup->run_yaml)
        status =
            hl_run_folder_write(hl_fs_os(), r->o->output_dir, "run.yaml", r->setup->run_yaml, diag);
    if (status != HL_OK) return status;
    struct hl_buf text = {.mem = r->mem};
    hl_buf_puts(&text, "{\"model\": ");
    hl_model_config_to_json(&r->t->model->config, &text);
    hl_buf_printf(
        &text, ", \"parameters\": %lld, \"processor\": ", (long long)r->t->model->layout.n_weights);
    hl_buf_json_string(&text, r->t->processor);
    hl_buf_puts(&text, ", \"isa\": ");
    hl_buf_json_string(&text, hl_isa_name(r->t->kernels->isa));
    hl_buf_puts(&text, ", \"products\": ");
    hl_buf_json_string(&text, hl_products_describe());
    hl_buf_printf(
        &text,
        ", \"threads\": %d, \"train_tokens\": %lld, \"validation_tokens\": %lld, \"halley\": "
        "\"%s\", \"strategy\": \"%s\", \"ranks\": %d, \"sent_bytes_per_step\": %.0f}\n",
        r->t->threads, (long long)hl_dataset_n_tokens(r->t->setup.dataset, HL_SPLIT_TRAIN),
        (long long)hl_dataset_n_tokens(r->t->setup.dataset, HL_SPLIT_VALIDATION), HALLEY_VERSION,
        r->t->strategy->name, hl_group_n_ranks(r->setup->trainer.group), r->t->sent_bytes_per_step);
    status = text.failed
                 ? hl_fail_memory(diag, text.n, "run.json")
                 : hl_run_folder_write(hl_fs_os(), r->o->output_dir, "run.json", text.data, diag);
    hl_buf_free(&text);
    return status;
}

static void introduce(struct run *r) {
    char text[512], peak[32] = "n/a";
    if (r->peak_flops > 0) hl_print_fixed(peak, sizeof peak, r->peak_flops * 1e-9, 0);
    (void)snprintf(
        text, sizeof text,
        "%lld parameters, %lld steps of %lld x %lld tokens; %lld training and %lld held-out tokens",
        (long long)r->t->model->layout.n_weights, (long long)r->t->n_steps,
        (long long)r->t->step_rows, (long long)r->t->setup.block_size,
        (long long)hl_dataset_n_tokens(r->t->setup.dataset, HL_SPLIT_TRAIN),
        (long long)hl_dataset_n_tokens(r->t->setup.dataset, HL_SPLIT_VALIDATION));
    say(r, text);
    (void)snprintf(text, sizeof text,
                   "%s, %d thread%s (%s), %s kernels, products by %s (%s GFLOP/s here)",
                   r->t->processor, r->t->threads, r->t->threads == 1 ? "" : "s", r->t->threads_why,
                   hl_isa_name(r->t->kernels->isa), hl_products_describe(), peak);
    say(r, text);
}

/* ---- during ---- */

static enum hl_status save(struct run *r, struct hl_diag *diag) {
    if (r->saved_step == r->t->step) return HL_OK;
    struct hl_diag flush;
    enum hl_status flushed = r->metrics ? hl_metrics_flush(r->metrics, &flush) : HL_OK;
    if (!r->told_flush) warn(r, flushed, &flush);
    r->told_flush |= flushed != HL_OK;
    enum hl_status status =
        hl_trainer_save(r->t, r->o->output_dir, r->setup->tokenizer_json, r->setup->run_yaml, diag);
    if (status == HL_OK) r->saved_step = r->t->step;
    return status;
}

/* A checkpoint that cannot be written on the way does not stop training: older ones stay. Said
 * once, and when it works again. */
static void try_save(struct run *r) {
    struct hl_diag lost;
    char text[1400];
    if (save(r, &lost) == HL_OK) {
        if (r->n_unsaved) {
            (void)snprintf(text, sizeof text,
                           "step %lld is saved; %lld checkpoints before it could not be",
                           (long long)r->t->step, (long long)r->n_unsaved);
            say(r, text);
        }
        r->n_unsaved = 0;
    } else if (r->n_unsaved++ == 0) {
        (void)snprintf(
            text, sizeof text,
            "warning: step %lld could not be saved: %s; training goes on, older checkpoints stay",
            (long long)r->t->step, lost.text);
        say(r, text);
    }
}

struct sample {
    struct run *r;
    struct hl_buf text;
};

static bool collect_token(void *context, int32_t token) {
    struct sample *s = context;
    struct hl_diag diag;
    return hl_tokenizer_decode(s->r->setup->tokenizer, &token, 1, true, &s->text, &diag) == HL_OK;
}

static enum hl_status start_of_sample(struct run *r, struct hl_tokens *prompt,
                                      struct hl_diag *diag) {
    const char *text = r->o->sample_prompt;
    if (*text)
        return hl_tokenizer_encode(r->setup->tokenizer, text, strlen(text), false, prompt, diag);
    int32_t eos = hl_tokenizer_eos(r->setup->tokenizer);
    if (eos >= 0) {
        prompt->ids = hl_alloc(r->mem, 1, sizeof *prompt->ids);
        if (!prompt->ids) return hl_fail_memory(diag, 4, "a prompt");
        prompt->ids[0] = eos;
        prompt->n = prompt->capacity = 1;
        return HL_OK;
    }
    return hl_tokenizer_encode(r->setup->tokenizer, "\n", 1, false, prompt, diag);
}

static enum hl_status write_sample(struct run *r, struct hl_engine *weights, struct hl_diag *diag) {
    struct hl_trainer *t = r->t;
    struct hl_tokens prompt = {.mem = r->mem};
    struct sample sample = {r, {.mem = r->mem}};
    struct hl_generate_options options = {.max_new_tokens = r->o->sample_tokens,
                                          .temperature = 0.8,
                                          .top_p = 1,
                                          .seed = t->setup.seed + (uint64_t)t->step,
                                          .ignore_eos = true,
                                          .n_tokens = hl_tokenizer_vocab_size(r->setup->tokenizer)};
    struct hl_generator g = {r->mem, t->model,          weights,
                             t->run, t->kernels->dtype, t->setup.block_size};
    enum hl_status status = start_of_sample(r, &prompt, diag);
    hl_buf_puts(&sample.text, r->o->sample_prompt);
    if (status == HL_OK)
        status = hl_generate(&g, prompt.ids, (int64_t)prompt.n, &options, -1, collect_token,
                             &sample, diag);
    if (status == HL_OK && !sample.text.failed && sample.text.n) {
        struct hl_diag lost;
        warn(r, hl_metrics_text(r->metrics, t->step, "sample", sample.text.data, &lost), &lost);
        struct hl_buf clean = {.mem = r->mem};
        hl_utf8_clean(&clean, sample.text.data, sample.text.n, HL_CLEAN_TERMINAL);
        if (clean.n) say(r, clean.data);
        hl_buf_free(&clean);
    }
    hl_buf_free(&sample.text);
    hl_tokens_free(&prompt);
    return status;
}

/* Rank 0 writes a sample; with weights in slices all ranks bring theirs to it first. */
static enum hl_status take_sample(struct run *r, struct hl_diag *diag) {
    struct hl_engine *own = NULL, *weights = r->t->engine;
    enum hl_status status = hl_trainer_view(r->t, true, diag);
    if (status == HL_OK && !hl_engine_has_all_weights(weights)) {
        status = hl_state_whole_engine(r->t, &own, diag);
        weights = own;
    }
    if (status == HL_OK && r->leads) status = write_sample(r, weights, diag);
    hl_engine_free(own);
    return status;
}

/* Operations of a step's products. */
static double flops_of(const struct run *r, const struct hl_step_report *s) {
    return (double)s->n_tokens * hl_model_flops_per_token(r->t->model, r->t->setup.block_size);
}

/* Other programs may have slowed the measurement at the start: a step that was faster is the better
 * measurement. Not where part of what a step commits was computed before it began. */
static void note_rate(struct run *r, const struct hl_step_report *s) {
    double rate = flops_of(r, s) / s->seconds;
    if (r->peak_flops > 0 && !hl_trainer_has_pace(r->t) &&
        s->n_tokens == r->t->step_rows * r->t->setup.block_size && rate > r->peak_flops)
        r->peak_flops = rate;
}

/* Bytes per step that this rank sent and got, and what it waited; busy: the share of time that it
 * did not wait. */
static int exchange_metrics(struct run *r, struct hl_metric *row) {
    struct hl_group *group = r->setup->trainer.group;
    struct hl_group_counts now = hl_group_counted(group), then = r->counted;
    double steps = r->n_steps > 0 ? (double)r->n_steps : 1;
    double wait = (double)(now.wait_ns - then.wait_ns) * 1e-9;
    int n = 0;
    r->counted = now;
    if (hl_group_n_ranks(group) == 1) return 0;
    row[n++] = (struct hl_metric){"comm_bytes_out",
                                  (double)(now.bytes_out - then.bytes_out) / steps, true};
    row[n++] =
        (struct hl_metric){"comm_bytes_in", (double)(now.bytes_in - then.bytes_in) / steps, true};
    row[n++] = (struct hl_metric){"comm_wait_ms", 1e3 * wait / steps, false};
    if (r->seconds > 0)
        row[n++] = (struct hl_metric){"busy", r->seconds > wait ? 1 - wait / r->seconds : 0, false};
    return n;
}

/* eval_loss NULL: there was no evaluation */
static void write_metrics(struct run *r, const struct hl_step_report *s, const double *eval_loss,
                          double eval_seconds) {
    double rate = r->seconds > 0 ? (double)r->tokens / r->seconds : 0;
    double steps = (double)r->n_steps,
           flops =
               (double)r->tokens * hl_model_flops_per_token(r->t->model, r->t->setup.block_size);
    note_rate(r, s);
    struct hl_metric row[32];
    int n = 0;
    row[n++] = (struct hl_metric){"loss", s->loss, false};
    row[n++] = (struct hl_metric){"grad_norm", s->grad_norm, false};
    row[n++] = (struct hl_metric){"learning_rate", s->learning_rate, false};
    row[n++] = (struct hl_metric){"epoch", s->epoch, false};
    row[n++] = (struct hl_metric){"tokens", (double)r->t->tokens_seen, true};
    if (eval_loss) {
        row[n++] = (struct hl_metric){"eval_loss", *eval_loss, false};
        row[n++] = (struct hl_metric){"eval_runtime", eval_seconds, false};
    }
    row[n++] =
        (struct hl_metric){"train_runtime", 1e-9 * (double)(hl_clock_ns() - r->started_ns), false};
    row[n++] = (struct hl_metric){"tokens_per_second", rate, false};
    row[n++] = (struct hl_metric){"step_ms", steps > 0 ? 1e3 * r->seconds / steps : 0, false};
    row[n++] =
        (struct hl_metric){"data_wait_ms", steps > 0 ? 1e3 * r->data_wait / steps : 0, false};
    if (r->peak_flops > 0 && r->seconds > 0)
        row[n++] = (struct hl_metric){"mfu", flops / r->seconds / r->peak_flops, false};
    n += exchange_metrics(r, row + n);
    if (r->elastic.path && steps > 0)
        row[n++] = (struct hl_metric){
            "snapshot_ms", 1e-6 * (double)(r->elastic.written_ns - r->snapshot_ns) / steps, false};
    r->snapshot_ns = r->elastic.written_ns;
    if (r->t->strategy->metrics)
        n += r->t->strategy->metrics(r->t->strategy_state, row + n,
                                     (int)(sizeof row / sizeof *row) - n);
    struct hl_diag diag;
    warn(r, hl_metrics_write(r->metrics, s->step, row, n, &diag), &diag);
    r->tokens = r->n_steps = 0;
    r->seconds = r->data_wait = 0;
}

static void write_rounds(struct run *r, int64_t step) {
    int64_t counts[2 * HL_MAX_RANKS];
    struct hl_diag diag;
    hl_trainer_rounds(r->t, counts);
    warn(r,
         hl_metrics_rounds(r->metrics, step, counts, hl_group_n_ranks(r->setup->trainer.group),
                           &diag),
         &diag);
}

/* The newest evaluation stays on a terminal's line; in a log it stands where it was made. */
static void show(struct run *r, const struct hl_step_report *s, bool logs, double eval_loss) {
    if (!r->progress) return;
    note_rate(r, s);
    r->step_seconds = r->step_seconds > 0 ? 0.9 * r->step_seconds + 0.1 * s->seconds : s->seconds;
    struct hl_progress_state state = {
        .step = s->step,
        .max_steps = r->t->n_steps,
        .loss = s->loss,
        .grad_norm = s->grad_norm,
        .learning_rate = s->learning_rate,
        .tokens_per_second = (double)s->n_tokens / r->step_seconds,
        .peak_share = r->peak_flops > 0 ? flops_of(r, s) / r->step_seconds / r->peak_flops : -1,
        .eta_seconds = (double)(r->t->n_steps - s->step) * r->step_seconds,
        .eval_loss = hl_terminal_is(r->setup->progress_fd) ? r->eval_loss : eval_loss};
    hl_progress_show(r->progress, &state, logs);
}

/* The next step would be refused for its own loss; after the last one nobody else says it. */
static void warn_if_not_finite(struct run *r, double loss) {
    char text[300];
    if (isfinite(loss)) return;
    (void)snprintf(
        text, sizeof text,
        "warning: the held-out loss after step %lld is not a finite number: these weights "
        "predict nothing. Go on from an older checkpoint with a lower learning_rate or a "
        "longer warm-up",
        (long long)r->t->step);
    say(r, text);
}

/* *n_out: tokens that were looked at; 0: there are none */
static enum hl_status evaluate(struct run *r, double *loss, int64_t *n_out, double *seconds,
                               struct hl_diag *diag) {
    int64_t n = 0, before = hl_clock_ns();
    enum hl_status status = hl_trainer_evaluate(r->t, loss, &n, diag);
    *seconds = (double)(hl_clock_ns() - before) * 1e-9;
    *n_out = status == HL_OK ? n : 0;
    if (status == HL_OK) r->eval_loss = *loss;
    if (status == HL_OK) warn_if_not_finite(r, *loss);
    return status == HL_END ? HL_OK : status;
}

static bool every(int64_t step, int64_t period) { return period > 0 && step % period == 0; }

/* All that may follow a step. */
static enum hl_status after_step(struct run *r, const struct hl_step_report *s,
                                 struct hl_diag *diag) {
    bool last = s->step == r->t->n_steps, evaluates = last || every(s->step, r->o->eval_steps);
    bool logs = last || s->step == 1 || every(s->step, r->o->logging_steps);
    double eval_loss = NAN, eval_seconds = 0;
    int64_t n_evaluated = 0;
    enum hl_status status = HL_OK;
    r->tokens += s->n_tokens;
    r->n_steps++;
    r->seconds += s->seconds;
    r->data_wait += s->data_wait_seconds;
    if (evaluates) status = evaluate(r, &eval_loss, &n_evaluated, &eval_seconds, diag);
    if (status != HL_OK) return status;
    if (r->metrics && hl_trainer_has_pace(r->t)) write_rounds(r, s->step);
    show(r, s, logs || evaluates, eval_loss);
    if (r->metrics && (logs || evaluates))
        write_metrics(r, s, n_evaluated ? &eval_loss : NULL, eval_seconds);
    if (last || every(s->step, r->o->sample_steps)) {
        if (r->setup->tokenizer && r->o->sample_steps > 0) status = take_sample(r, diag);
        if (status != HL_OK) return status;
    }
    if (every(s->step, r->o->save_steps) && !last) try_save(r);
    return HL_OK;
}

/* ---- the run ---- */

/* What this rank would like: signals and clocks differ between ranks, so a wish is told with the
 * step and all stop after the same one. */
static int wish(struct run *r) {
    int signal = r->setup->signalled ? r->setup->signalled() : 0;
    double minutes = ((double)hl_clock_ns() * 1e-9 - r->setup->started_seconds) / 60;
    if (signal)
        return signal == HL_SIGNAL_INT   ? HL_RUN_SIGINT
               : signal == HL_SIGNAL_HUP ? HL_RUN_SIGHUP
                                         : HL_RUN_SIGTERM;
    return r->o->max_minutes > 0 && minutes >= r->o->max_minutes ? HL_RUN_MINUTES : HL_RUN_DONE;
}

/* A run that ended before its last step says why, and how it goes on. */
static void say_stopped(struct run *r, enum hl_run_end end) {
    static const char *const why[] = {[HL_RUN_MINUTES] = "max_minutes are over",
                                      [HL_RUN_SIGINT] = "SIGINT",
                                      [HL_RUN_SIGTERM] = "SIGTERM",
                                      [HL_RUN_SIGHUP] = "SIGHUP"};
    char text[HL_PATH_CAPACITY + 128];
    if (end == HL_RUN_DONE) return;
    (void)snprintf(text, sizeof text,
                   "stopped after step %lld of %lld (%s) and saved in %s; --resume goes on",
                   (long long)r->t->step, (long long)r->t->n_steps, why[end], r->o->output_dir);
    say(r, text);
}

static enum hl_status steps(struct run *r, enum hl_run_end *end, struct hl_diag *diag) {
    bool alone = hl_group_n_ranks(r->setup->trainer.group) == 1;
    *end = HL_RUN_DONE;
    r->started_ns = hl_clock_ns();
    for (;;) {
        struct hl_step_report report = {0};
        hl_trainer_ask_stop(r->t, wish(r));
        if (alone && r->t->stop_wish) { /* nobody must agree: at once */
            *end = (enum hl_run_end)r->t->stop_wish;
            break;
        }
        enum hl_status status = hl_trainer_step(r->t, &report, diag);
        if (status == HL_END) break;
        if (status == HL_OK) status = after_step(r, &report, diag);
        if (status == HL_OK) status = hl_elastic_commit(&r->elastic, r->t, diag);
        /* the weights of the step before are whole; with no checkpoint yet they would be lost */
        if (status == HL_E_NUMERIC && alone && r->saved_step < 0 && r->t->step > 0 &&
            !hl_trainer_has_pace(r->t))
            try_save(r);
        if (status != HL_OK) return status;
        if (report.stop) {
            *end = (enum hl_run_end)report.stop;
            break;
        }
    }
    enum hl_status status = save(r, diag);
    /* whoever is done does not come back when another rank is lost */
    if (status == HL_OK && r->elastic.path)
        status = hl_group_barrier(r->setup->trainer.group, diag);
    if (status == HL_OK) say_stopped(r, *end);
    return status;
}

static void say_lost(struct run *r) {
    char text[200];
    if (!r->metrics) return;
    int64_t n = hl_metrics_n_lost(r->metrics);
    if (n == 0) return;
    (void)snprintf(text, sizeof text,
                   "warning: %lld records of metrics and samples could not be written",
                   (long long)n);
    say(r, text);
}

/* The folder becomes this run's. An older run in it is removed last of all: nothing that may fail
 * comes after it, and the weights may have come from it. */
static enum hl_status take_folder(struct run *r, bool going_on, struct hl_diag *diag) {
    struct hl_fs *fs = hl_fs_os();
    const char *path = r->o->output_dir;
    enum hl_status status = hl_run_folder_make(fs, path, diag);
    if (status == HL_OK) status = hl_run_folder_lock(fs, path, &r->lock, diag);
    if (status != HL_OK) return status;
    return hl_run_folder_prepare(fs, path, going_on, r->o->overwrite_output_dir, diag);
}

/* "going on from ..., step 7" */
static void say_going_on(struct run *r, const char *from) {
    char text[HL_PATH_CAPACITY + 128];
    (void)snprintf(text, sizeof text, "going on from %s, step %lld%s", from, (long long)r->t->step,
                   r->t->step >= r->t->n_steps ? ": all steps are done; a larger --max_steps goes "
                                                 "further"
                                               : "");
    say(r, text);
}

static void say_elastic(struct run *r) {
    uint64_t held, written;
    char whole[32], each[32], text[160];
    if (!r->elastic.path || r->elastic.found) return;
    hl_elastic_cost(&r->elastic, r->t, &held, &written);
    hl_print_bytes(whole, sizeof whole, held);
    hl_print_bytes(each, sizeof each, written);
    (void)snprintf(text, sizeof text,
                   "elastic: two copies of the state in shared memory, %s; %s per rank and step "
                   "written",
                   whole, each);
    say(r, text);
}

/* A trainer with its weights: of ranks before this generation, of a checkpoint, of a model, or
 * new ones. */
static enum hl_status open_trainer(struct run *r, const char *resume, struct hl_diag *diag) {
    struct hl_trainer_setup setup = r->setup->trainer;
    struct hl_memory memory;
    setup.empty = r->elastic.found || *resume;
    hl_memory_read(&memory);
    enum hl_status status = hl_memory_check(r->mem, &setup, &memory, diag);
    if (status == HL_OK) status = hl_trainer_new(r->mem, &setup, &r->t, diag);
    if (status == HL_OK) status = load_start(r, *resume ? resume : NULL, diag);
    return status;
}

static enum hl_status open_run(struct run *r, struct hl_diag *diag) {
    char resume[HL_PATH_CAPACITY] = "";
    /* before its checkpoints are looked at: another run may be writing one */
    enum hl_status status = hl_elastic_look(&r->elastic, r->setup->snapshot, r->setup->generation,
                                            r->setup->seat, diag);
    if (status == HL_OK && r->leads)
        status = hl_run_folder_lock(hl_fs_os(), r->o->output_dir, &r->lock, diag);
    if (status == HL_OK && !r->elastic.found) status = find_resume(r, resume, diag);
    bool going_on = r->elastic.found ||
                    (status == HL_OK && (r->o->resume || hl_is_inside(resume, r->o->output_dir)));
    if (status == HL_OK && r->leads)
        status = hl_run_folder_check(hl_fs_os(), r->o->output_dir,
                                     going_on || r->o->overwrite_output_dir, diag);
    if (status == HL_OK) status = open_trainer(r, resume, diag);
    if (status == HL_OK) status = hl_group_barrier(r->setup->trainer.group, diag);
    if (status == HL_OK && r->leads) status = hl_elastic_make(&r->elastic, r->t, diag);
    if (status == HL_OK && r->leads) status = take_folder(r, going_on, diag);
    /* from here on a generation that follows goes on in the folder */
    if (status == HL_OK) status = hl_elastic_begin(&r->elastic, r->t, diag);
    if (status != HL_OK) return status;
    if (*resume && hl_is_inside(resume, r->o->output_dir)) r->saved_step = r->t->step;
    if (*resume) say_going_on(r, resume);
    if (r->elastic.found) say_going_on(r, "the last committed step");
    say_elastic(r);
    if (!r->leads) return HL_OK;
    status =
        hl_metrics_open(r->mem, r->o->output_dir, r->t->step, r->o->tensorboard, &r->metrics, diag);
    if (status == HL_OK && hl_trainer_has_pace(r->t))
        status = hl_metrics_open_rounds(r->metrics, r->o->output_dir, r->t->step, diag);
    return status == HL_OK ? write_records(r, diag) : status;
}

enum hl_status hl_train_run(struct hl_mem *mem, const struct hl_train_run *setup,
                            enum hl_run_end *end_out, struct hl_diag *diag) {
    struct run r = {.setup = setup,
                    .o = setup->trainer.options,
                    .mem = mem,
                    .eval_loss = NAN,
                    .saved_step = -1,
                    .lock = {.file = -1},
                    .leads = hl_group_rank(setup->trainer.group) == 0};
    enum hl_status status = HL_OK;
    if (setup->progress_fd >= 0 && r.leads)
        status = hl_progress_new(mem, setup->progress_fd, &r.progress, diag);
    if (status == HL_OK) status = open_run(&r, diag);
    if (status == HL_OK) {
        r.peak_flops = hl_peak_flops(r.mem, r.t->products, r.t->kernels->dtype);
        introduce(&r);
        if (r.t->step >= r.t->n_steps && r.t->step > 0)
            say(&r, "all steps are done already: a larger max_steps or num_train_epochs goes on");
        status = steps(&r, end_out, diag);
        say_lost(&r);
    }
    if (status != HL_OK) hl_group_give_up(setup->trainer.group, diag->text);
    hl_progress_free(r.progress);
    hl_metrics_close(r.metrics);
    hl_elastic_close(&r.elastic);
    hl_lock_release(&r.lock);
    hl_trainer_free(r.t);
    return status;
}
