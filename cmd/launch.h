/* What the files of `halley launch` share. */
#ifndef HALLEY_CMD_LAUNCH_H
#define HALLEY_CMD_LAUNCH_H

#include "cluster/supervise.h"
#include "cmd_common.h"
#include "os/fs.h"
#include "ranks.h"

struct launch_options {
    int64_t n, timeout, max_restarts;
    char *wire, *interface, *log_dir, *pool;
    /* several machines */
    int64_t nnodes, node_rank, ranks_before, ranks_in_all;
    char *rdzv_endpoint, *hosts;
    bool standalone, secret_on_stdin, elastic;
};
/* What ranks can run. */
struct launch_command {
    const char *name;
    bool resumes; /* has --resume and an output_dir */
    int (*as_rank)(const struct hl_cluster_place *place, int n_args, char **args);
    int (*as_command)(int n_args, char **args);
};
struct launch {
    struct hl_mem *mem;
    struct launch_options options;
    struct hl_config *config;
    struct run_options run; /* what the ranks will read */
    struct bench_net_options bench;
    struct hl_config *run_config;
    const struct launch_command *command; /* that ranks run */
    int n_args;                           /* its words, the name left out */
    char **args;
    struct hl_log log;
    char program[HL_PATH_CAPACITY]; /* this one */
    /* settled: options from either side of the subcommand, and where the ranks meet */
    const char *wire, *interface; /* borrowed */
    int64_t timeout_ns;
    int first_rank, n_ranks; /* of this machine's; of all */
    bool far;                /* there are ranks on other machines */
    bool emulated;           /* each rank on a host of emulated.h */
    char address[HL_ADDRESS_CAPACITY], token[HL_TOKEN_CAPACITY]; /* of the wire, "POOL+HOST:PORT" */
    int port_socket; /* keeps the address's port free for rank 0 until this process ends; 0: none */
};

/* Each starts ranks, waits for them, and gives the status to exit with. errors: what kept them from
 * being started */
enum hl_status launch_threads(struct launch *launch, int *exit_out,
                              struct hl_diag *diag) HL_MUST_CHECK;
enum hl_status launch_local(struct launch *launch, int *exit_out,
                            struct hl_diag *diag) HL_MUST_CHECK;
enum hl_status launch_mpi(struct launch *launch, int *exit_out, struct hl_diag *diag) HL_MUST_CHECK;
enum hl_status launch_hosts(struct launch *launch, int *exit_out,
                            struct hl_diag *diag) HL_MUST_CHECK;

/* Is the wire this one, or one of two ("pool+wan")? */
bool launch_is_over(const struct launch *launch, const char *wire);

/* The path of this program, for ranks. errors HL_E_IO */
enum hl_status launch_find_program(struct launch *launch, struct hl_diag *diag) HL_MUST_CHECK;

/* All ranks, as often as max_restarts allows: the first time as they are, then with --resume. */
typedef enum hl_status (*launch_attempt)(void *context, bool resume, struct hl_supervise_end *end,
                                         struct hl_diag *diag);
enum hl_status launch_attempts(struct launch *launch, launch_attempt attempt, void *context,
                               int *exit_out, struct hl_diag *diag) HL_MUST_CHECK;

/* Words for exec: those in front, then the subcommand and its words; `resume` adds flags. Ends
 * with NULL. owner: caller, hl_free */
char **launch_words(const struct launch *launch, char *const *front, int n_front, bool resume);

/* Variables for a child, as struct hl_child_setup takes them. */
enum { LAUNCH_VARIABLES = 24, LAUNCH_VARIABLE_BYTES = 320 };
struct launch_variables {
    char text[LAUNCH_VARIABLES][LAUNCH_VARIABLE_BYTES];
    const char *list[LAUNCH_VARIABLES + 1];
    int n;
};
void launch_set(struct launch_variables *v, const char *format, ...) HL_PRINTF(2, 3);
/* How teams of threads wait, unless the user said so. */
void launch_set_waiting(struct launch_variables *v);

/* Files name.log in log_dir, for what children say. */
struct launch_logs;
enum hl_status launch_logs_new(struct launch *launch, int n, struct launch_logs **out,
                               struct hl_diag *diag) HL_MUST_CHECK;
/* line: with its newline. A disk that is full costs a warning. */
void launch_logs_add(struct launch_logs *logs, int i, const char *name, const char *line, size_t n);
void launch_logs_free(struct launch_logs *logs); /* NULL: nothing */

/* ---- several machines (launch_meet.c) ---- */

/* first_rank, n_ranks and wire, from flags for one machine or several. errors HL_E_USER */
enum hl_status launch_settle(struct launch *launch, struct hl_diag *diag) HL_MUST_CHECK;
/* Address and token of the wire wan; over a pool of several machines only what the first launcher
 * tells the others. errors HL_E_USER, HL_E_IO */
enum hl_status launch_meet(struct launch *launch, struct hl_diag *diag) HL_MUST_CHECK;

#endif
