/* Weights and optimizer slots of a run, whole, however the ranks share them. */
#ifndef HALLEY_TESTS_WHOLE_STATE_H
#define HALLEY_TESTS_WHOLE_STATE_H

#include "train/trainer_internal.h"

/* Weights, then each slot. */
int64_t whole_state_size(const struct hl_trainer *t);
/* Collective; out [whole_state_size] is filled in on rank 0, other ranks need none. */
enum hl_status whole_state(struct hl_trainer *t, float *out, struct hl_diag *diag);

#endif
