/* Ranks as threads of this process. */
#include <stdio.h>

#include "launch.h"
#include "os/parallel.h"
#include "os/signal.h"

struct team {
    struct launch *launch;
    struct hl_cluster_place place; /* of rank 0 */
    int ends[HL_MAX_RANKS];
};

static void run_rank(void *context, int rank) {
    struct team *team = context;
    struct hl_cluster_place place = team->place;
    if (rank) hl_signal_avoid();
    place.rank = place.local_rank = rank;
    team->ends[rank] =
        team->launch->command->as_rank(&place, team->launch->n_args, team->launch->args);
}

/* The first failure is no longer known by time: one that is not about another rank. */
static int worst(const struct team *team, int n, int *rank_out) {
    int status = 0;
    for (int r = 0; r < n; r++) {
        int end = team->ends[r];
        if (end == 0 || (status && (end == COMMAND_PEER_FAILED || status != COMMAND_PEER_FAILED)))
            continue;
        status = end;
        *rank_out = r;
    }
    return status;
}

enum hl_status launch_threads(struct launch *l, int *exit_out, struct hl_diag *diag) {
    int n = (int)l->options.n, rank = -1;
    struct team team = {.launch = l};
    struct hl_threads_shared *meeting;
    struct hl_wire_place shape;
    ranks_shape(n, &shape);
    enum hl_status status =
        hl_threads_wire_new(l->mem, n, shape.n_lanes, shape.part_bytes, &meeting, diag);
    if (status != HL_OK) return status;
    team.place = (struct hl_cluster_place){.n_ranks = n,
                                           .n_local = n,
                                           .wire = "threads",
                                           .shared = meeting,
                                           .timeout_ns = l->timeout_ns,
                                           .source = "halley launch"};
    hl_parallel(n, run_rank, &team);
    hl_threads_wire_free(meeting);
    *exit_out = worst(&team, n, &rank);
    if (*exit_out && *exit_out < 128)
        fprintf(stderr, "halley launch: first failure: rank %d, status %d; its words are above\n",
                rank, *exit_out);
    return HL_OK;
}
