/* Ranks as child processes of this one: pool or sockets for them to meet, their lines with a prefix
 * and in files, one watch over all. Nothing is left behind but the log files. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "emulated.h"
#include "launch.h"
#include "os/children.h"
#include "os/signal.h"
#include "os/terminal.h"
#include "wires/pool.h"

struct local {
    struct launch *l;
    struct launch_logs *logs;
    struct hl_children *children;
    struct hl_board board;
    struct hl_pool *pool; /* NULL: another wire */
    char snapshot[HL_PATH_CAPACITY];
    bool resume;
    /* live recovery */
    uint64_t generation;
    int64_t restarts_left;
    int ranks[HL_MAX_RANKS]; /* of each child: its rank, or the last it was */
    bool lost[HL_MAX_RANKS]; /* it was not replaced */
};

/* ---- what ranks say ---- */

static void name_rank(void *context, int child, char *out, size_t capacity) {
    const struct local *x = context;
    (void)snprintf(out, capacity, "rank %d", x->ranks[child]);
}

static void pass_line(void *context, int child, int stream, const char *text, size_t n) {
    struct local *x = context;
    struct hl_buf line = {.mem = x->l->mem};
    char name[32];
    hl_buf_printf(&line, "[rank %d] ", x->ranks[child]);
    size_t prefix = line.n;
    hl_buf_add(&line, text, n);
    hl_buf_puts(&line, "\n");
    (void)snprintf(name, sizeof name, "rank-%d", x->l->first_rank + child);
    if (!line.failed) {
        hl_terminal_write(stream, line.data, line.n);
        launch_logs_add(x->logs, child, name, line.data + prefix, line.n - prefix);
    }
    hl_buf_free(&line);
}

static void bury(void *context, int child) {
    struct local *x = context;
    if (x->pool) hl_pool_wire_bury(x->pool, x->ranks[child]);
    if (x->l->options.elastic) hl_board_break(&x->board, x->generation);
}

/* ---- start ---- */

static void set_place(struct local *x, int child, struct launch_variables *v) {
    const struct launch *l = x->l;
    char board[64];
    launch_set(v, "HALLEY_RANK=%d", l->first_rank + child);
    launch_set(v, "HALLEY_N_RANKS=%d", l->n_ranks);
    launch_set(v, "HALLEY_LOCAL_RANK=%d", child);
    launch_set(v, "HALLEY_N_LOCAL=%d", (int)l->options.n);
    launch_set(v, "HALLEY_WIRE=%s", l->wire);
    launch_set(v, "HALLEY_TIMEOUT=%lld", (long long)(l->timeout_ns / 1000000000));
    launch_set(v, "HALLEY_ADDRESS=%s", l->address);
    launch_set(v, *l->token ? "HALLEY_TOKEN=%s" : "HALLEY_TOKEN", l->token);
    launch_set(v, *l->interface ? "HALLEY_INTERFACE=%s" : "HALLEY_INTERFACE", l->interface);
    hl_board_variable(&x->board, child, board, sizeof board);
    launch_set(v, "%s", board);
    if (l->options.elastic) launch_set(v, "HALLEY_SNAPSHOT=%s", x->snapshot);
    launch_set_waiting(v);
}

/* On a host of its own where there are some (emulated.h). owner: caller, hl_free */
static char **words_of(struct local *x, int child, char name[16]) {
    static char ip[] = "ip", netns[] = "netns", exec[] = "exec", own[] = "halley";
    char *host[] = {ip, netns, exec, name, x->l->program}, *plain[] = {own};
    emulated_name(name, child);
    return x->l->emulated ? launch_words(x->l, host, 5, x->resume)
                          : launch_words(x->l, plain, 1, x->resume);
}

/* again: in the place of a process that ended. */
static enum hl_status start_rank(struct local *x, int child, bool again, struct hl_diag *diag) {
    struct launch_variables v = {.n = 0};
    char host[16];
    int number;
    set_place(x, child, &v);
    char **words = words_of(x, child, host);
    if (!words) return hl_fail_memory(diag, (unsigned)x->l->n_args * sizeof *words, "the words");
    const struct hl_child_setup setup = {.program = x->l->emulated ? words[0] : x->l->program,
                                         .args = words,
                                         .environment = v.list,
                                         .keep_fd = x->board.memory.fd};
    enum hl_status status = again ? hl_children_start_again(x->children, child, &setup, diag)
                                  : hl_children_start(x->children, &setup, &number, diag);
    hl_free(x->l->mem, words);
    if (status == HL_OK)
        hl_log(&x->l->log, HL_LOG_INFO, "rank %d pid %lld", x->ranks[child],
               (long long)hl_children_pid(x->children, child));
    return status;
}

/* Which rank each child is, to those who ask. */
static void publish(struct local *x, int n_ranks, uint64_t generation) {
    for (int i = 0; i < x->l->options.n; i++) {
        const struct hl_board_view view = {
            .generation = generation, .rank = x->ranks[i], .n_ranks = n_ranks};
        if (!x->lost[i]) hl_board_publish(&x->board, i, &view);
    }
}

static enum hl_status start_ranks(struct local *x, struct hl_diag *diag) {
    enum hl_status status = HL_OK;
    publish(x, x->l->n_ranks, x->generation);
    for (int i = 0; i < x->l->options.n && status == HL_OK; i++)
        status = start_rank(x, i, false, diag);
    return status;
}

/* ---- live recovery ---- */

/* A process for each that is gone, while that is allowed and the system has some. */
static void replace(struct local *x, enum hl_fate *fate) {
    for (int i = 0; i < x->l->options.n; i++) {
        struct hl_diag diag = {0};
        if (fate[i] != HL_FATE_GONE || x->lost[i]) continue;
        x->lost[i] = x->restarts_left == 0;
        if (x->lost[i]) continue;
        hl_board_forget(&x->board, i);
        x->restarts_left--;
        if (start_rank(x, i, true, &diag) == HL_OK) fate[i] = HL_FATE_STARTED;
        else {
            hl_log(&x->l->log, HL_LOG_WARN, "rank %d is not replaced: %s", x->ranks[i], diag.text);
            x->lost[i] = true;
        }
    }
}

/* Ranks that lost each other though all live: that counts too, or it might go on for ever. */
static enum hl_status try_the_same(struct local *x, const enum hl_fate *fate,
                                   struct hl_diag *diag) {
    for (int i = 0; i < x->l->options.n; i++)
        if (fate[i] == HL_FATE_GONE && !x->lost[i]) return HL_OK;
    if (x->restarts_left-- > 0) return HL_OK;
    return hl_fail(diag, HL_E_PEER, "ranks lost each other though all live");
}

/* Those that are left, in their order. */
static int count_off(struct local *x) {
    int n = 0, least = -1;
    for (;;) {
        int next = -1;
        for (int i = 0; i < x->l->options.n; i++)
            if (!x->lost[i] && x->ranks[i] > least && (next < 0 || x->ranks[i] < x->ranks[next]))
                next = i;
        if (next < 0) return n;
        least = x->ranks[next];
        x->ranks[next] = n++;
    }
}

static enum hl_status heal(void *context, enum hl_fate *fate, const char *why,
                           struct hl_diag *diag) {
    struct local *x = context;
    enum hl_status status = try_the_same(x, fate, diag);
    if (status != HL_OK) return status;
    replace(x, fate);
    int n = count_off(x);
    if (n == 0) return hl_fail(diag, HL_E_PEER, "none is left");
    status = hl_pool_wire_again(x->pool, n, diag);
    if (status != HL_OK) return status;
    hl_log(&x->l->log, HL_LOG_WARN,
           "%s; %d rank%s on from the last committed step (--max_restarts: %lld left)",
           *why ? why : "ranks lost each other", n, n == 1 ? " goes" : "s go",
           (long long)x->restarts_left);
    publish(x, n, ++x->generation);
    return HL_OK;
}

static void dismiss(void *context, bool done) {
    struct local *x = context;
    publish(x, 0, done ? HL_BOARD_DONE : HL_BOARD_OVER);
}

static enum hl_status prepare_elastic(struct local *x, struct hl_diag *diag) {
    x->restarts_left = x->l->options.max_restarts < 0 ? 10 : x->l->options.max_restarts;
    if (!hl_path_join(x->snapshot, x->pool->folder, HL_POOL_SNAPSHOT))
        return hl_fail(diag, HL_E_USER, "pool: the folder's name is too long");
    (void)unlink(x->snapshot); /* of a launcher that was killed */
    return HL_OK;
}

/* ---- where they meet ---- */

/* In front of where ranks meet, if they do. */
static enum hl_status set_pool_address(struct launch *l, const char *pool, struct hl_diag *diag) {
    char meeting[HL_ADDRESS_CAPACITY] = "";
    if (launch_is_over(l, "wan")) (void)snprintf(meeting, sizeof meeting, "+%s", l->address);
    int n = snprintf(l->address, sizeof l->address, "%s%s", pool, meeting);
    return n < (int)sizeof l->address
               ? HL_OK
               : hl_fail(diag, HL_E_USER, "pool: an address of more than %zu characters",
                         sizeof l->address - 1);
}

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
                                           .one_kernel = !l->far,
                                           .dead_after_ns =
                                               l->timeout_ns < silence ? l->timeout_ns : silence};
    enum hl_status status = hl_pool_wire_new(l->mem, &spec, &x->pool, diag);
    return status == HL_OK ? set_pool_address(l, x->pool->address, diag) : status;
}

/* On several machines the launcher of rank 0 owns the job. Ranks here wait for it to begin; they
 * are not buried, their hearts stop. */
static enum hl_status find_pool(struct launch *l, struct hl_diag *diag) {
    return set_pool_address(l, l->options.pool, diag);
}

/* What this machine's ranks left in a pool of several, only this machine sees to be gone. */
static void tidy(const struct local *x) {
    struct hl_pool *pool;
    if (!x->l->far || !launch_is_over(x->l, "pool")) return;
    if (hl_pool_attach(x->l->mem, x->l->options.pool, false, 0, &pool, NULL) != HL_OK) return;
    hl_pool_forget_gone(pool);
    hl_pool_close(pool);
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

static enum hl_status meet(struct local *x, struct hl_diag *diag) {
    bool pool = launch_is_over(x->l, "pool");
    enum hl_status status = pool || launch_is_over(x->l, "wan") ? launch_meet(x->l, diag) : HL_OK;
    if (status != HL_OK || !pool) return status;
    return x->l->first_rank == 0 ? make_pool(x, diag) : find_pool(x->l, diag);
}

/* ---- one attempt ---- */

static const char *phase_name(int phase) { return hl_phase_name((enum hl_phase)phase); }

static enum hl_status watch(struct local *x, struct hl_supervise_end *end, struct hl_diag *diag) {
    const struct hl_supervise_setup setup = {.mem = x->l->mem,
                                             .children = x->children,
                                             .n = (int)x->l->options.n,
                                             .board = &x->board,
                                             .timeout_ns = x->l->timeout_ns,
                                             .saving = HL_PHASE_SAVE,
                                             .log = &x->l->log,
                                             .line = pass_line,
                                             .name = name_rank,
                                             .bury = bury,
                                             .phase_name = phase_name,
                                             .heal = x->l->options.elastic ? heal : NULL,
                                             .dismiss = dismiss,
                                             .context = x};
    if (x->l->options.secret_on_stdin) hl_children_listen(x->children, STDIN_FILENO);
    enum hl_status status = hl_supervise(&setup, end, diag);
    bool elsewhere = end->status == HL_EXIT_PEER && x->l->n_ranks > x->l->options.n;
    if (status == HL_OK && end->root >= 0)
        fprintf(stderr, "halley launch: %s: %s\n",
                elsewhere ? "a rank on another machine failed" : "first failure", end->why);
    return status;
}

static enum hl_status attempt(void *context, bool resume, struct hl_supervise_end *end,
                              struct hl_diag *diag) {
    struct local *x = context;
    int n = (int)x->l->options.n;
    enum hl_status status = hl_children_new(x->l->mem, n, &x->children, diag);
    if (status == HL_OK) status = hl_board_new(n, &x->board, diag);
    x->generation = 1;
    x->resume = resume;
    for (int i = 0; i < n; i++) x->ranks[i] = x->l->first_rank + i;
    if (status == HL_OK) status = meet(x, diag);
    if (status == HL_OK && x->l->options.elastic) status = prepare_elastic(x, diag);
    if (status == HL_OK) status = start_ranks(x, diag);
    if (status == HL_OK) status = watch(x, end, diag);
    hl_children_free(x->children);
    hl_board_close(&x->board);
    tidy(x);
    if (x->pool) hl_pool_close(x->pool);
    x->children = NULL;
    x->pool = NULL;
    return status;
}

enum hl_status launch_local(struct launch *l, int *exit_out, struct hl_diag *diag) {
    struct local x = {.l = l};
    enum hl_status status = launch_logs_new(l, (int)l->options.n, &x.logs, diag);
    hl_signal_ignore_pipe(); /* a reader of our lines may go; the ranks go on */
    if (launch_is_over(l, "pool")) sweep(l);
    if (status == HL_OK) status = launch_attempts(l, attempt, &x, exit_out, diag);
    launch_logs_free(x.logs);
    return status;
}
