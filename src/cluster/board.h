/* A board in memory that ranks share with the launcher who started them: what each does, and why
 * it gave up. It can still be read when the rank was killed, whatever the wire.
 *
 * With live recovery the launcher writes too: which rank each process is. Whenever a rank was lost,
 * those that are left come back and wait until it says so again; that is a generation, from 1. */
#ifndef HALLEY_CLUSTER_BOARD_H
#define HALLEY_CLUSTER_BOARD_H

#include <stdint.h>

#include "halley/status.h"
#include "os/inherited.h"

struct hl_board {
    struct hl_inherited memory;
    int n;
};
struct hl_board_entry {
    int phase; /* -1: nothing was told yet */
    int64_t step;
    int status;      /* with which it said that it would end; 0: it said nothing, or all is done */
    char why[240];   /* and why */
    uint64_t awaits; /* it waits for this generation, or a later one; 0: for none yet */
};
/* Who a process is in a generation; 0: nothing was said yet. */
struct hl_board_view {
    uint64_t generation;
    int rank, n_ranks;
    uint64_t broken; /* the last generation that lost a rank; 0: none did */
};
/* Generations that say: there is no other one; and: because all work is done. */
#define HL_BOARD_OVER (UINT64_MAX - 1)
#define HL_BOARD_DONE UINT64_MAX

enum hl_status hl_board_new(int n, struct hl_board *out, struct hl_diag *diag) HL_MUST_CHECK;
/* The board of HALLEY_BOARD, "pid:descriptor:entries:entry", which hl_board_variable writes;
 * entry_out is this process's: as said there, or its rank when that says -1. Children of the
 * launcher have the descriptor; those further down find it in /proc. HL_END: there is none to be
 * had. */
enum hl_status hl_board_from_environment(int rank, struct hl_board *out, int *entry_out,
                                         struct hl_diag *diag) HL_MUST_CHECK;
void hl_board_variable(const struct hl_board *board, int entry, char *out, size_t capacity);
void hl_board_close(struct hl_board *board); /* a zeroed one may be closed */

void hl_board_tell(struct hl_board *board, int entry, int phase, int64_t step);
/* status: not 0 */
void hl_board_give_up(struct hl_board *board, int entry, int status, const char *why);
void hl_board_await(struct hl_board *board, int entry, uint64_t generation);
void hl_board_read(const struct hl_board *board, int entry, struct hl_board_entry *out);

/* By the launcher. break: a rank of the generation is lost, to all entries; forget: the entry gets
 * another process. */
void hl_board_publish(struct hl_board *board, int entry, const struct hl_board_view *view);
void hl_board_break(struct hl_board *board, uint64_t generation);
void hl_board_forget(struct hl_board *board, int entry);
void hl_board_look(const struct hl_board *board, int entry, struct hl_board_view *out);

#endif
