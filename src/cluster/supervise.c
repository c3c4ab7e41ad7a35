/* See supervise.h.
 *
 * The root cause is, in this order: the first that failed by itself; one that stood still (SIGSTOP)
 * until its time was over; one that did not end when it should; the first that said a peer failed.
 *
 * With live recovery a rank that died without a word is replaced: those that are left come back and
 * wait on the board. One that gave a reason for its end would find it again, so that ends the run;
 * so do signals. When one has ended well, all have done their work. */
#include "cluster/supervise.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "os/clock.h"
#include "os/signal.h"

enum { LONGEST_LINE = 65536, STREAMS = 2 };
static const int64_t LOOK_NS = 250000000;   /* how often deadlines are looked at */
static const int64_t GRACE_NS = 2000000000; /* for ranks whose own deadline is the same */
/* After a failure: until those that are left are asked to end, and then until they are killed. Who
 * exchanges something has noticed long before; not so who waits for the first to come. */
static const int64_t ASK_NS = 5000000000, KILL_NS = 5000000000;
/* With live recovery: how often the board is looked at then, and how long a rank may compute on. */
static const int64_t HEAL_LOOK_NS = 2000000, COME_BACK_NS = 30000000000;

enum blame { NOBODY, PEER, LATE, STILL, ITSELF };

struct watched {
    bool ended, killed, asked; /* asked to end after a failure */
    int status;
    int64_t stopped_ns; /* since when it stands still; 0: it does not */
    int64_t active_ns;  /* last sign of life */
    uint64_t activity;
    struct hl_buf part[STREAMS]; /* of a line */
};
struct supervisor {
    const struct hl_supervise_setup *s;
    struct watched *children;
    enum hl_fate *fate; /* [n] */
    int n_left;
    int64_t failed_ns; /* when the first failure was seen; 0: none */
    int64_t ending_ns; /* when the first one ended, or was asked to */
    int signal;        /* the first that came */
    bool hopeless;     /* no generation of ranks will follow */
    bool dismissed, done;
    uint64_t generation;
    bool input_ended; /* it was the end of the input: whoever is gone may have sent SIGTERM too */
    enum blame blame;
    struct hl_supervise_end end;
};

/* ---- words ---- */

static void name_of(const struct supervisor *v, int child, char *out, size_t capacity) {
    char host[64] = "?", name[80] = "";
    if (gethostname(host, sizeof host - 1)) (void)strcpy(host, "?");
    v->s->name(v->s->context, child, name, sizeof name);
    (void)snprintf(out, capacity, "%s (host %s, pid %lld)", name, host,
                   (long long)hl_children_pid(v->s->children, child));
}

/* " in the phase forward of step 7" */
static void where(const struct supervisor *v, int child, char *out, size_t capacity,
                  struct hl_board_entry *entry) {
    *entry = (struct hl_board_entry){.phase = -1};
    out[0] = 0;
    if (!v->s->board) return;
    hl_board_read(v->s->board, child, entry);
    if (entry->phase < 0) (void)snprintf(out, capacity, " before it said anything");
    else
        (void)snprintf(out, capacity, " in the phase %s of step %lld",
                       v->s->phase_name(entry->phase), (long long)entry->step);
}

static void how(const struct watched *w, char *out, size_t capacity) {
    if (w->status < 0)
        (void)snprintf(out, capacity, "was ended by signal %d (%s)", -w->status,
                       strsignal(-w->status));
    else (void)snprintf(out, capacity, "ended with status %d", w->status);
}

static int exit_status(int status) { return status < 0 ? 128 - status : status; }

/* A graver reason replaces a lighter one; of equals the first stays. */
static void blame(struct supervisor *v, int child, enum blame grade, const char *what, int status) {
    char name[160], place[80];
    struct hl_board_entry entry;
    if (grade <= v->blame) return;
    name_of(v, child, name, sizeof name);
    where(v, child, place, sizeof place, &entry);
    v->blame = grade;
    v->end.root = child;
    v->end.status = status;
    (void)snprintf(v->end.why, sizeof v->end.why, "%s %s%s%s%s", name, what, place,
                   *entry.why ? ": " : "", entry.why);
}

/* ---- lines ---- */

static void pass_line(struct supervisor *v, int child, int stream, const char *text, size_t n) {
    v->s->line(v->s->context, child, stream, text, n);
}

static void flush_part(struct supervisor *v, int child, int s) {
    struct hl_buf *part = &v->children[child].part[s];
    if (part->n) pass_line(v, child, s + 1, part->data, part->n);
    part->n = 0;
}

static void take_output(struct supervisor *v, const struct hl_child_event *e) {
    struct hl_buf *part = &v->children[e->child].part[e->stream - 1];
    const char *at = e->bytes, *end = e->bytes + e->n;
    for (const char *newline; (newline = memchr(at, '\n', (size_t)(end - at))); at = newline + 1) {
        if (part->n == 0) {
            pass_line(v, e->child, e->stream, at, (size_t)(newline - at));
            continue;
        }
        hl_buf_add(part, at, (size_t)(newline - at));
        flush_part(v, e->child, e->stream - 1);
    }
    if (at < end) hl_buf_add(part, at, (size_t)(end - at));
    if (part->n >= LONGEST_LINE) flush_part(v, e->child, e->stream - 1);
}

/* ---- failures ---- */

static void bury(struct supervisor *v, int child) {
    if (v->s->bury) v->s->bury(v->s->context, child);
}

static void fail(struct supervisor *v, int64_t now) {
    if (!v->failed_ns) v->failed_ns = now;
}

static void kill_child(struct supervisor *v, int child, enum blame grade, const char *what) {
    struct watched *w = &v->children[child];
    char name[160];
    if (w->ended || w->killed) return;
    name_of(v, child, name, sizeof name);
    hl_log(v->s->log, HL_LOG_WARN, "%s %s: killed", name, what);
    blame(v, child, grade, what, 128 + HL_SIGNAL_KILL);
    w->killed = true;
    hl_children_signal(v->s->children, child, HL_SIGNAL_KILL);
}

/* Did it end because it was asked to? */
static bool as_asked(const struct supervisor *v, int status) {
    static const int asking[] = {HL_SIGNAL_INT, HL_SIGNAL_TERM, HL_SIGNAL_HUP};
    for (size_t i = 0; i < sizeof asking / sizeof *asking; i++)
        if (status == 128 + asking[i] || (v->signal && status == -asking[i])) return true;
    return false;
}

static bool gave_reason(const struct supervisor *v, int child) {
    struct hl_board_entry entry = {.status = 0};
    if (v->s->board) hl_board_read(v->s->board, child, &entry);
    return entry.status;
}

static void take_end(struct supervisor *v, const struct hl_child_event *e, int64_t now) {
    struct watched *w = &v->children[e->child];
    char what[120];
    for (int s = 0; s < STREAMS; s++) flush_part(v, e->child, s);
    w->ended = true;
    w->status = e->status;
    v->n_left--;
    if (!v->ending_ns) v->ending_ns = now;
    v->done |= e->status == 0;
    if (e->status == 0) return;
    if (as_asked(v, e->status)) {
        if (v->blame == NOBODY && !v->end.status) v->end.status = exit_status(e->status);
        return;
    }
    how(w, what, sizeof what);
    if (!w->killed && !w->asked && e->status > 0 && e->status != HL_EXIT_PEER &&
        gave_reason(v, e->child))
        v->hopeless = true;
    if (!w->killed && !w->asked)
        blame(v, e->child, e->status == HL_EXIT_PEER ? PEER : ITSELF, what, exit_status(e->status));
    fail(v, now);
    bury(v, e->child);
}

/* ---- live recovery ---- */

static bool may_heal(const struct supervisor *v) {
    return v->s->heal && !v->hopeless && !v->signal && !v->done;
}

static bool waits(const struct supervisor *v, int child) {
    struct hl_board_entry entry;
    const struct watched *w = &v->children[child];
    if (w->ended || w->killed) return false;
    hl_board_read(v->s->board, child, &entry);
    return entry.awaits > v->generation;
}

static void start_over(struct supervisor *v, int64_t now) {
    v->generation++;
    v->failed_ns = v->ending_ns = 0;
    v->blame = NOBODY;
    v->end = (struct hl_supervise_end){.root = -1};
    for (int i = 0; i < v->s->n; i++) {
        struct watched *w = &v->children[i];
        w->active_ns = now;
        if (v->fate[i] != HL_FATE_STARTED) continue;
        w->ended = w->killed = w->asked = false;
        w->stopped_ns = 0;
        v->n_left++;
    }
}

/* Everybody has ended or waits. */
static void heal(struct supervisor *v, int64_t now) {
    enum hl_fate *fate = v->fate;
    struct hl_diag diag = {0};
    for (int i = 0; i < v->s->n; i++) {
        fate[i] = v->children[i].ended ? HL_FATE_GONE : HL_FATE_WAITS;
        if (fate[i] == HL_FATE_WAITS && !waits(v, i)) return;
    }
    if (v->s->heal(v->s->context, fate, v->end.why, &diag) == HL_OK) {
        start_over(v, now);
        return;
    }
    hl_log(v->s->log, HL_LOG_WARN, "no other ranks follow: %s", diag.text);
    v->hopeless = true;
}

/* One that has ended well had waited until all were through. */
static void finish(struct supervisor *v) {
    if (*v->end.why) hl_log(v->s->log, HL_LOG_WARN, "%s, when all was done", v->end.why);
    v->end = (struct hl_supervise_end){.root = -1};
    v->blame = ITSELF; /* nothing that follows is a reason */
}

static void recover(struct supervisor *v, int64_t now) {
    for (int i = 0; i < v->s->n && !v->failed_ns && may_heal(v); i++)
        if (waits(v, i)) fail(v, now);
    if (!v->failed_ns) return;
    if (may_heal(v)) heal(v, now);
    if (may_heal(v) || v->dismissed) return;
    v->dismissed = true;
    bool done = v->done && !v->hopeless && !v->signal;
    v->s->dismiss(v->s->context, done);
    if (done) finish(v);
}

/* ---- time ---- */

static void note_activity(struct supervisor *v, int child, int64_t now) {
    struct watched *w = &v->children[child];
    struct hl_board_entry entry = {.step = 0};
    if (v->s->board) hl_board_read(v->s->board, child, &entry);
    uint64_t activity = hl_children_activity(v->s->children, child) + (uint64_t)entry.step * 8 +
                        (uint64_t)entry.phase;
    if (activity != w->activity) w->active_ns = now;
    w->activity = activity;
}

static bool is_saving(const struct supervisor *v, int child, int64_t now) {
    struct hl_board_entry entry = {.phase = -1};
    if (v->s->board) hl_board_read(v->s->board, child, &entry);
    return entry.phase >= 0 && entry.phase == v->s->saving &&
           now - v->children[child].active_ns < v->s->timeout_ns;
}

static void ask_child(struct supervisor *v, int child) {
    v->children[child].asked = true;
    blame(v, child, LATE, "did not end in time", 128 + HL_SIGNAL_KILL);
    if (v->s->ask) v->s->ask(v->s->context, child, HL_SIGNAL_TERM);
    else hl_children_signal(v->s->children, child, HL_SIGNAL_TERM);
}

/* Others have failed. */
static void hurry(struct supervisor *v, int child, int64_t now) {
    int64_t ask = v->s->timeout_ns + GRACE_NS < ASK_NS ? v->s->timeout_ns + GRACE_NS : ASK_NS,
            late = now - v->failed_ns;
    if (late < ask || is_saving(v, child, now)) return;
    if (!v->children[child].asked) ask_child(v, child);
    else if (late > ask + KILL_NS) kill_child(v, child, LATE, "did not end in time");
}

/* Others wait for it, to be ranks again. */
static void expect_back(struct supervisor *v, int child, int64_t now) {
    int64_t most = v->s->timeout_ns / 2 < COME_BACK_NS ? v->s->timeout_ns / 2 : COME_BACK_NS;
    if (now - v->failed_ns > most && !is_saving(v, child, now))
        kill_child(v, child, LATE, "did not come back in time");
}

static void look_at_child(struct supervisor *v, int child, int64_t now) {
    struct watched *w = &v->children[child];
    int64_t timeout = v->s->timeout_ns;
    if (w->ended || w->killed) return;
    note_activity(v, child, now);
    if (w->stopped_ns && (v->failed_ns || now - w->stopped_ns > timeout)) {
        fail(v, now);
        kill_child(v, child, STILL, "was stopped (SIGSTOP)");
    } else if (v->failed_ns && may_heal(v)) {
        if (!waits(v, child)) expect_back(v, child, now);
    } else if (v->failed_ns) hurry(v, child, now);
    else if (v->ending_ns && now - v->ending_ns > timeout && now - w->active_ns > timeout) {
        fail(v, now);
        kill_child(v, child, LATE, "gave no sign of life");
    }
}

static void go_on(struct supervisor *v, int64_t now) {
    if (v->failed_ns) v->failed_ns = now;
    if (v->ending_ns) v->ending_ns = now;
    for (int i = 0; i < v->s->n; i++) {
        v->children[i].active_ns = now;
        v->children[i].stopped_ns = 0;
    }
}

/* ---- signals ---- */

static void take_signal(struct supervisor *v, int number, int64_t now) {
    if (v->input_ended && number == HL_SIGNAL_TERM) {
        v->input_ended = false;
        return;
    }
    if (v->signal && number == HL_SIGNAL_HUP) return; /* it comes beside others: os/signal.h */
    if (v->signal && v->signal != HL_SIGNAL_HUP) {
        v->end.status = 128 + number;
        v->blame = ITSELF; /* nothing that follows is a reason */
        for (int i = 0; i < v->s->n; i++) {
            v->children[i].killed = true;
            hl_children_signal(v->s->children, i, HL_SIGNAL_KILL);
        }
        return;
    }
    v->signal = number;
    v->end.asked = true;
    if (!v->ending_ns) v->ending_ns = now;
    for (int i = 0; i < v->s->n; i++) {
        if (v->s->ask) v->s->ask(v->s->context, i, number);
        else hl_children_signal(v->s->children, i, number);
    }
}

const char *hl_stop_word(int number) {
    return number == HL_SIGNAL_INT ? "INT\n" : number == HL_SIGNAL_HUP ? "HUP\n" : "TERM\n";
}

static void take_input(struct supervisor *v, const struct hl_child_event *e, int64_t now) {
    static const int numbers[] = {HL_SIGNAL_INT, HL_SIGNAL_HUP, HL_SIGNAL_TERM};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const char *word = hl_stop_word(numbers[i]);
        if (e->n >= strlen(word) && !memcmp(e->bytes, word, strlen(word)))
            return take_signal(v, numbers[i], now);
    }
    if (e->n || v->signal) return;
    take_signal(v, HL_SIGNAL_TERM, now);
    v->input_ended = true;
}

static void take(struct supervisor *v, const struct hl_child_event *e, int64_t now) {
    char name[160];
    if (e->kind == HL_CHILD_OUTPUT || e->kind == HL_CHILD_CONTINUED)
        v->children[e->child].active_ns = now;
    switch (e->kind) {
    case HL_CHILDREN_QUIET: break;
    case HL_CHILD_OUTPUT: take_output(v, e); break;
    case HL_CHILD_ENDED: take_end(v, e, now); break;
    case HL_CHILD_STOPPED:
        name_of(v, e->child, name, sizeof name);
        hl_log(v->s->log, HL_LOG_WARN, "%s was stopped (SIGSTOP); it has %lld s to go on", name,
               (long long)(v->s->timeout_ns / 1000000000));
        v->children[e->child].stopped_ns = now;
        break;
    case HL_CHILD_CONTINUED: v->children[e->child].stopped_ns = 0; break;
    case HL_CHILDREN_SIGNAL: take_signal(v, e->status, now); break;
    case HL_CHILDREN_INPUT: take_input(v, e, now); break;
    case HL_CHILDREN_RESUMED: go_on(v, now); break;
    }
}

enum hl_status hl_supervise(const struct hl_supervise_setup *setup, struct hl_supervise_end *out,
                            struct hl_diag *diag) {
    struct supervisor v = {.s = setup, .n_left = setup->n, .generation = 1, .end = {.root = -1}};
    v.children = hl_alloc(setup->mem, (size_t)setup->n, sizeof *v.children);
    v.fate = hl_alloc(setup->mem, (size_t)setup->n, sizeof *v.fate);
    if (!v.children || !v.fate) {
        hl_free(setup->mem, v.children);
        hl_free(setup->mem, v.fate);
        return hl_fail_memory(diag, sizeof *v.children, "the supervisor");
    }
    int64_t now = hl_clock_ns(), looked = now;
    for (int i = 0; i < setup->n; i++)
        v.children[i] =
            (struct watched){.active_ns = now, .part = {{.mem = setup->mem}, {.mem = setup->mem}}};
    while (v.n_left) {
        struct hl_child_event event;
        hl_children_next(setup->children, v.failed_ns && may_heal(&v) ? HEAL_LOOK_NS : LOOK_NS,
                         &event);
        now = hl_clock_ns();
        take(&v, &event, now);
        if (setup->heal) recover(&v, now);
        if (now - looked < LOOK_NS) continue;
        looked = now;
        for (int i = 0; i < setup->n; i++) look_at_child(&v, i, now);
    }
    for (int i = 0; i < setup->n; i++)
        for (int s = 0; s < STREAMS; s++) hl_buf_free(&v.children[i].part[s]);
    hl_free(setup->mem, v.children);
    hl_free(setup->mem, v.fate);
    *out = v.end;
    return HL_OK;
}
