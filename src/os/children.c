/* See children.h. fork and exec, a signalfd and pipes under one poll. */
#include "os/children.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/cgroup.h"
#include "os/clock.h"
#include "os/signal.h"

enum { CHUNK = 65536, STREAMS = 2 };

struct child {
    pid_t pid;
    int out[STREAMS], in; /* this end of its pipes, -1: closed */
    bool reaped, told;    /* told: ENDED was given out */
    int status;
};

struct hl_children {
    struct hl_mem *mem;
    int most, n;
    struct child *list;
    struct pollfd *polled; /* [2 + most * STREAMS] */
    char chunk[CHUNK];
    sigset_t before;
    struct sigaction child_before;
    int signals;  /* signalfd */
    int listened; /* -1: none */
    int turn;     /* whose output is looked at first */
};

static const int watched[] = {SIGINT, SIGTERM, SIGHUP, SIGTSTP, SIGUSR1, SIGUSR2};
enum { N_WATCHED = sizeof watched / sizeof *watched };

/* ---- life of the set ---- */

static void wanted_signals(sigset_t *set) {
    (void)sigemptyset(set);
    (void)sigaddset(set, SIGCHLD);
    for (int i = 0; i < N_WATCHED; i++) {
        struct sigaction now;
        (void)sigaction(watched[i], NULL, &now);
        if (now.sa_handler != SIG_IGN) (void)sigaddset(set, watched[i]);
    }
}

static void close_fd(int *fd) {
    if (*fd >= 0) (void)close(*fd);
    *fd = -1;
}

enum hl_status hl_children_new(struct hl_mem *mem, int most, struct hl_children **out,
                               struct hl_diag *diag) {
    struct hl_children *c = hl_alloc(mem, 1, sizeof *c);
    struct child *list = hl_alloc(mem, (size_t)most, sizeof *list);
    struct pollfd *polled = hl_alloc(mem, 2 + STREAMS * (size_t)most, sizeof *polled);
    sigset_t wanted;
    if (!c || !list || !polled) {
        hl_free(mem, c);
        hl_free(mem, list);
        hl_free(mem, polled);
        return hl_fail_memory(diag, sizeof *c, "the table of child processes");
    }
    c->mem = mem;
    c->most = most;
    c->list = list;
    c->polled = polled;
    c->listened = -1;
    wanted_signals(&wanted);
    /* ignored: children would vanish without a status */
    const struct sigaction plain = {.sa_handler = SIG_DFL};
    (void)sigaction(SIGCHLD, &plain, &c->child_before);
    (void)sigprocmask(SIG_BLOCK, &wanted, &c->before);
    c->signals = signalfd(-1, &wanted, SFD_NONBLOCK | SFD_CLOEXEC);
    if (c->signals < 0) {
        enum hl_status status = hl_fail(diag, HL_E_IO, "signals cannot be watched: %m");
        hl_children_free(c);
        return status;
    }
    *out = c;
    return HL_OK;
}

static void end_child(struct child *child) {
    if (!child->reaped) {
        (void)kill(child->pid, SIGKILL);
        while (waitpid(child->pid, NULL, 0) < 0 && errno == EINTR) {}
    }
    for (int s = 0; s < STREAMS; s++) close_fd(&child->out[s]);
    close_fd(&child->in);
}

void hl_children_free(struct hl_children *c) {
    if (!c) return;
    for (int i = 0; i < c->n; i++) end_child(&c->list[i]);
    struct signalfd_siginfo left; /* what came and was not asked for is done with */
    while (c->signals >= 0 && read(c->signals, &left, sizeof left) > 0) {}
    close_fd(&c->signals);
    (void)sigprocmask(SIG_SETMASK, &c->before, NULL);
    (void)sigaction(SIGCHLD, &c->child_before, NULL);
    hl_free(c->mem, c->list);
    hl_free(c->mem, c->polled);
    hl_free(c->mem, c);
}

/* ---- start ---- */

static bool same_name(const char *entry, const char *other) {
    size_t n = strcspn(other, "=");
    return !strncmp(entry, other, n) && entry[n] == '=';
}

static bool is_changed(const char *entry, const char *const *changes) {
    for (; *changes; changes++)
        if (same_name(entry, *changes)) return true;
    return false;
}

/* Pointers into both lists. owner: caller, hl_free */
static char **merge(struct hl_mem *mem, const char *const *changes) {
    static const char *const none[] = {NULL};
    size_t n = 0, used = 0;
    if (!changes) changes = none;
    for (char **e = environ; *e; e++) n++;
    for (const char *const *e = changes; *e; e++) n++;
    char **out = hl_alloc(mem, n + 1, sizeof *out);
    for (char **e = environ; out && *e; e++)
        if (!is_changed(*e, changes)) out[used++] = *e;
    for (const char *const *e = changes; out && *e; e++)
        if (strchr(*e, '=')) memcpy(&out[used++], e, sizeof *out);
    return out;
}

struct pipes {
    int in[2], out[2], err[2], failure[2];
};
enum { N_PIPES = sizeof(struct pipes) / sizeof(int[2]) };

static int *pipe_at(struct pipes *p, int i) {
    int *const all[N_PIPES] = {p->in, p->out, p->err, p->failure};
    return all[i];
}

static void close_pipes(struct pipes *p) {
    for (int i = 0; i < N_PIPES; i++) {
        close_fd(&pipe_at(p, i)[0]);
        close_fd(&pipe_at(p, i)[1]);
    }
}

static bool open_pipes(struct pipes *p, bool input) {
    bool ok = true;
    for (int i = 0; i < N_PIPES; i++) {
        int *ends = pipe_at(p, i);
        ends[0] = ends[1] = -1;
        if (i > 0 || input) ok = ok && pipe2(ends, O_CLOEXEC) == 0;
    }
    if (!input) ok = ok && (p->in[0] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;
    return ok;
}

static void report_and_exit(int fd) {
    int error = errno;
    ssize_t written = write(fd, &error, sizeof error);
    _exit(written == sizeof error ? 127 : 126);
}

/* Between fork and exec. */
static void become(const struct hl_child_setup *setup, char **environment, struct pipes *p,
                   pid_t parent, const sigset_t *mask) {
    (void)setpgid(0, 0);
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(1); /* it died before it could be watched */
    const struct sigaction plain = {.sa_handler = SIG_DFL};
    (void)sigaction(SIGPIPE, &plain, NULL);
    (void)sigprocmask(SIG_SETMASK, mask, NULL);
    if (dup2(p->in[0], 0) < 0 || dup2(p->out[1], 1) < 0 || dup2(p->err[1], 2) < 0)
        report_and_exit(p->failure[1]);
    if (setup->keep_fd >= 0) (void)fcntl(setup->keep_fd, F_SETFD, 0);
    (void)execvpe(setup->program, setup->args, environment);
    report_and_exit(p->failure[1]);
}

/* 0, or the errno with which the child could not become what it should. */
static int failure_of(struct pipes *p) {
    int error = 0;
    ssize_t n;
    close_fd(&p->failure[1]);
    do n = read(p->failure[0], &error, sizeof error);
    while (n < 0 && errno == EINTR);
    return n == sizeof error ? error : 0;
}

static void adopt(struct child *child, pid_t pid, struct pipes *p) {
    *child = (struct child){.pid = pid, .out = {p->out[0], p->err[0]}, .in = p->in[1]};
    p->out[0] = p->err[0] = p->in[1] = -1;
    for (int s = 0; s < STREAMS; s++) (void)fcntl(child->out[s], F_SETFL, O_NONBLOCK);
}

static enum hl_status start(struct hl_children *c, const struct hl_child_setup *setup,
                            struct child *child, struct hl_diag *diag) {
    struct pipes p;
    pid_t parent = getpid(), pid = -1;
    bool ready = open_pipes(&p, setup->input);
    char **environment = ready ? merge(c->mem, setup->environment) : NULL;
    if (environment) pid = fork();
    if (pid == 0) become(setup, environment, &p, parent, &c->before);
    enum hl_status status = HL_OK;
    if (pid < 0 && ready && !environment)
        status = hl_fail_memory(diag, sizeof *environment, "a child's environment");
    else if (pid < 0)
        status = hl_fail(diag, HL_E_IO, "%s: a process cannot be started: %m", setup->program);
    int error = pid < 0 ? 0 : failure_of(&p);
    if (error) {
        (void)waitpid(pid, NULL, 0);
        status =
            hl_fail(diag, HL_E_IO, "%s: cannot be started: %s", setup->program, strerror(error));
    }
    if (status == HL_OK) adopt(child, pid, &p);
    close_pipes(&p);
    hl_free(c->mem, environment);
    return status;
}

enum hl_status hl_children_start(struct hl_children *c, const struct hl_child_setup *setup,
                                 int *child_out, struct hl_diag *diag) {
    assert(c->n < c->most);
    enum hl_status status = start(c, setup, &c->list[c->n], diag);
    if (status == HL_OK) *child_out = c->n++;
    return status;
}

enum hl_status hl_children_start_again(struct hl_children *c, int child,
                                       const struct hl_child_setup *setup, struct hl_diag *diag) {
    struct child ended = c->list[child];
    assert(ended.told);
    enum hl_status status = start(c, setup, &c->list[child], diag);
    for (int s = 0; s < STREAMS && status == HL_OK; s++) close_fd(&ended.out[s]);
    return status;
}

int64_t hl_children_pid(const struct hl_children *c, int child) { return c->list[child].pid; }

void hl_children_signal(struct hl_children *c, int child, int number) {
    if (!c->list[child].reaped) (void)kill(c->list[child].pid, number);
}

bool hl_children_write(struct hl_children *c, int child, const char *text) {
    int *fd = &c->list[child].in;
    if (!text) return close_fd(fd), true;
    ssize_t n = *fd >= 0 ? write(*fd, text, strlen(text)) : -1;
    return n == (ssize_t)strlen(text);
}

uint64_t hl_children_activity(const struct hl_children *c, int child) {
    char path[64], text[1024];
    unsigned long user = 0, kernel = 0;
    unsigned long long read_bytes = 0, written = 0;
    int pid = (int)c->list[child].pid;
    (void)snprintf(path, sizeof path, "/proc/%d/stat", pid);
    const char *at = hl_read_small(path, text, sizeof text) ? strrchr(text, ')') : NULL;
    if (at)
        (void)sscanf(at + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user,
                     &kernel);
    (void)snprintf(path, sizeof path, "/proc/%d/io", pid);
    if (hl_read_small(path, text, sizeof text))
        (void)sscanf(text, "rchar: %llu wchar: %llu", &read_bytes, &written);
    return user + kernel + read_bytes + written;
}

/* ---- events ---- */

/* Does a child have something to say that was not told? */
static bool look_at(struct hl_children *c, int i, struct hl_child_event *out) {
    struct child *child = &c->list[i];
    siginfo_t info = {.si_pid = 0};
    if (child->reaped) return false;
    if (waitid(P_PID, (id_t)child->pid, &info, WEXITED | WSTOPPED | WCONTINUED | WNOHANG) ||
        !info.si_pid)
        return false;
    *out = (struct hl_child_event){.child = i};
    switch (info.si_code) {
    case CLD_STOPPED:
    case CLD_TRAPPED: out->kind = HL_CHILD_STOPPED; return true;
    case CLD_CONTINUED: out->kind = HL_CHILD_CONTINUED; return true;
    default: break;
    }
    child->reaped = true;
    child->status = info.si_code == CLD_EXITED ? info.si_status : -info.si_status;
    return false; /* told when its output is read */
}

static bool read_stream(struct hl_children *c, int i, int s, struct hl_child_event *out) {
    int *fd = &c->list[i].out[s];
    if (*fd < 0) return false;
    ssize_t n = read(*fd, c->chunk, sizeof c->chunk);
    if (n > 0) {
        *out = (struct hl_child_event){HL_CHILD_OUTPUT, i, s + 1, 0, c->chunk, (size_t)n};
        return true;
    }
    /* a grandchild may hold the other end open when the child is gone */
    if (n == 0 || c->list[i].reaped || (errno != EAGAIN && errno != EINTR)) close_fd(fd);
    return false;
}

static bool any_output(struct hl_children *c, struct hl_child_event *out) {
    for (int k = 0; k < c->n; k++) {
        int i = (c->turn + k) % c->n;
        for (int s = 0; s < STREAMS; s++)
            if (read_stream(c, i, s, out)) {
                c->turn = i + 1;
                return true;
            }
    }
    return false;
}

/* A child that is gone: what is left of its output, then its end. */
static bool any_end(struct hl_children *c, struct hl_child_event *out) {
    for (int i = 0; i < c->n; i++) {
        struct child *child = &c->list[i];
        if (!child->reaped || child->told) continue;
        if (read_stream(c, i, 0, out) || read_stream(c, i, 1, out)) return true;
        child->told = true;
        close_fd(&child->in);
        *out = (struct hl_child_event){.kind = HL_CHILD_ENDED, .child = i, .status = child->status};
        return true;
    }
    return false;
}

void hl_children_listen(struct hl_children *c, int fd) { c->listened = fd; }

static bool any_input(struct hl_children *c, struct hl_child_event *out) {
    struct pollfd ready = {c->listened, POLLIN, 0};
    if (c->listened < 0 || poll(&ready, 1, 0) <= 0) return false;
    ssize_t n = read(c->listened, c->chunk, sizeof c->chunk);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return false;
    if (n <= 0) c->listened = -1;
    *out = (struct hl_child_event){
        .kind = HL_CHILDREN_INPUT, .bytes = c->chunk, .n = n > 0 ? (size_t)n : 0};
    return true;
}

static void signal_all(struct hl_children *c, int number) {
    for (int i = 0; i < c->n; i++) hl_children_signal(c, i, number);
}

/* Ctrl-Z: the children stand still while this process does. */
static void suspend(struct hl_children *c, struct hl_child_event *out) {
    signal_all(c, SIGSTOP);
    (void)raise(SIGSTOP);
    signal_all(c, SIGCONT);
    *out = (struct hl_child_event){.kind = HL_CHILDREN_RESUMED};
}

static bool any_signal(struct hl_children *c, struct hl_child_event *out) {
    struct signalfd_siginfo info;
    while (read(c->signals, &info, sizeof info) == sizeof info) {
        if (info.ssi_signo == SIGCHLD) continue;
        if (info.ssi_signo == SIGTSTP) return suspend(c, out), true;
        int number = (int)info.ssi_signo;
        number = number == SIGUSR1 ? SIGTERM : number == SIGUSR2 ? SIGINT : number;
        *out = (struct hl_child_event){.kind = HL_CHILDREN_SIGNAL, .status = number};
        return true;
    }
    return false;
}

static bool any(struct hl_children *c, struct hl_child_event *out) {
    if (any_signal(c, out) || any_input(c, out)) return true;
    for (int i = 0; i < c->n; i++)
        if (look_at(c, i, out)) return true;
    return any_end(c, out) || any_output(c, out);
}

static void wait_for_any(struct hl_children *c, int64_t timeout_ns) {
    nfds_t n = 0;
    c->polled[n++] = (struct pollfd){c->signals, POLLIN, 0};
    if (c->listened >= 0) c->polled[n++] = (struct pollfd){c->listened, POLLIN, 0};
    for (int i = 0; i < c->n; i++)
        for (int s = 0; s < STREAMS; s++)
            if (c->list[i].out[s] >= 0)
                c->polled[n++] = (struct pollfd){c->list[i].out[s], POLLIN, 0};
    const struct timespec time = {timeout_ns / 1000000000, timeout_ns % 1000000000};
    (void)ppoll(c->polled, n, &time, NULL);
}

void hl_children_next(struct hl_children *c, int64_t timeout_ns, struct hl_child_event *out) {
    int64_t end = hl_clock_ns() + timeout_ns, left;
    while (!any(c, out)) {
        left = end - hl_clock_ns();
        if (left <= 0) {
            *out = (struct hl_child_event){.kind = HL_CHILDREN_QUIET};
            return;
        }
        wait_for_any(c, left);
    }
}
