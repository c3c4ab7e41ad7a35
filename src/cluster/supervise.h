/* Watches the ranks that a launcher started on this machine until the last one has ended: passes
 * their lines and its own signals on, tells who failed first, and kills what does not end.
 *
 * Children are ranks, or launchers on other machines behind ssh. */
#ifndef HALLEY_CLUSTER_SUPERVISE_H
#define HALLEY_CLUSTER_SUPERVISE_H

#include "cluster/board.h"
#include "halley/log.h"
#include "os/children.h"

/* Words with which a launcher on another machine is asked to stop, each on a line of its standard
 * input; its end says SIGTERM. */
const char *hl_stop_word(int number);

/* Exit status of a rank that ended because another one failed or could not be reached. */
enum { HL_EXIT_PEER = 4 };

/* Live recovery: what became of a child when one was lost. */
enum hl_fate {
    HL_FATE_WAITS,   /* it lives, and waits for the next generation of ranks (board.h) */
    HL_FATE_GONE,    /* it ended */
    HL_FATE_STARTED, /* set by heal: another process took its place */
};

struct hl_supervise_setup {
    struct hl_mem *mem;
    struct hl_children *children; /* started: 0 ... n - 1 */
    int n;
    const struct hl_board *board; /* an entry for each child; NULL: none */
    int64_t timeout_ns;           /* for a rank to go on or end when it should */
    int saving; /* the phase in which a rank may take that long, also after a failure; -1: none */
    struct hl_log *log;
    /* A line of a child, without its newline; stream 1 or 2. */
    void (*line)(void *context, int child, int stream, const char *text, size_t n);
    /* "rank 3" */
    void (*name)(void *context, int child, char *out, size_t capacity);
    /* Tell the others that a child is gone; NULL: they notice by themselves. */
    void (*bury)(void *context, int child);
    /* Ask a child to stop as after this signal; NULL: it gets the signal. */
    void (*ask)(void *context, int child, int number);
    const char *(*phase_name)(int phase);
    /* Live recovery; NULL: a failure ends all. A child died without a word of its own, and all
     * others wait by now (what did not come in time was killed): begin the next generation.
     * fate [n]; why: the first failure, a line.
     * errors: there will be none, and why */
    enum hl_status (*heal)(void *context, enum hl_fate *fate, const char *why,
                           struct hl_diag *diag);
    /* With heal: nothing follows; children that wait shall end. done: because all work is done. */
    void (*dismiss)(void *context, bool done);
    void *context;
};

struct hl_supervise_end {
    int status;    /* for the launcher to exit with: 0, that of the first failure, 128 + signal */
    int root;      /* the child that failed first; -1: none */
    bool asked;    /* signals asked to stop */
    char why[600]; /* one line about the root, empty without */
};

/* errors HL_E_MEMORY */
enum hl_status hl_supervise(const struct hl_supervise_setup *setup, struct hl_supervise_end *out,
                            struct hl_diag *diag) HL_MUST_CHECK;

#endif
