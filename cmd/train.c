/* halley train: from words and a YAML file to a run. */
#include <stdio.h>
#include <string.h>

#include "cmd_common.h"
#include "command.h"
#include "halley/halley.h"
#include "os/clock.h"
#include "os/fs.h"
#include "os/memory.h"
#include "os/signal.h"
#include "ranks.h"
#include "train/folder.h"

static const char usage[] =
    "halley train [RUN.yaml] [--key value ...]: train a language model\n\n"
    "  halley train --data corpus.txt                              a small Llama on bytes, one "
    "pass over the file\n"
    "  halley train --data corpus.txt --model gpt2 --n_layer 4 --n_embd 128 --n_head 4 "
    "--block_size 64 --max_steps 2000\n"
    "  halley train run.yaml --learning_rate 3e-4                  flags win over the file\n"
    "  halley train run.yaml --resume                              go on from the newest "
    "checkpoint\n\n"
    "Ctrl-C finishes the step, saves and exits; a second one exits at once.\n\n";

/* Everything a run is made of, in the order it is made. */
struct job {
    struct hl_mem *mem;
    struct run_options options;
    struct hl_config *config;
    struct hl_tokenizer *tokenizer;
    struct hl_dataset *dataset;
    struct hl_model_config model;
    struct hl_buf yaml, tokenizer_json;
    char weights_dir[HL_PATH_CAPACITY]; /* empty: initialise */
    double started_seconds;
    struct ranks ranks;
};

static enum hl_status open_tokenizer(struct job *job, struct hl_diag *diag) {
    enum hl_status status = run_tokenizer(job->mem, &job->options, &job->tokenizer, diag);
    if (status != HL_OK) return status;
    job->tokenizer_json.mem = job->mem;
    return hl_tokenizer_to_json(job->tokenizer, &job->tokenizer_json, diag);
}

static enum hl_status resolve_model(struct job *job, struct hl_diag *diag) {
    const struct hl_tokenizer *k = job->tokenizer;
    enum hl_status status =
        hl_model_resolve(job->mem, &job->options.model, hl_tokenizer_vocab_size(k),
                         job->options.data.block_size, &job->model, diag);
    if (status != HL_OK) return status;
    status = hl_model_folder(job->mem, &job->options.model, job->weights_dir,
                             sizeof job->weights_dir, diag);
    if (status != HL_END) return status;
    job->model.bos_token_id = hl_tokenizer_bos(k);
    job->model.eos_token_id = hl_tokenizer_eos(k);
    return HL_OK;
}

/* The configuration of the run without how this start of it treats the folder: running the saved
 * file must not remove a run. */
static void print_what_repeats(struct job *job) {
    struct hl_train_options *o = &job->options.train, kept = *o;
    static char none[] = "";
    o->resume = o->overwrite_output_dir = false;
    o->resume_from_checkpoint = none;
    hl_config_print_yaml(job->config, false, &job->yaml);
    *o = kept;
}

/* May this run use its folder? Rank 0 writes, and asks. */
static enum hl_status check_folder(const struct job *job, struct hl_diag *diag) {
    const struct hl_train_options *o = &job->options.train;
    bool used = o->resume || hl_is_inside(o->resume_from_checkpoint, o->output_dir) ||
                o->overwrite_output_dir;
    struct hl_lock lock = {.file = -1}; /* only to tell now; the run itself takes it again */
    if (job->ranks.place.rank || job->ranks.generation > 1) return HL_OK;
    enum hl_status status = hl_run_folder_lock(hl_fs_os(), o->output_dir, &lock, diag);
    hl_lock_release(&lock);
    return status == HL_OK ? hl_run_folder_check(hl_fs_os(), o->output_dir, used, diag) : status;
}

/* Until here nothing is worth saving: a signal ends the program at once. */
static void watch_signals(const struct job *job) {
    bool thread = job->ranks.place.shared && job->ranks.place.rank;
    if (!thread) hl_signal_watch();
    hl_signal_ignore_pipe(); /* a reader of our progress may go; training goes on */
}

/* What a later generation of ranks finds as it was. */
static enum hl_status open_once(struct job *job, const struct hl_trainer_setup *setup,
                                struct hl_diag *diag) {
    if (job->dataset) return HL_OK;
    enum hl_status status = open_tokenizer(job, diag);
    if (status == HL_OK) status = resolve_model(job, diag);
    if (status == HL_OK)
        status = hl_trainer_check(job->mem, setup,
                                  diag); /* reading data may take long: mistakes first */
    if (status == HL_OK)
        status = hl_dataset_open(job->mem, &job->options.data, job->tokenizer, 1, setup->log,
                                 &job->dataset, diag);
    return status;
}

static enum hl_status run_job(struct job *job, struct hl_log *log, enum hl_run_end *end,
                              struct hl_diag *diag) {
    struct hl_trainer_setup setup = {.options = &job->options.train,
                                     .optimizer_options = &job->options.optimizer,
                                     .strategy_options = &job->options.strategies,
                                     .model = &job->model,
                                     .block_size = job->options.data.block_size,
                                     .seed = job->options.data.seed,
                                     .log = log,
                                     .group = job->ranks.group,
                                     .n_local_ranks = job->ranks.n_sharing,
                                     .lost = ranks_lost,
                                     .lost_context = &job->ranks};
    enum hl_status status = ranks_agree_on_config(&job->ranks, job->yaml.data, diag);
    if (status == HL_OK) status = check_folder(job, diag);
    if (status == HL_OK) status = open_once(job, &setup, diag);
    if (status == HL_OK)
        status = ranks_agree_on_data(&job->ranks, &job->model, job->tokenizer, job->dataset, diag);
    if (status != HL_OK) return status;
    setup.dataset = job->dataset;
    watch_signals(job);
    struct hl_train_run run = {
        .trainer = setup,
        .tokenizer = job->tokenizer,
        .tokenizer_json = job->tokenizer_json.data,
        .run_yaml = job->yaml.data,
        .weights_dir = *job->weights_dir ? job->weights_dir : NULL,
        .progress_fd = job->ranks.place.rank ? -1 : 2,
        .signalled = hl_signal_pending,
        .started_seconds = job->started_seconds,
        .snapshot = job->ranks.snapshot,
        .generation = job->ranks.generation,
        .seat = job->ranks.entry,
    };
    return hl_train_run(job->mem, &run, end, diag);
}

static int exit_status(enum hl_run_end end) {
    switch (end) {
    case HL_RUN_DONE:
    case HL_RUN_MINUTES: return 0;
    case HL_RUN_SIGINT: return 128 + HL_SIGNAL_INT;
    case HL_RUN_SIGTERM: return 128 + HL_SIGNAL_TERM;
    case HL_RUN_SIGHUP: return 128 + HL_SIGNAL_HUP;
    }
    return 1;
}

/* Configuration and place first: what is wrong with them is told before anybody is waited for. */
static enum hl_status prepare(struct job *job, const struct hl_cluster_place *place, int n_args,
                              char **args, bool *print_only, struct hl_diag *diag) {
    enum hl_status status = ranks_place(job->mem, place, &job->ranks, diag);
    if (status == HL_OK)
        status = run_read_options(job->mem, NULL, n_args, args, &job->options, &job->config,
                                  print_only, diag);
    if (status == HL_OK && !*print_only) status = run_check_resume(&job->options.train, diag);
    if (status != HL_OK) return status;
    job->yaml.mem = job->mem;
    print_what_repeats(job);
    return job->yaml.failed ? hl_fail_memory(diag, job->yaml.n, "the configuration as text")
                            : HL_OK;
}

static void free_job(struct job *job) {
    hl_dataset_free(job->dataset);
    hl_tokenizer_free(job->tokenizer);
    hl_buf_free(&job->tokenizer_json);
    hl_buf_free(&job->yaml);
    hl_config_free(job->config);
}

int train_as_rank(const struct hl_cluster_place *place, int n_args, char **args) {
    struct job job = {.mem = hl_mem_os(), .started_seconds = (double)hl_clock_ns() * 1e-9};
    struct hl_diag diag = {0};
    struct hl_log log = ranks_log(&job.ranks);
    enum hl_run_end end = HL_RUN_DONE;
    bool print_only = false;
    enum hl_status status = prepare(&job, place, n_args, args, &print_only, &diag);
    if (status == HL_OK && print_only) (void)fputs(job.yaml.data, stdout);
    else if (status == HL_OK) do {
            status = ranks_open(&job.ranks, &job.options.ranks, &diag);
            log = ranks_log(&job.ranks);
            if (status == HL_OK) status = run_job(&job, &log, &end, &diag);
        } while (ranks_come_back(&job.ranks, status, &diag));
    ranks_close(&job.ranks, status, exit_status(end), &diag);
    free_job(&job);
    if (status < 0) return ranks_fail(&job.ranks, "train", status, &diag);
    return exit_status(end);
}

int command_train(int n_args, char **args) {
    if (command_wants_help(n_args, args)) return run_print_help(usage), 0;
    return train_as_rank(NULL, n_args, args);
}
