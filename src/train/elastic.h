/* Live recovery, as a trainer sees it: after every step each rank writes its slices of what all
 * share, and all that is its own, into memory that outlives it (memory/snapshot.h), and a new
 * generation of ranks goes on from there, as from a checkpoint. Who is in a generation is the
 * launcher's business. */
#ifndef HALLEY_TRAIN_ELASTIC_H
#define HALLEY_TRAIN_ELASTIC_H

#include "memory/snapshot.h"
#include "train/state.h"
#include "train/trainer_internal.h"

struct hl_elastic {
    const char *path; /* NULL: this run has none, and nothing below does anything */
    uint64_t generation;
    int seat; /* this rank's place in the snapshot, whatever its number */
    struct hl_snapshot snapshot;
    struct hl_state_list list;    /* of the trainer's arrays */
    struct hl_buf note;           /* where the run is */
    struct hl_snapshot_base base; /* from which this generation begins */
    uint64_t seats;               /* of this generation, as bits; when its ranks have met */
    bool found;                   /* an older generation committed a step */
    int64_t written_ns;           /* time that writing took, in all */
};

/* Did an older generation of ranks leave a state? All ranks of a generation find the same.
 * path: as the launcher says, borrowed; NULL: none. seat: no other rank's, of ranks in order; one
 * that an older generation had too is the same rank, or has its place */
enum hl_status hl_elastic_look(struct hl_elastic *e, const char *path, uint64_t generation,
                               int seat, struct hl_diag *diag) HL_MUST_CHECK;
/* By rank 0, when all have looked: makes the file if none was found, with a seat for each rank.
 * errors HL_E_IO: no room */
enum hl_status hl_elastic_make(struct hl_elastic *e, struct hl_trainer *t,
                               struct hl_diag *diag) HL_MUST_CHECK;
/* Something was found: the trainer is at the last committed step then. Each rank reads its part;
 * one whose seat is new begins as one that joins a checkpoint's run. */
enum hl_status hl_elastic_restore(struct hl_elastic *e, struct hl_trainer *t,
                                  struct hl_diag *diag) HL_MUST_CHECK;
/* Collective: the generation begins at the trainer's step; losing a rank later costs nothing
 * before. */
enum hl_status hl_elastic_begin(struct hl_elastic *e, struct hl_trainer *t,
                                struct hl_diag *diag) HL_MUST_CHECK;
/* The trainer's step, with all that follows it, is done on this rank. Before the next one. What is
 * in flight is waited for; the trainer is in view afterwards. */
enum hl_status hl_elastic_commit(struct hl_elastic *e, struct hl_trainer *t,
                                 struct hl_diag *diag) HL_MUST_CHECK;
void hl_elastic_close(struct hl_elastic *e);

/* Once it has begun: bytes that all ranks together hold, and that this one writes with each step.
 */
void hl_elastic_cost(const struct hl_elastic *e, const struct hl_trainer *t, uint64_t *held_out,
                     uint64_t *written_out);

#endif
