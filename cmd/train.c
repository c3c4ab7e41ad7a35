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

static enum hl_status run_job(struct job *job, struct hl_log *log, enum hl_run_end *end,
                              struct hl_diag *diag) {
    const struct hl_train_options *o = &job->options.train;
    bool used = o->resume || hl_is_inside(o->resume_from_checkpoint, o->output_dir) ||
                o->overwrite_output_dir;
    struct hl_trainer_setup setup = {.options = &job->options.train,
                                     .optimizer_options = &job->options.optimizer,
                                     .model = &job->model,
                                     .block_size = job->options.data.block_size,
                                     .seed = job->options.data.seed,
                                     .log = log};
    struct hl_lock lock = {.file = -1}; /* only to tell now; the run itself takes it again */
    enum hl_status status = hl_run_folder_lock(hl_fs_os(), o->output_dir, &lock, diag);
    hl_lock_release(&lock);
    if (status == HL_OK) status = hl_run_folder_check(hl_fs_os(), o->output_dir, used, diag);
    if (status == HL_OK) status = open_tokenizer(job, diag);
    if (status == HL_OK) status = resolve_model(job, diag);
    if (status == HL_OK)
        status = hl_trainer_check(job->mem, &setup,
                                  diag); /* reading data may take long: mistakes first */
    if (status == HL_OK)
        status = hl_dataset_open(job->mem, &job->options.data, job->tokenizer, 1, log,
                                 &job->dataset, diag);
    if (status != HL_OK) return status;
    setup.dataset = job->dataset;
    hl_signal_watch(); /* until here nothing is worth saving: a signal ends the program at once */
    hl_signal_ignore_pipe(); /* a reader of our progress may go; training goes on */
    struct hl_train_run run = {
        .trainer = setup,
        .tokenizer = job->tokenizer,
        .tokenizer_json = job->tokenizer_json.data,
        .run_yaml = job->yaml.data,
        .weights_dir = *job->weights_dir ? job->weights_dir : NULL,
        .progress_fd = 2,
        .signalled = hl_signal_pending,
        .started_seconds = job->started_seconds,
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

int command_train(int n_args, char **args) {
    struct job job = {.mem = hl_mem_os(), .started_seconds = (double)hl_clock_ns() * 1e-9};
    struct hl_diag diag = {0};
    struct hl_log log = command_log();
    enum hl_run_end end = HL_RUN_DONE;
    if (command_wants_help(n_args, args)) return run_print_help(usage), 0;
    bool print_only = false;
    enum hl_status status = run_read_options(job.mem, NULL, n_args, args, &job.options, &job.config,
                                             &print_only, &diag);
    if (status == HL_OK) {
        job.yaml.mem = job.mem;
        print_what_repeats(&job);
        if (job.yaml.failed)
            status = hl_fail_memory(&diag, job.yaml.n, "the configuration as text");
        else if (print_only) (void)fputs(job.yaml.data, stdout);
        else status = run_job(&job, &log, &end, &diag);
    }
    hl_dataset_free(job.dataset);
    hl_tokenizer_free(job.tokenizer);
    hl_buf_free(&job.tokenizer_json);
    hl_buf_free(&job.yaml);
    hl_config_free(job.config);
    if (status != HL_OK) return command_fail("train", status, &diag);
    return exit_status(end);
}
