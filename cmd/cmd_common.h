/* What the subcommands share: the options of a run, logs to stderr, failures to exit statuses. */
#ifndef HALLEY_CMD_COMMON_H
#define HALLEY_CMD_COMMON_H

#include "halley/halley.h"

/* Values of every option set of a run. */
struct run_options {
    struct hl_model_options model;
    struct hl_data_options data;
    struct hl_train_options train;
    struct hl_optimizer_options optimizer;
    struct hl_strategy_options strategies;
    struct run_words {
        char *tokenizer;
        bool print_config;
        int64_t seed;
    } words;
    struct rank_options {
        char *wire, *wire_wrappers, *interface;
        int64_t timeout;
    } ranks;
};

struct hl_option_set rank_option_set(struct rank_options *options);

/* Defaults, then base_yaml (NULL: none), then YAML files among the words, then flags.
 * *print_only_out: --print_config was given. */
enum hl_status run_read_options(struct hl_mem *mem, const char *base_yaml, int n_args, char **args,
                                struct run_options *options, struct hl_config **config_out,
                                bool *print_only_out, struct hl_diag *diag) HL_MUST_CHECK;
/* --resume goes on with the run in output_dir, --overwrite_output_dir removes it. errors HL_E_USER:
 * both */
enum hl_status run_check_resume(const struct hl_train_options *options,
                                struct hl_diag *diag) HL_MUST_CHECK;
/* --print_config: the resolved configuration on standard output. */
enum hl_status run_print_config(struct hl_mem *mem, const struct hl_config *config,
                                struct hl_diag *diag) HL_MUST_CHECK;
void run_print_help(const char *usage);
void run_print_markdown(struct hl_buf *out);

/* --tokenizer; without it, the one beside the weights of --model DIR, or bytes. */
enum hl_status run_tokenizer(struct hl_mem *mem, const struct run_options *options,
                             struct hl_tokenizer **out, struct hl_diag *diag) HL_MUST_CHECK;

/* For commands with options of their own: exactly one bare word. missing: what to say when there is
 * none. */
enum hl_status command_read(int n_args, char **args, const struct hl_option_set *sets,
                            size_t n_sets, const char **word_out, const char *missing,
                            struct hl_config **config_out, struct hl_diag *diag) HL_MUST_CHECK;
void command_print_help(const char *usage, const struct hl_option_set *sets, size_t n_sets);

/* The team of compute threads: `asked`, or what this machine suggests when it is 0. */
void command_set_threads(int64_t asked);

bool command_wants_help(int n_args, char **args);
enum { COMMAND_PEER_FAILED = 4 };
int command_status(enum hl_status status);
struct hl_log command_log(void); /* warnings and more to stderr */
/* "halley train: sentence" on stderr; 2 for a user's mistake, 3 for a number that is none, 4 for
 * another rank's failure, else 1. */
int command_fail(const char *command, enum hl_status status, const struct hl_diag *diag);

#endif
