/* What the files of `halley launch` share. */
#ifndef HALLEY_CMD_LAUNCH_H
#define HALLEY_CMD_LAUNCH_H

#include "cmd_common.h"
#include "ranks.h"

struct launch_options {
    int64_t n, timeout;
    char *wire, *interface, *log_dir;
};
struct launch {
    struct hl_mem *mem;
    struct launch_options options;
    struct hl_config *config;
    struct run_options run; /* what the ranks will read */
    struct hl_config *run_config;
    const char *wire; /* of the two the first that was given; borrowed */
    int64_t timeout_ns;
    int n_args; /* of the subcommand that ranks run, its name left out */
    char **args;
    struct hl_log log;
};

/* Each starts the ranks, waits for them, and returns the status to exit with; errors before the
 * first rank runs are told in diag, with a status below 0 in *failed_out. */
enum hl_status launch_threads(struct launch *launch, int *exit_out,
                              struct hl_diag *diag) HL_MUST_CHECK;

#endif
