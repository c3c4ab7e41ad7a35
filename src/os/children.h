/* Child processes: start them, read what they print, see how they end, pass signals on.
 *
 * One thread owns a set of children and asks it for the next event. SIGINT, SIGTERM, SIGHUP and
 * SIGTSTP become events too (unless they were ignored before; SIGUSR1 and SIGUSR2 as in
 * os/signal.h), so that nothing happens between two calls. A child leads a process group of its
 * own: Ctrl-C at a terminal reaches this process alone. A child gets SIGTERM when this process
 * dies. */
#ifndef HALLEY_OS_CHILDREN_H
#define HALLEY_OS_CHILDREN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "halley/mem.h"
#include "halley/status.h"

struct hl_children;

struct hl_child_setup {
    const char *program; /* a path, or a name to be looked for in PATH */
    char *const *args;   /* args[0] is the name; ends with NULL */
    /* on top of this process's: "NAME=value", or "NAME" to take it away; NULL: as here */
    const char *const *environment;
    int keep_fd; /* stays open in the child under its number; -1: none */
    bool input;  /* standard input is a pipe that hl_children_write fills; else /dev/null */
};

enum hl_child_event_kind {
    HL_CHILDREN_QUIET, /* the time passed */
    HL_CHILD_OUTPUT,   /* bytes, n: valid until the next call; stream 1 or 2 */
    HL_CHILD_ENDED,    /* after all its output; status: 0 ... 255, or minus a signal's number */
    HL_CHILD_STOPPED,  /* by SIGSTOP or its like */
    HL_CHILD_CONTINUED,
    HL_CHILDREN_SIGNAL,  /* status: the number of what came */
    HL_CHILDREN_INPUT,   /* bytes, n of the descriptor that is listened to; n 0: it ended */
    HL_CHILDREN_RESUMED, /* this process and its children were suspended (Ctrl-Z), and go on */
};
struct hl_child_event {
    enum hl_child_event_kind kind;
    int child, stream, status;
    const char *bytes;
    size_t n;
};

enum hl_status hl_children_new(struct hl_mem *mem, int most, struct hl_children **out,
                               struct hl_diag *diag) HL_MUST_CHECK;
/* Children that still run get SIGKILL and are waited for. Signals do again what they did before. */
void hl_children_free(struct hl_children *children);

/* child_out: numbers from 0 in order of start. errors HL_E_IO: it cannot be started */
enum hl_status hl_children_start(struct hl_children *children, const struct hl_child_setup *setup,
                                 int *child_out, struct hl_diag *diag) HL_MUST_CHECK;
/* In the place of a child whose end was told: it gets its number. */
enum hl_status hl_children_start_again(struct hl_children *children, int child,
                                       const struct hl_child_setup *setup,
                                       struct hl_diag *diag) HL_MUST_CHECK;
int64_t hl_children_pid(const struct hl_children *children, int child);
void hl_children_next(struct hl_children *children, int64_t timeout_ns, struct hl_child_event *out);
/* What comes on a descriptor of this process becomes events too. It is borrowed. */
void hl_children_listen(struct hl_children *children, int fd);
/* A child that has ended is left alone. */
void hl_children_signal(struct hl_children *children, int child, int number);
/* To a child's standard input; false: it does not read any more. NULL closes it. */
bool hl_children_write(struct hl_children *children, int child, const char *text);
/* A number that grows while the child computes, reads or writes. */
uint64_t hl_children_activity(const struct hl_children *children, int child);

#endif
