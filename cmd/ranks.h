/* A process or thread as one rank of a run: from its place to a wire, a group, and a log that says
 * who speaks. */
#ifndef HALLEY_CMD_RANKS_H
#define HALLEY_CMD_RANKS_H

#include "cluster/board.h"
#include "cmd_common.h"
#include "halley/cluster.h"
#include "halley/collective.h"
#include "halley/wire.h"
#include "rank_fault.h"

struct ranks {
    struct hl_mem *mem;
    struct hl_cluster_place place;
    struct hl_wire *wire;   /* NULL: one rank */
    struct hl_group *group; /* never NULL once it is open */
    struct hl_board board;  /* of the launcher; zeroed: there is none */
    int entry;
    int n_sharing; /* ranks that share this one's processors */
    int64_t step;  /* as told last */
    struct rank_fault fault;
    const char *snapshot; /* live recovery: where the state lies that outlives ranks; NULL: none */
    uint64_t generation;  /* of ranks, from 1 */
};

/* Who am I? given: by the launcher of threads; NULL: the environment says. */
enum hl_status ranks_place(struct hl_mem *mem, const struct hl_cluster_place *given,
                           struct ranks *out, struct hl_diag *diag) HL_MUST_CHECK;
/* Open the wire and meet the others. One rank: a group of one. With live recovery the launcher says
 * first which rank this is.
 * returns HL_END: all work was done without this rank */
enum hl_status ranks_open(struct ranks *ranks, const struct rank_options *options,
                          struct hl_diag *diag) HL_MUST_CHECK;
/* The first half of it, for those who speak over ranks->wire themselves: no group. Two ranks or
 * more. */
enum hl_status ranks_open_wire(struct ranks *ranks, const struct rank_options *options,
                               struct hl_diag *diag) HL_MUST_CHECK;
/* The launcher's board gets it; the place where HALLEY_FAULT breaks a rank. */
void ranks_told(struct ranks *ranks, enum hl_phase phase, int64_t step);
/* It failed with this status. With live recovery, and because of another rank: leave the group, and
 * true: open it again. */
bool ranks_come_back(struct ranks *ranks, enum hl_status status, const struct hl_diag *diag);
/* For hl_trainer_setup.lost; context: the ranks. Without live recovery false. */
bool ranks_lost(void *context);
/* Everybody is told how this rank ended: with status below 0, or well, with the exit status `end`.
 */
void ranks_close(struct ranks *ranks, enum hl_status status, int end, const struct hl_diag *diag);

/* yaml: the resolved configuration; keys that may differ between ranks are left out. */
enum hl_status ranks_agree_on_config(struct ranks *ranks, const char *yaml,
                                     struct hl_diag *diag) HL_MUST_CHECK;
enum hl_status ranks_agree_on_data(struct ranks *ranks, const struct hl_model_config *model,
                                   const struct hl_tokenizer *tokenizer,
                                   const struct hl_dataset *dataset,
                                   struct hl_diag *diag) HL_MUST_CHECK;

/* Lanes and the size of a part for so many ranks; the rest of the place is left alone. */
void ranks_shape(int n_ranks, struct hl_wire_place *out);
/* Ranks behind the first say who they are, and only what is a warning. Borrows ranks. */
struct hl_log ranks_log(struct ranks *ranks);
int ranks_fail(const struct ranks *ranks, const char *command, enum hl_status status,
               const struct hl_diag *diag);

/* halley train, as this rank. */
int train_as_rank(const struct hl_cluster_place *place, int n_args, char **args);

/* halley bench-net, as this rank; its options, for a launcher to look at first. */
struct bench_net_options {
    struct rank_options ranks;
    char *json;
    double seconds;
};
int bench_net_as_rank(const struct hl_cluster_place *place, int n_args, char **args);
enum hl_status bench_net_read(struct hl_mem *mem, int n_args, char **args,
                              struct bench_net_options *options, struct hl_config **config_out,
                              struct hl_diag *diag) HL_MUST_CHECK;

#endif
