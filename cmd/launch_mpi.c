/* Ranks by mpirun: it is the one child here, and what it says is passed on as it is. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launch.h"
#include "os/children.h"
#include "os/signal.h"
#include "os/terminal.h"

struct by_mpi {
    struct launch *l;
    struct launch_logs *logs;
    struct hl_children *children;
    struct hl_board board;
    char program[HL_PATH_CAPACITY];
    bool open_mpi;
};

/* ---- which mpirun ---- */

struct version {
    char text[400];
};
static void take_version(void *context, int child, int stream, const char *text, size_t n) {
    struct version *v = context;
    size_t used = strlen(v->text);
    (void)child, (void)stream;
    (void)snprintf(v->text + used, sizeof v->text - used, "%.*s\n", (int)n, text);
}
static void name_mpirun(void *context, int child, char *out, size_t capacity) {
    (void)context, (void)child;
    (void)snprintf(out, capacity, "mpirun");
}

/* What `PROGRAM --version` says; false: it cannot be started. */
static bool ask_version(struct launch *l, char *program, struct version *v) {
    char flag[] = "--version";
    char *words[] = {program, flag, NULL};
    struct hl_children *children;
    struct hl_supervise_end end;
    struct hl_diag diag;
    int child;
    const struct hl_child_setup setup = {.program = program, .args = words, .keep_fd = -1};
    if (hl_children_new(l->mem, 1, &children, &diag) != HL_OK) return false;
    bool ok = hl_children_start(children, &setup, &child, &diag) == HL_OK;
    const struct hl_supervise_setup watch = {.mem = l->mem,
                                             .children = children,
                                             .n = 1,
                                             .timeout_ns = 20000000000,
                                             .saving = -1,
                                             .line = take_version,
                                             .name = name_mpirun,
                                             .context = v};
    ok = ok && hl_supervise(&watch, &end, &diag) == HL_OK && end.status == 0;
    hl_children_free(children);
    return ok;
}

/* HALLEY_MPIRUN; else that of HALLEY_MPI, where both are installed; else the one in PATH. */
static enum hl_status find_mpirun(struct by_mpi *x, struct hl_diag *diag) {
    const char *given = getenv("HALLEY_MPIRUN"), *mpi = getenv("HALLEY_MPI");
    char suffixed[64] = "";
    if (mpi && *mpi && strlen(mpi) < 40)
        (void)snprintf(suffixed, sizeof suffixed, "mpirun.%s", mpi);
    const char *const names[] = {given ? given : "", suffixed, "mpirun", "mpiexec"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct version version = {""};
        if (!*names[i]) continue;
        (void)snprintf(x->program, sizeof x->program, "%s", names[i]);
        if (!ask_version(x->l, x->program, &version)) continue;
        x->open_mpi = strstr(version.text, "Open MPI") || strstr(version.text, "OpenRTE");
        return HL_OK;
    }
    return hl_fail(diag, HL_E_USER,
                   "wire: mpi needs mpirun; install openmpi-bin or mpich, or name it in "
                   "HALLEY_MPIRUN");
}

/* ---- start ---- */

static bool in_path(const char *name) {
    const char *path = getenv("PATH");
    char file[HL_PATH_CAPACITY];
    while (path && *path) {
        size_t n = strcspn(path, ":");
        (void)snprintf(file, sizeof file, "%.*s/%s", (int)n, path, name);
        if (!access(file, X_OK)) return true;
        path += n + (path[n] == ':');
    }
    return false;
}

static enum hl_status start(struct by_mpi *x, bool resume, struct hl_diag *diag) {
    static char flag_n[] = "-n", over[] = "--oversubscribe", bind[] = "--bind-to", none[] = "none",
                root[] = "--allow-run-as-root", mca[] = "--mca", plm[] = "plm",
                isolated[] = "isolated";
    char count[16];
    char *front[16];
    int n = 0, child;
    struct launch_variables v = {.n = 0};
    (void)snprintf(count, sizeof count, "%d", x->l->n_ranks);
    front[n++] = x->program;
    front[n++] = flag_n;
    front[n++] = count;
    if (x->open_mpi) {
        front[n++] = over;
        front[n++] = bind;
        front[n++] = none;
        if (!geteuid()) front[n++] = root;
        if (!in_path("ssh") && !in_path("rsh")) {
            front[n++] = mca;
            front[n++] = plm;
            front[n++] = isolated;
        }
    }
    front[n++] = x->l->program;
    static const char *const others[] = {"RANK",     "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
                                         "PMI_RANK", "PMI_SIZE",   "HALLEY_RANK"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) launch_set(&v, "%s", others[i]);
    launch_set(&v, "HALLEY_WIRE=mpi");
    launch_set(&v, "HALLEY_TIMEOUT=%lld", (long long)(x->l->timeout_ns / 1000000000));
    launch_set(&v, "HALLEY_MPI=%s", x->open_mpi ? "openmpi" : "mpich");
    char board[64];
    hl_board_variable(&x->board, -1, board, sizeof board);
    launch_set(&v, "%s", board);
    launch_set_waiting(&v);
    char **words = launch_words(x->l, front, n, resume);
    if (!words) return hl_fail_memory(diag, (unsigned)x->l->n_args * sizeof *words, "the words");
    const struct hl_child_setup setup = {
        .program = x->program, .args = words, .environment = v.list, .keep_fd = -1};
    enum hl_status status = hl_children_start(x->children, &setup, &child, diag);
    hl_free(x->l->mem, words);
    return status;
}

/* ---- watch ---- */

static void pass_line(void *context, int child, int stream, const char *text, size_t n) {
    struct by_mpi *x = context;
    struct hl_buf line = {.mem = x->l->mem};
    hl_buf_add(&line, text, n);
    hl_buf_puts(&line, "\n");
    if (!line.failed) {
        hl_terminal_write(stream, line.data, line.n);
        launch_logs_add(x->logs, child, "ranks", line.data, line.n);
    }
    hl_buf_free(&line);
}

/* mpirun would kill its ranks after SIGINT or SIGTERM; what it passes on are SIGUSR1 and SIGUSR2,
 * which ranks take for these. */
static void ask(void *context, int child, int number) {
    struct by_mpi *x = context;
    hl_children_signal(x->children, child,
                       number == HL_SIGNAL_INT ? HL_SIGNAL_USR2 : HL_SIGNAL_USR1);
}

/* The rank that failed first: one that gave up because of itself, else the only one that ended
 * without a word (mpirun may have ended several). -1: it cannot be told */
static int find_root(const struct by_mpi *x, struct hl_board_entry *out) {
    int silent = -1, n_silent = 0;
    for (int r = 0; r < x->l->n_ranks; r++) {
        hl_board_read(&x->board, r, out);
        if (out->status && out->status != HL_EXIT_PEER && out->status < 128) return r;
        if (!out->status && out->phase != HL_PHASE_SHUTDOWN) silent = r, n_silent++;
    }
    if (n_silent != 1) return -1;
    hl_board_read(&x->board, silent, out);
    return silent;
}

static void explain(const struct by_mpi *x, struct hl_supervise_end *end) {
    struct hl_board_entry e;
    int root = find_root(x, &e);
    if (root < 0 || e.phase < 0)
        fprintf(stderr, "halley launch: %s; the ranks' words are above\n", end->why);
    else
        fprintf(stderr, "halley launch: first failure: rank %d in the phase %s of step %lld: %s\n",
                root, hl_phase_name((enum hl_phase)e.phase), (long long)e.step,
                e.status ? e.why : "it ended without a word");
    if (root >= 0 && e.status) end->status = e.status;
}

/* mpirun may end with 0 although its ranks did not: Hydra forgets what those said that were asked
 * to stop and, with MPICH 4.2.1 (5 of 120 runs), what any said, or that it was killed. The board
 * does not. */
static void recall(const struct by_mpi *x, struct hl_supervise_end *end) {
    for (int r = 0; r < x->l->n_ranks; r++) {
        struct hl_board_entry e;
        hl_board_read(&x->board, r, &e);
        int was = e.status;
        if (!was && e.phase >= 0 && e.phase != HL_PHASE_SHUTDOWN) was = HL_EXIT_PEER;
        if (was > end->status) end->status = was;
    }
    if (end->status == 0 || end->status > 128) return;
    end->root = 0;
    (void)snprintf(end->why, sizeof end->why, "a rank broke, though mpirun ended with 0");
    explain(x, end);
}

static enum hl_status attempt(void *context, bool resume, struct hl_supervise_end *end,
                              struct hl_diag *diag) {
    struct by_mpi *x = context;
    enum hl_status status = hl_children_new(x->l->mem, 1, &x->children, diag);
    if (status == HL_OK) status = hl_board_new(x->l->n_ranks, &x->board, diag);
    if (status == HL_OK) status = start(x, resume, diag);
    const struct hl_supervise_setup watch = {.mem = x->l->mem,
                                             .children = x->children,
                                             .n = 1,
                                             .timeout_ns = x->l->timeout_ns,
                                             .saving = -1,
                                             .log = &x->l->log,
                                             .line = pass_line,
                                             .name = name_mpirun,
                                             .ask = ask,
                                             .context = x};
    if (status == HL_OK) status = hl_supervise(&watch, end, diag);
    if (status == HL_OK && end->root >= 0) explain(x, end);
    else if (status == HL_OK && end->status == 0) recall(x, end);
    hl_children_free(x->children);
    hl_board_close(&x->board);
    x->children = NULL;
    return status;
}

enum hl_status launch_mpi(struct launch *l, int *exit_out, struct hl_diag *diag) {
    struct by_mpi x = {.l = l};
    enum hl_status status = launch_logs_new(l, 1, &x.logs, diag);
    hl_signal_ignore_pipe();
    if (status == HL_OK) status = find_mpirun(&x, diag);
    if (status == HL_OK) status = launch_attempts(l, attempt, &x, exit_out, diag);
    launch_logs_free(x.logs);
    return status;
}
