/* halley launch: starts the ranks of a run. What is its own stands before `train`; what stands
 * behind is the ranks'. */
#include "launch.h"

#include <stdio.h>
#include <string.h>

#include "command.h"
#include "os/memory.h"
#include "wires/wrappers.h"

static const char usage[] =
    "halley launch -n RANKS [--key value ...] train [RUN.yaml] [--key value ...]: train with "
    "several "
    "ranks\n\n"
    "  halley launch -n 2 train run.yaml                    two processes on this machine\n"
    "  halley launch -n 4 --wire threads train run.yaml     threads of one process\n"
    "  halley launch --hosts hosts.txt train run.yaml       machines that ssh reaches\n"
    "  HALLEY_TOKEN=... halley launch --nnodes 2 --node-rank 0 --nproc-per-node 2 --rdzv-endpoint "
    "node0:29500 train run.yaml\n"
    "  halley launch -n 2 --wire wan bench-net              how fast a wire is\n\n"
    "'halley help ranks' tells more.\n\n";

#define AT(field) .offset = offsetof(struct launch_options, field)
static const struct hl_option rows[] = {
    {.name = "nproc_per_node",
     .kind = HL_OPT_I64,
     AT(n),
     .initial = "0",
     .least = 1,
     .most = HL_MAX_RANKS,
     .unit = "ranks",
     .section = "launch",
     .aliases = "n np n_ranks",
     .help = "ranks to start on this machine (-n)"},
    {.name = "wire",
     .kind = HL_OPT_STRING,
     AT(wire),
     .section = "launch",
     .help = "what they exchange over ('halley help wires'); empty = pool"},
    {.name = "timeout",
     .kind = HL_OPT_I64,
     AT(timeout),
     .initial = "0",
     .least = 0,
     .most = 1e9,
     .unit = "seconds",
     .section = "launch",
     .help = "how long a rank may be missing, or keep the others waiting; 0 = 300"},
    {.name = "interface",
     .kind = HL_OPT_STRING,
     AT(interface),
     .section = "launch",
     .help = "network interface of the wire wan; empty = what the route to the others says"},
    {.name = "pool",
     .kind = HL_OPT_STRING,
     AT(pool),
     .section = "launch",
     .help = "address of a memory pool that is there ('halley help pool'), for one machine or "
             "several; empty "
             "= a new one"},
    {.name = "log_dir",
     .kind = HL_OPT_STRING,
     AT(log_dir),
     .section = "launch",
     .help = "folder of rank-R.log, which get what the ranks say; empty = OUTPUT_DIR/logs"},
    {.name = "max_restarts",
     .kind = HL_OPT_I64,
     AT(max_restarts),
     .initial = "-1",
     .least = -1,
     .most = 1e9,
     .unit = "times",
     .section = "launch",
     .help =
         "after a failure, start all ranks again from the newest checkpoint; with elastic: ranks "
         "that are replaced before the others go on without; -1 = 0, with elastic 10"},
    {.name = "elastic",
     .kind = HL_OPT_BOOL,
     AT(elastic),
     .initial = "false",
     .section = "launch",
     .help =
         "replace a rank that is lost, and go on from the last step ('halley help ranks'); wire "
         "pool, one machine"},
    {.name = "nnodes",
     .kind = HL_OPT_I64,
     AT(nnodes),
     .initial = "1",
     .least = 1,
     .most = HL_MAX_RANKS,
     .unit = "machines",
     .section = "several machines",
     .help = "machines on which this command is given, with as many ranks on each"},
    {.name = "node_rank",
     .kind = HL_OPT_I64,
     AT(node_rank),
     .initial = "0",
     .least = 0,
     .most = HL_MAX_RANKS,
     .section = "several machines",
     .help = "which of them this is, from 0"},
    {.name = "rdzv_endpoint",
     .kind = HL_OPT_STRING,
     AT(rdzv_endpoint),
     .section = "several machines",
     .help = "HOST:PORT of rank 0's machine, where all ranks meet"},
    {.name = "standalone",
     .kind = HL_OPT_BOOL,
     AT(standalone),
     .initial = "false",
     .section = "several machines",
     .help = "one machine, as without it (torchrun's word)"},
    {.name = "hosts",
     .kind = HL_OPT_STRING,
     AT(hosts),
     .section = "several machines",
     .aliases = "hostfile",
     .help = "file of hosts, 'NAME slots=RANKS' on each line, on which ssh starts the ranks"},
    {.name = "ranks_before",
     .kind = HL_OPT_I64,
     AT(ranks_before),
     .initial = "0",
     .least = 0,
     .most = HL_MAX_RANKS,
     .unit = "ranks",
     .section = "several machines",
     .help = "the number of this machine's first rank, where machines have unequal numbers"},
    {.name = "ranks_in_all",
     .kind = HL_OPT_I64,
     AT(ranks_in_all),
     .initial = "0",
     .least = 0,
     .most = HL_MAX_RANKS,
     .unit = "ranks",
     .section = "several machines",
     .help = "on all machines together; 0 = nnodes times -n"},
    {.name = "secret_on_stdin",
     .kind = HL_OPT_BOOL,
     AT(secret_on_stdin),
     .initial = "false",
     .section = "several machines",
     .help = "the first line of standard input is HALLEY_TOKEN; its end asks the ranks to stop"},
};
enum { N_ROWS = sizeof rows / sizeof *rows };

static struct hl_option_set option_set(struct launch_options *o) {
    return (struct hl_option_set){NULL, rows, N_ROWS, o};
}

static const struct launch_command commands[] = {
    {"train", true, train_as_rank, command_train},
    {"bench-net", false, bench_net_as_rank, command_bench_net},
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

static const struct launch_command *command_of(const char *word) {
    for (int i = 0; i < N_COMMANDS; i++)
        if (!strcmp(commands[i].name, word)) return &commands[i];
    return NULL;
}

/* Where the ranks' own words begin: behind the first command; n_args: nowhere. */
static int find_command(int n_args, char **args) {
    int i = 0;
    while (i < n_args && !command_of(args[i])) i++;
    return i;
}

/* The launcher's own flags; -n is --n. */
static enum hl_status read_own(struct launch *l, int n, char **args, struct hl_diag *diag) {
    struct hl_option_set set = option_set(&l->options);
    static char short_n[] = "--n";
    enum hl_status status = hl_config_new(l->mem, &set, 1, &l->config, diag);
    if (status != HL_OK) return status;
    char **own = hl_alloc(l->mem, (size_t)n + 1, sizeof *own);
    const char **words = hl_alloc(l->mem, (size_t)n + 1, sizeof *words);
    size_t n_words = 0;
    for (int i = 0; own && i < n; i++) own[i] = !strcmp(args[i], "-n") ? short_n : args[i];
    status = own && words ? hl_config_read_flags(l->config, n, own, words, &n_words, diag)
                          : hl_fail_memory(diag, (unsigned)n * sizeof *own, "the command line");
    if (status == HL_OK && n_words)
        status =
            hl_fail(diag, HL_E_USER,
                    "'%s' is no command that ranks can run; 'train' and 'bench-net' are", words[0]);
    hl_free(l->mem, own);
    hl_free(l->mem, words);
    return status;
}

/* Only a run has a folder, for logs too, and a checkpoint to begin again from. */
static enum hl_status read_bench(struct launch *l, struct hl_diag *diag) {
    static char none[] = "";
    enum hl_status status =
        bench_net_read(l->mem, l->n_args, l->args, &l->bench, &l->run_config, diag);
    const char *restarts = l->options.elastic ? "elastic" : "max_restarts";
    if (status == HL_OK && hl_config_given(l->config, restarts))
        status =
            hl_fail(diag, HL_E_USER, "%s: %s does not start again", restarts, l->command->name);
    if (status == HL_OK) l->run.ranks = l->bench.ranks;
    l->run.train.output_dir = none;
    return status;
}

/* What the ranks will read is read here first: a mistake is told once. wire, timeout and interface
 * may stand on either side. */
static enum hl_status read_run(struct launch *l, bool *print_only, struct hl_diag *diag) {
    enum hl_status status = l->command->resumes
                                ? run_read_options(l->mem, NULL, l->n_args, l->args, &l->run,
                                                   &l->run_config, print_only, diag)
                                : read_bench(l, diag);
    if (status == HL_OK && l->command->resumes && !*print_only)
        status = run_check_resume(&l->run.train, diag);
    if (status == HL_OK) status = hl_wire_wrap_check(l->run.ranks.wire_wrappers, diag);
    return status == HL_OK ? launch_settle(l, diag) : status;
}

static enum hl_status read_all(struct launch *l, int n_args, char **args, bool *print_only,
                               struct hl_diag *diag) {
    int n = find_command(n_args, args);
    enum hl_status status = read_own(l, n, args, diag);
    if (status != HL_OK) return status;
    if (n == n_args)
        return hl_fail(diag, HL_E_USER,
                       "nothing to start; 'halley launch -n 2 train run.yaml' starts two ranks");
    if (!l->options.n && !*l->options.hosts)
        return hl_fail(diag, HL_E_USER,
                       "how many ranks? 'halley launch -n 2 train ...' starts two");
    l->command = command_of(args[n]);
    l->n_args = n_args - n - 1;
    l->args = args + n + 1;
    return read_run(l, print_only, diag);
}

static enum hl_status start(struct launch *l, int *exit_out, struct hl_diag *diag) {
    const struct hl_wire_plugin *plugin;
    enum hl_status status = launch_find_program(l, diag);
    if (status == HL_OK) status = hl_wire_find(l->wire, &plugin, diag);
    if (status != HL_OK) return status;
    if (!strcmp(l->wire, "mpi")) return launch_mpi(l, exit_out, diag);
    status = plugin->available(diag);
    if (status != HL_OK) return status;
    if (!plugin->processes) return launch_threads(l, exit_out, diag);
    return *l->options.hosts ? launch_hosts(l, exit_out, diag) : launch_local(l, exit_out, diag);
}

int command_launch(int n_args, char **args) {
    struct launch l = {.mem = hl_mem_os(), .log = command_log()};
    struct hl_option_set set = option_set(&l.options);
    struct hl_diag diag = {0};
    int status_out = 0, n = find_command(n_args, args);
    bool print_only = false;
    if (command_wants_help(n, args)) return command_print_help(usage, &set, 1), 0;
    if (n < n_args && command_wants_help(n_args - n, args + n))
        return command_of(args[n])->as_command(n_args - n - 1, args + n + 1);
    enum hl_status status = read_all(&l, n_args, args, &print_only, &diag);
    if (status == HL_OK && print_only) status = run_print_config(l.mem, l.run_config, &diag);
    else if (status == HL_OK) status = start(&l, &status_out, &diag);
    hl_config_free(l.run_config);
    hl_config_free(l.config);
    return status == HL_OK ? status_out : command_fail("launch", status, &diag);
}
