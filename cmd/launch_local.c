/* Ranks as child processes of this one: pool or sockets for them to meet, their lines with a prefix
 * and in files, one watch over all. Nothing is left behind but the log files. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cluster/supervise.h"
#include "launch.h"
#include "os/children.h"
#include "os/fs.h"
#include "os/signal.h"
#include "os/terminal.h"
#include "report/append.h"
#include "train/folder.h"
#include "wires/pool.h"

enum { MOST_VARIABLES = 16, VARIABLE_BYTES = 320 };

struct log_file {
    struct hl_append file;
    bool open, failed;
};
struct local {
    struct launch *l;
    struct hl_children *children;
    struct hl_board board;
    struct hl_pool *pool; /* NULL: another wire */
    char program[HL_PATH_CAPACITY], log_dir[HL_PATH_CAPACITY];
    struct log_file logs[HL_MAX_RANKS];
};

/* ---- what ranks say ---- */

static void open_log(struct local *x, int child, struct hl_diag *diag) {
    struct log_file *log = &x->logs[child];
    char name[32], path[HL_PATH_CAPACITY];
    (void)snprintf(name, sizeof name, "rank-%d.log", x->l->first_rank + child);
    enum hl_status status = hl_run_folder_make(hl_fs_os(), x->log_dir, diag);
    if (status == HL_OK && !hl_path_join(path, x->log_dir, name))
        status = hl_fail(diag, HL_E_USER, "log_dir: the path is too long");
    if (status == HL_OK)
        status = hl_append_open(&log->file, x->l->mem, path, INT64_MAX, false, diag);
    log->open = status == HL_OK;
}

static void keep_line(struct local *x, int child, const char *line, size_t n) {
    struct log_file *log = &x->logs[child];
    struct hl_diag diag = {0};
    if (!log->open && !log->failed) open_log(x, child, &diag);
    if (log->open && hl_append_record(&log->file, line, n, &diag) == HL_OK) return;
    if (!log->failed) hl_log(&x->l->log, HL_LOG_WARN, "a rank's log: %s", diag.text);
    log->failed = true;
}

static void pass_line(void *context, int child, int stream, const char *text, size_t n) {
    struct local *x = context;
    struct hl_buf line = {.mem = x->l->mem};
    hl_buf_printf(&line, "[rank %d] ", x->l->first_rank + child);
    size_t prefix = line.n;
    hl_buf_add(&line, text, n);
    hl_buf_puts(&line, "\n");
    if (!line.failed) {
        hl_terminal_write(stream, line.data, line.n);
        keep_line(x, child, line.data + prefix, line.n - prefix);
    }
    hl_buf_free(&line);
}

static void name_rank(void *context, int child, char *out, size_t capacity) {
    const struct local *x = context;
    (void)snprintf(out, capacity, "rank %d", x->l->first_rank + child);
}

static void bury(void *context, int child) {
    struct local *x = context;
    if (x->pool) hl_pool_wire_bury(x->pool, x->l->first_rank + child);
}

/* ---- start ---- */

struct variables {
    char text[MOST_VARIABLES][VARIABLE_BYTES];
    const char *list[MOST_VARIABLES + 1];
    int n;
};

HL_PRINTF(2, 3)
static void set(struct variables *v, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(v->text[v->n], VARIABLE_BYTES, format, arguments);
    va_end(arguments);
    v->list[v->n] = v->text[v->n];
    v->n++;
}

/* Teams that spin while they wait take the cores from one another when ranks share them. */
static void set_waiting(struct variables *v) {
    if (getenv("GOMP_SPINCOUNT") || getenv("OMP_WAIT_POLICY")) return;
    set(v, "GOMP_SPINCOUNT=10000");
    set(v, "OMP_WAIT_POLICY=passive");
}

static void set_place(struct local *x, int child, struct variables *v) {
    const struct launch *l = x->l;
    char board[64];
    set(v, "HALLEY_RANK=%d", l->first_rank + child);
    set(v, "HALLEY_N_RANKS=%d", l->n_ranks);
    set(v, "HALLEY_LOCAL_RANK=%d", child);
    set(v, "HALLEY_N_LOCAL=%d", (int)l->options.n);
    set(v, "HALLEY_WIRE=%s", l->wire);
    set(v, "HALLEY_TIMEOUT=%lld", (long long)(l->timeout_ns / 1000000000));
    set(v, "HALLEY_ADDRESS=%s", l->address);
    set(v, *l->token ? "HALLEY_TOKEN=%s" : "HALLEY_TOKEN", l->token);
    set(v, *l->interface ? "HALLEY_INTERFACE=%s" : "HALLEY_INTERFACE", l->interface);
    hl_board_variable(&x->board, child, board, sizeof board);
    set(v, "%s", board);
    set_waiting(v);
}

static enum hl_status start_rank(struct local *x, int child, char **args, struct hl_diag *diag) {
    struct variables v = {.n = 0};
    int number;
    set_place(x, child, &v);
    const struct hl_child_setup setup = {
        .program = x->program, .args = args, .environment = v.list, .keep_fd = x->board.memory.fd};
    enum hl_status status = hl_children_start(x->children, &setup, &number, diag);
    if (status == HL_OK)
        hl_log(&x->l->log, HL_LOG_INFO, "rank %d pid %lld", x->l->first_rank + child,
               (long long)hl_children_pid(x->children, number));
    return status;
}

/* "halley", "train" and the words behind it; `resume` adds a flag. owner: caller, hl_free */
static char **rank_args(const struct launch *l, bool resume) {
    static char name[] = "halley", command[] = "train", flag[] = "--resume";
    char **args = hl_alloc(l->mem, (size_t)l->n_args + 4, sizeof *args);
    if (!args) return NULL;
    args[0] = name;
    args[1] = command;
    for (int i = 0; i < l->n_args; i++) args[2 + i] = l->args[i];
    if (resume) args[2 + l->n_args] = flag;
    return args;
}

static enum hl_status start_ranks(struct local *x, bool resume, struct hl_diag *diag) {
    char **args = rank_args(x->l, resume);
    if (!args) return hl_fail_memory(diag, (unsigned)x->l->n_args * sizeof *args, "the words");
    enum hl_status status = HL_OK;
    for (int i = 0; i < x->l->options.n && status == HL_OK; i++)
        status = start_rank(x, i, args, diag);
    hl_free(x->l->mem, args);
    return status;
}

/* ---- where they meet ---- */

/* A rank whose heart stops is dead after three seconds, or sooner when less patience was asked for.
 */
static enum hl_status make_pool(struct local *x, struct hl_diag *diag) {
    struct launch *l = x->l;
    struct hl_wire_place shape;
    int64_t silence = 3000000000;
    ranks_shape(l->n_ranks, &shape);
    const struct hl_pool_wire_spec spec = {.address = *l->options.pool ? l->options.pool : NULL,
                                           .n_ranks = l->n_ranks,
                                           .n_lanes = shape.n_lanes,
                                           .part_bytes = shape.part_bytes,
                                           .one_kernel = true,
                                           .dead_after_ns =
                                               l->timeout_ns < silence ? l->timeout_ns : silence};
    enum hl_status status = hl_pool_wire_new(l->mem, &spec, &x->pool, diag);
    if (status != HL_OK) return status;
    int n = snprintf(l->address, sizeof l->address, "%s", x->pool->address);
    return n < (int)sizeof l->address
               ? HL_OK
               : hl_fail(diag, HL_E_USER, "pool: an address of more than %zu characters",
                         sizeof l->address - 1);
}

/* Pools of launchers that were killed are in the way of nobody, but they are memory. */
static void sweep(struct launch *l) {
    struct hl_diag diag = {0};
    int n = 0;
    enum hl_status status = hl_pool_sweep(l->mem, NULL, &n, &diag);
    if (status != HL_OK) hl_log(&l->log, HL_LOG_WARN, "%s", diag.text);
    if (n)
        hl_log(&l->log, HL_LOG_INFO, "removed %d pool%s of launchers that were killed", n,
               n == 1 ? "" : "s");
}

static enum hl_status find_program(char out[HL_PATH_CAPACITY], struct hl_diag *diag) {
    ssize_t n = readlink("/proc/self/exe", out, HL_PATH_CAPACITY - 1);
    if (n < 0) return hl_fail(diag, HL_E_IO, "/proc/self/exe: this program's own path: %m");
    out[n] = 0;
    return HL_OK;
}

static enum hl_status find_log_dir(struct local *x, struct hl_diag *diag) {
    const char *asked = x->l->options.log_dir;
    int n = *asked ? snprintf(x->log_dir, sizeof x->log_dir, "%s", asked)
                   : snprintf(x->log_dir, sizeof x->log_dir, "%s/logs", x->l->run.train.output_dir);
    return n < (int)sizeof x->log_dir ? HL_OK
                                      : hl_fail(diag, HL_E_USER, "log_dir: the path is too long");
}

/* ---- one attempt ---- */

static const char *phase_name(int phase) { return hl_phase_name((enum hl_phase)phase); }

static enum hl_status watch(struct local *x, struct hl_supervise_end *end, struct hl_diag *diag) {
    const struct hl_supervise_setup setup = {.mem = x->l->mem,
                                             .children = x->children,
                                             .n = (int)x->l->options.n,
                                             .board = &x->board,
                                             .timeout_ns = x->l->timeout_ns,
                                             .log = &x->l->log,
                                             .line = pass_line,
                                             .name = name_rank,
                                             .bury = bury,
                                             .phase_name = phase_name,
                                             .context = x};
    enum hl_status status = hl_supervise(&setup, end, diag);
    if (status == HL_OK && end->root >= 0)
        fprintf(stderr, "halley launch: first failure: %s\n", end->why);
    return status;
}

static enum hl_status attempt(struct local *x, bool resume, struct hl_supervise_end *end,
                              struct hl_diag *diag) {
    int n = (int)x->l->options.n;
    bool pool = !strcmp(x->l->wire, "pool");
    enum hl_status status = hl_children_new(x->l->mem, n, &x->children, diag);
    if (status == HL_OK) status = hl_board_new(n, &x->board, diag);
    if (status == HL_OK && pool) status = make_pool(x, diag);
    if (status == HL_OK) status = start_ranks(x, resume, diag);
    if (status == HL_OK) status = watch(x, end, diag);
    hl_children_free(x->children);
    hl_board_close(&x->board);
    if (x->pool) hl_pool_close(x->pool);
    x->children = NULL;
    x->pool = NULL;
    return status;
}

/* Is there a point in starting again? Not when somebody asked to stop, or the mistake is the
 * user's.
 */
static bool worth_another(const struct hl_supervise_end *end) {
    return end->root >= 0 && !end->asked && end->status != 2;
}

enum hl_status launch_local(struct launch *l, int *exit_out, struct hl_diag *diag) {
    struct local *x = hl_alloc(l->mem, 1, sizeof *x);
    if (!x) return hl_fail_memory(diag, sizeof *x, "the launcher");
    struct hl_supervise_end end = {.root = -1};
    enum hl_status status = HL_OK;
    x->l = l;
    hl_signal_ignore_pipe(); /* a reader of our lines may go; the ranks go on */
    sweep(l);
    status = find_program(x->program, diag);
    if (status == HL_OK) status = find_log_dir(x, diag);
    if (status == HL_OK) status = attempt(x, false, &end, diag);
    for (int64_t left = l->options.max_restarts; status == HL_OK && left > 0 && worth_another(&end);
         left--) {
        hl_log(&l->log, HL_LOG_WARN,
               "all ranks are started again from the newest checkpoint (--max_restarts: %lld left)",
               (long long)left - 1);
        status = attempt(x, true, &end, diag);
    }
    for (int i = 0; i < l->options.n; i++)
        if (x->logs[i].open) hl_append_close(&x->logs[i].file);
    hl_free(l->mem, x);
    *exit_out = end.status;
    return status;
}
