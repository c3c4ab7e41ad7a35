/* Who is to blame when children fail, stand still or do not end; that lines come whole, signals are
 * passed on, and nothing is left running. The children are shell scripts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <errno.h>
#include <signal.h>
#include <unistd.h>

#include "cluster/supervise.h"

enum { MOST = 4 };

/* What a test starts, and what came of it. */
struct rig {
    struct hl_children *children;
    struct hl_board board;
    char said[4000], logged[2000], buried[40];
    int64_t pids[MOST];
    struct hl_supervise_end end;
    /* live recovery */
    bool heals;
    const char *again;  /* script of whoever is started again; NULL: there is nobody */
    int n_healed, told; /* told: by dismiss, 1: it is over, 2: all is done */
    char fates[MOST + 1], why[600], flag[64];
};

static void take_line(void *context, int child, int stream, const char *text, size_t n) {
    struct rig *r = context;
    size_t used = strlen(r->said);
    (void)snprintf(r->said + used, sizeof r->said - used, "%d.%d:%.*s\n", child, stream, (int)n,
                   text);
}
static void name_child(void *context, int child, char *out, size_t capacity) {
    (void)context;
    (void)snprintf(out, capacity, "rank %d", child);
}
static void bury_child(void *context, int child) {
    struct rig *r = context;
    size_t used = strlen(r->buried);
    (void)snprintf(r->buried + used, sizeof r->buried - used, "%d", child);
}
static const char *phase_name(int phase) { return phase == 2 ? "forward" : "start"; }
static void take_log(struct hl_log *log, enum hl_log_level level, const char *text) {
    struct rig *r = log->context;
    size_t used = strlen(r->logged);
    (void)level;
    (void)snprintf(r->logged + used, sizeof r->logged - used, "%s\n", text);
}

/* In the place of a child that ended, or as the next one. */
static void start_in(struct rig *r, int again, const char *script) {
    struct hl_diag diag = {0};
    char copy[600], board[64];
    (void)snprintf(copy, sizeof copy, "%s", script);
    char shell[] = "sh", flag[] = "-c";
    char *args[] = {shell, flag, copy, NULL};
    int child = 0;
    hl_board_variable(&r->board, 0, board, sizeof board);
    char flag_name[80];
    (void)snprintf(flag_name, sizeof flag_name, "FLAG=%s", r->flag);
    const char *environment[] = {board, "MARK=here", "HOME", flag_name, NULL};
    const struct hl_child_setup setup = {
        .program = "sh", .args = args, .environment = environment, .keep_fd = r->board.memory.fd};
    enum hl_status status = again < 0 ? hl_children_start(r->children, &setup, &child, &diag)
                                      : hl_children_start_again(r->children, again, &setup, &diag);
    if (status != HL_OK) fail_msg("%s", diag.text);
    child = again < 0 ? child : again;
    r->pids[child] = hl_children_pid(r->children, child);
}
static void start(struct rig *r, const char *script) { start_in(r, -1, script); }

/* Those that wait see the flag. */
static void raise_flag(struct rig *r) {
    FILE *f = fopen(r->flag, "w");
    assert_non_null(f);
    assert_int_equal(fclose(f), 0);
}
static enum hl_status heal(void *context, enum hl_fate *fate, const char *why,
                           struct hl_diag *diag) {
    struct rig *r = context;
    r->n_healed++;
    (void)snprintf(r->why, sizeof r->why, "%s", why);
    for (int i = 0; i < 2; i++) r->fates[i] = fate[i] == HL_FATE_GONE ? 'g' : 'w';
    if (!r->again) return hl_fail(diag, HL_E_PEER, "nobody is there");
    for (int i = 0; i < 2; i++)
        if (fate[i] == HL_FATE_GONE) {
            start_in(r, i, r->again);
            fate[i] = HL_FATE_STARTED;
        }
    raise_flag(r);
    return HL_OK;
}
static void dismiss(void *context, bool done) {
    struct rig *r = context;
    r->told = done ? 2 : 1;
    raise_flag(r);
}

/* Runs n scripts under the supervisor. */
static void supervise(struct rig *r, int seconds, int n, const char *const *scripts) {
    struct hl_diag diag = {0};
    struct hl_log log = {.line = take_log, .least = HL_LOG_INFO, .context = r};
    bool heals = r->heals;
    *r = (struct rig){.heals = heals, .again = r->again, .flag = "/tmp/test-supervise-XXXXXX"};
    int file = mkstemp(r->flag);
    assert_true(file >= 0 && !close(file) && !unlink(r->flag));
    assert_int_equal(hl_board_new(MOST, &r->board, &diag), HL_OK);
    if (heals) hl_board_await(&r->board, 0, 2); /* child 0 comes back whenever one is lost */
    hl_board_tell(&r->board, 1, 2, 7);
    hl_board_give_up(&r->board, 2, 3, "no number");
    assert_int_equal(hl_children_new(hl_mem_default(), MOST, &r->children, &diag), HL_OK);
    for (int i = 0; i < n; i++) start(r, scripts[i]);
    const struct hl_supervise_setup setup = {.mem = hl_mem_default(),
                                             .children = r->children,
                                             .n = n,
                                             .board = &r->board,
                                             .timeout_ns = seconds * 1000000000L,
                                             .saving = -1,
                                             .log = &log,
                                             .line = take_line,
                                             .name = name_child,
                                             .bury = bury_child,
                                             .phase_name = phase_name,
                                             .heal = heals ? heal : NULL,
                                             .dismiss = dismiss,
                                             .context = r};
    assert_int_equal(hl_supervise(&setup, &r->end, &diag), HL_OK);
    hl_children_free(r->children);
    (void)unlink(r->flag);
    hl_board_close(&r->board);
    for (int i = 0; i < n; i++) assert_true(kill((pid_t)r->pids[i], 0) < 0 && errno == ESRCH);
}

static void expect(const struct rig *r, int status, int root, const char *why) {
    if (r->end.status != status || r->end.root != root || !strstr(r->end.why, why))
        fail_msg("status %d, root %d, %s; said: %s logged: %s", r->end.status, r->end.root,
                 r->end.why, r->said, r->logged);
}

static void says(const struct rig *r, const char *text) {
    if (!strstr(r->said, text)) fail_msg("no '%s' in: %s", text, r->said);
}

static void test_good_end(void **state) {
    (void)state;
    struct rig r = {.heals = false};
    supervise(&r, 20, 3,
              (const char *const[]){"printf 'a\\nb'; sleep 0.1; printf 'c\\n'", "echo err >&2",
                                    "echo $MARK $HOME; exec >&-; exit 0"});
    expect(&r, 0, -1, "");
    says(&r, "0.1:a\n");
    says(&r, "0.1:bc\n");
    says(&r, "1.2:err\n");
    says(&r, "2.1:here\n");
    assert_false(r.end.asked);
    assert_string_equal(r.buried, "");
}

/* The first that fails by itself, though others that noticed end before it is looked at. */
static void test_first_failure(void **state) {
    (void)state;
    struct rig r = {.heals = false};
    supervise(&r, 20, 3, (const char *const[]){"sleep 0.2; exit 4", "kill -SEGV $$", "exit 0"});
    expect(&r, 139, 1, "was ended by signal 11");
    expect(&r, 139, 1, "in the phase forward of step 7");
    assert_true(strchr(r.buried, '0') && strchr(r.buried, '1'));
    supervise(&r, 20, 3, (const char *const[]){"exit 4", "exit 4", "sleep 0.2; echo x; exit 3"});
    expect(&r, 3, 2, "ended with status 3 before it said anything: no number");
    supervise(&r, 20, 2, (const char *const[]){"exit 4", "sleep 0.5; exit 4"});
    expect(&r, 4, 0, "ended with status 4");
}

static void test_late(void **state) {
    (void)state;
    struct rig r = {.heals = false};
    supervise(&r, 1, 2, (const char *const[]){"exit 4", "while :; do :; done"});
    expect(&r, 137, 1, "did not end in time in the phase forward of step 7");
    /* the others are done, and one sleeps on */
    supervise(&r, 1, 2, (const char *const[]){"exit 0", "exec sleep 100"});
    expect(&r, 137, 1, "gave no sign of life");
    /* it may take its time while it lives */
    supervise(&r, 1, 2,
              (const char *const[]){"exit 0", "for i in 1 2 3 4 5; do sleep 0.5; echo; done"});
    expect(&r, 0, -1, "");
}

static void test_stopped(void **state) {
    (void)state;
    struct rig r = {.heals = false};
    supervise(&r, 20, 2, (const char *const[]){"kill -STOP $$", "sleep 0.3; exit 4"});
    expect(&r, 137, 0, "was stopped (SIGSTOP)");
    assert_non_null(strstr(r.logged, "it has 20 s to go on"));
    supervise(&r, 1, 1, (const char *const[]){"kill -STOP $$"});
    expect(&r, 137, 0, "was stopped (SIGSTOP)");
    supervise(&r, 20, 1, (const char *const[]){"(sleep 0.3; kill -CONT $$) & kill -STOP $$; wait"});
    expect(&r, 0, -1, "");
}

#define SAVES "trap 'echo saving; sleep 0.2; exit 129' HUP; echo ready; "
#define FOREVER "while :; do sleep 0.05; done"
static void test_signals(void **state) {
    (void)state;
    struct rig r = {.heals = false};
    supervise(&r, 20, 2,
              (const char *const[]){SAVES FOREVER, SAVES "sleep 1; kill -HUP $PPID; " FOREVER});
    expect(&r, 129, -1, "");
    assert_true(r.end.asked);
    says(&r, "0.1:saving");
    says(&r, "1.1:saving");
    /* not yet at the point where it watches */
    supervise(&r, 20, 1, (const char *const[]){"kill -INT $PPID; " FOREVER});
    expect(&r, 130, -1, "");
    /* the second one does not wait */
    supervise(&r, 20, 1,
              (const char *const[]){"trap '' TERM; kill -TERM $PPID; sleep 0.2; kill -INT $PPID; "
                                    "echo on; " FOREVER});
    expect(&r, 130, -1, "");
}

#define WAITS "while [ ! -e $FLAG ]; do sleep 0.02; done; "
static void test_heal(void **state) {
    (void)state;
    struct rig r = {.heals = true, .again = "echo again"};
    supervise(&r, 20, 2, (const char *const[]){WAITS "echo on", "sleep 0.1; kill -KILL $$"});
    expect(&r, 0, -1, "");
    assert_true(r.n_healed == 1 && r.told == 0);
    assert_string_equal(r.fates, "wg");
    assert_non_null(strstr(r.why, "rank 1 (host "));
    assert_non_null(strstr(r.why, "was ended by signal 9"));
    says(&r, "0.1:on");
    says(&r, "1.1:again");
    assert_string_equal(r.buried, "1");
    /* who does not come back, and ends without a word */
    r.again = "exit 0";
    supervise(&r, 1, 2, (const char *const[]){WAITS, "while :; do sleep 0.05; done"});
    expect(&r, 0, -1, "");
    assert_non_null(strstr(r.why, "did not come back in time"));
    supervise(&r, 20, 2, (const char *const[]){WAITS, "exit 1"});
    expect(&r, 0, -1, "");
    assert_int_equal(r.n_healed, 1);
    /* what is started again fails as before */
    r.again = "kill -SEGV $$";
    supervise(&r, 1, 2, (const char *const[]){"sleep 0.3; exit 0", "kill -SEGV $$"});
    expect(&r, 0, -1, ""); /* child 0 was through */
    assert_int_equal(r.told, 2);
}

static void test_not_healed(void **state) {
    (void)state;
    /* it gave a reason: see supervise() */
    struct rig r = {.heals = true, .again = "exit 0"};
    supervise(&r, 20, 3, (const char *const[]){WAITS "exit 4", WAITS "exit 4", "exit 3"});
    expect(&r, 3, 2, "ended with status 3 before it said anything: no number");
    assert_true(r.n_healed == 0 && r.told == 1);
    /* nobody can be started */
    r.again = NULL;
    supervise(&r, 20, 2, (const char *const[]){WAITS "exit 4", "kill -KILL $$"});
    expect(&r, 137, 1, "was ended by signal 9");
    assert_true(r.n_healed == 1 && r.told == 1);
    assert_non_null(strstr(r.logged, "no other ranks follow: nobody is there"));
    /* all were asked to stop */
    r.again = "exit 0";
    supervise(&r, 20, 2,
              (const char *const[]){"trap 'exit 143' TERM; " FOREVER,
                                    "kill -TERM $PPID; sleep 0.2; kill -KILL $$"});
    assert_true(r.end.asked && r.n_healed == 0);
}

static void test_no_program(void **state) {
    (void)state;
    struct hl_diag diag = {0};
    struct hl_children *c;
    char name[] = "nothing-like-this";
    char *args[] = {name, NULL};
    int child = 7;
    const struct hl_child_setup setup = {.program = name, .args = args, .keep_fd = -1};
    assert_int_equal(hl_children_new(hl_mem_default(), 1, &c, &diag), HL_OK);
    assert_int_equal(hl_children_start(c, &setup, &child, &diag), HL_E_IO);
    assert_non_null(strstr(diag.text, "nothing-like-this: cannot be started: No such file"));
    assert_int_equal(child, 7);
    hl_children_free(c);
}

/* Each allocation fails in turn, up to the one that is not made any more. */
static enum hl_status run_with(struct hl_mem *mem) {
    struct hl_diag diag = {0};
    struct hl_children *c = NULL;
    struct rig r = {.children = NULL};
    struct hl_supervise_end end;
    char shell[] = "sh", flag[] = "-c", script[] = "printf x";
    char *args[] = {shell, flag, script, NULL};
    int child;
    const struct hl_child_setup start_it = {.program = shell, .args = args, .keep_fd = -1};
    enum hl_status status = hl_children_new(mem, 1, &c, &diag);
    if (status == HL_OK) status = hl_children_start(c, &start_it, &child, &diag);
    const struct hl_supervise_setup setup = {.mem = mem,
                                             .children = c,
                                             .n = 1,
                                             .timeout_ns = 20000000000,
                                             .saving = -1,
                                             .line = take_line,
                                             .name = name_child,
                                             .phase_name = phase_name,
                                             .context = &r};
    if (status == HL_OK) status = hl_supervise(&setup, &end, &diag);
    hl_children_free(c);
    return status;
}

static void test_memory(void **state) {
    (void)state;
    struct hl_mem_probe probe;
    hl_mem_probe_init(&probe, 0);
    assert_int_equal(run_with(&probe.mem), HL_OK);
    long n = probe.n_taken;
    assert_true(n >= 5);
    for (long k = 1; k <= n; k++) {
        hl_mem_probe_init(&probe, k);
        enum hl_status status = run_with(&probe.mem);
        /* half a line that finds no memory is lost, not the run */
        assert_true(status == HL_E_MEMORY || (status == HL_OK && k == n));
        assert_int_equal(probe.n_live, 0);
    }
}

static void test_input(void **state) {
    (void)state;
    struct hl_diag diag = {0};
    struct hl_children *c;
    struct hl_child_event e;
    char name[] = "cat";
    char *args[] = {name, NULL};
    int child = 0;
    const struct hl_child_setup setup = {
        .program = name, .args = args, .keep_fd = -1, .input = true};
    assert_int_equal(hl_children_new(hl_mem_default(), 1, &c, &diag), HL_OK);
    assert_int_equal(hl_children_start(c, &setup, &child, &diag), HL_OK);
    assert_true(hl_children_write(c, child, "secret\n"));
    do hl_children_next(c, 1000000000, &e);
    while (e.kind == HL_CHILDREN_QUIET);
    assert_int_equal(e.kind, HL_CHILD_OUTPUT);
    assert_memory_equal(e.bytes, "secret\n", 7);
    assert_true(hl_children_write(c, child, NULL));
    do hl_children_next(c, 1000000000, &e);
    while (e.kind != HL_CHILD_ENDED);
    assert_int_equal(e.status, 0);
    hl_children_free(c);
}

static void test_board(void **state) {
    (void)state;
    struct hl_board board, other;
    struct hl_board_entry entry;
    struct hl_diag diag = {0};
    char variable[64];
    int own = -1;
    assert_int_equal(unsetenv("HALLEY_BOARD"), 0);
    assert_int_equal(hl_board_from_environment(0, &other, &own, &diag), HL_END);
    assert_int_equal(hl_board_new(3, &board, &diag), HL_OK);
    hl_board_variable(&board, 2, variable, sizeof variable);
    assert_int_equal(setenv("HALLEY_BOARD", strchr(variable, '=') + 1, 1), 0);
    assert_int_equal(hl_board_from_environment(1, &other, &own, &diag), HL_OK);
    assert_int_equal(own, 2);
    hl_board_close(&other);
    hl_board_variable(&board, -1, variable, sizeof variable); /* by rank */
    assert_int_equal(setenv("HALLEY_BOARD", strchr(variable, '=') + 1, 1), 0);
    assert_int_equal(hl_board_from_environment(3, &other, &own, &diag), HL_END);
    assert_int_equal(hl_board_from_environment(2, &other, &own, &diag), HL_OK);
    assert_int_equal(own, 2);
    hl_board_read(&board, 2, &entry);
    assert_int_equal(entry.phase, -1);
    hl_board_tell(&other, own, 5, (int64_t)1 << 40);
    hl_board_read(&board, 2, &entry);
    assert_int_equal(entry.phase, 5);
    assert_int_equal(entry.step, (int64_t)1 << 40);
    assert_string_equal(entry.why, "");
    hl_board_give_up(&other, own, 2, "because");
    hl_board_read(&board, 2, &entry);
    assert_string_equal(entry.why, "because");
    assert_int_equal(entry.status, 2);
    hl_board_read(&board, 1, &entry);
    assert_int_equal(entry.phase, -1);
    struct hl_board_view view;
    hl_board_look(&other, own, &view);
    assert_true(!view.generation && !view.broken);
    hl_board_publish(&board, 2, &(struct hl_board_view){.generation = 3, .rank = 1, .n_ranks = 2});
    hl_board_break(&board, 3);
    hl_board_await(&other, own, 4);
    hl_board_look(&other, own, &view);
    assert_true(view.generation == 3 && view.rank == 1 && view.n_ranks == 2 && view.broken == 3);
    hl_board_read(&board, 2, &entry);
    assert_int_equal(entry.awaits, 4);
    hl_board_forget(&board, 2);
    hl_board_look(&other, own, &view);
    hl_board_read(&board, 2, &entry);
    assert_true(!view.generation && !view.broken && !entry.awaits && entry.phase == -1);
    hl_board_close(&other);
    hl_board_close(&board);
    const char *const wrong[] = {"x", "1:2", "1:3:5:5", "1:3:0:0", "1:-1:3:0"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(setenv("HALLEY_BOARD", wrong[i], 1), 0);
        assert_true(hl_board_from_environment(0, &other, &own, &diag) < 0);
    }
    /* a launcher that is no more, a descriptor that is something else */
    assert_int_equal(setenv("HALLEY_BOARD", "999999999:3:3:0", 1), 0);
    assert_int_equal(hl_board_from_environment(0, &other, &own, &diag), HL_END);
    char not_ours[64];
    (void)snprintf(not_ours, sizeof not_ours, "%ld:0:3:0", (long)getppid());
    assert_int_equal(setenv("HALLEY_BOARD", not_ours, 1), 0);
    assert_int_equal(hl_board_from_environment(0, &other, &own, &diag), HL_END);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good_end),  cmocka_unit_test(test_first_failure),
        cmocka_unit_test(test_late),      cmocka_unit_test(test_stopped),
        cmocka_unit_test(test_signals),   cmocka_unit_test(test_no_program),
        cmocka_unit_test(test_input),     cmocka_unit_test(test_memory),
        cmocka_unit_test(test_board),     cmocka_unit_test(test_heal),
        cmocka_unit_test(test_not_healed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
