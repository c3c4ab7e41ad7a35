/* Weights and optimizer state of a run, whole on every rank or in slices, behind one set of calls:
 * initialise, read, and hand out for a checkpoint. */
#ifndef HALLEY_TRAIN_STATE_H
#define HALLEY_TRAIN_STATE_H

#include "halley/checkpoint.h"
#include "train/trainer_internal.h"

/* Part of a block's weights is known in full (f32 [range.n]): keep what is ours, and what compute
 * reads of it. data may be the master itself. */
void hl_state_put(struct hl_trainer *t, struct hl_range range, int block, const float *data);
int64_t hl_state_largest_block(const struct hl_trainer *t); /* elements */

/* Where the run is, as JSON. */
void hl_trainer_write_loop(const struct hl_trainer *t, struct hl_buf *out);
/* Go there. from: where the text is from, for messages. errors HL_E_USER: of another run;
 * HL_E_FORMAT; the trainer is as before */
enum hl_status hl_trainer_read_loop(struct hl_trainer *t, const char *text, const char *from,
                                    struct hl_diag *diag) HL_MUST_CHECK;

/* Initial weights, a pure function of the seed; each rank keeps its part. */
enum hl_status hl_state_init(struct hl_trainer *t, struct hl_diag *diag) HL_MUST_CHECK;
/* Every rank reads all tensors, keeps its part, and gets to know t->loaded_hash. */
enum hl_status hl_state_load_weights(struct hl_trainer *t, struct hl_checkpoint_reader *reader,
                                     struct hl_diag *diag) HL_MUST_CHECK;
/* This rank's part of an optimizer slot, saved under a name. */
enum hl_status hl_state_load_slot(struct hl_trainer *t, struct hl_checkpoint_reader *reader,
                                  const char *name, enum hl_buffer buffer,
                                  struct hl_diag *diag) HL_MUST_CHECK;

/* Blocks of the weights, then of each optimizer slot, come to rank 0 one by one: memory for one
 * block. Collective: rank 0 fetches (as a hl_checkpoint_source), the others call finish alone; rank
 * 0 calls it too, so that nobody waits when writing failed half-way. */
struct hl_state_source {
    struct hl_trainer *t;
    float *scratch; /* [n of the largest block] */
    int buffer;     /* 0: weights, then slots; with `block`: what is in scratch */
    int block;
    struct hl_collective gather;
};
enum hl_status hl_state_source_open(struct hl_trainer *t, struct hl_state_source *s,
                                    struct hl_diag *diag) HL_MUST_CHECK;
void hl_state_source_close(struct hl_state_source *s);
enum hl_status hl_state_fetch(void *context, int array, int64_t first, int64_t n,
                              const float **data_out, int64_t *n_out, struct hl_diag *diag);
enum hl_status hl_state_source_finish(struct hl_state_source *s,
                                      struct hl_diag *diag) HL_MUST_CHECK;

/* All weights in an engine of its own on rank 0 (elsewhere NULL), for those who read them in
 * another order than a step does. Collective. Free with hl_engine_free. */
enum hl_status hl_state_whole_engine(struct hl_trainer *t, struct hl_engine **out,
                                     struct hl_diag *diag) HL_MUST_CHECK;

#endif
