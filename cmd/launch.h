/* What the files of `halley launch` share. */
#ifndef HALLEY_CMD_LAUNCH_H
#define HALLEY_CMD_LAUNCH_H

#include "cmd_common.h"
#include "ranks.h"

struct launch_options {
    int64_t n, timeout, max_restarts;
    char *wire, *interface, *log_dir, *pool;
};
struct launch {
    struct hl_mem *mem;
    struct launch_options options;
    struct hl_config *config;
    struct run_options run; /* what the ranks will read */
    struct hl_config *run_config;
    int n_args; /* of the subcommand that ranks run, its name left out */
    char **args;
    struct hl_log log;
    /* settled: options from either side of the subcommand, and where the ranks meet */
    const char *wire, *interface; /* borrowed */
    int64_t timeout_ns;
    int first_rank, n_ranks; /* of this machine's; of all */
    char address[HL_ADDRESS_CAPACITY], token[HL_TOKEN_CAPACITY];
};

/* Each starts ranks, waits for them, and gives the status to exit with. errors: what kept them from
 * being started */
enum hl_status launch_threads(struct launch *launch, int *exit_out,
                              struct hl_diag *diag) HL_MUST_CHECK;
/* Child processes. max_restarts: all of them again, from the newest checkpoint. */
enum hl_status launch_local(struct launch *launch, int *exit_out,
                            struct hl_diag *diag) HL_MUST_CHECK;

#endif
