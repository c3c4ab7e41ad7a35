/* What strategies call: apply an optimizer to a range, whatever tensors lie in it. */
#ifndef HALLEY_OPTIMIZERS_OPTIMIZERS_H
#define HALLEY_OPTIMIZERS_OPTIMIZERS_H

#include "halley/optimizer.h"

/* Update every piece of a tensor inside range. common: everything but tensor, first and n; its
 * arrays start at range.offset. */
enum hl_status hl_optimizer_apply(const struct hl_optimizer *optimizer,
                                  const struct hl_update *common, const struct hl_layout *layout,
                                  struct hl_range range, struct hl_diag *diag) HL_MUST_CHECK;
/* Floats that `scratch` needs for any tensor of the layout. */
int64_t hl_optimizer_scratch(const struct hl_optimizer *optimizer, const struct hl_layout *layout);

/* The rule of AdamW on one piece, which Muon uses for what it does not orthogonalise. */
void hl_adamw_update(const struct hl_update *u);

#endif
