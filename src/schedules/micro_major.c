/* Micro-batch-major order: for each micro-batch, forward through all blocks, then backward through
 * all blocks. Activations of one micro-batch live at a time; every weight is visited twice per
 * micro-batch. The default where weights are near. */
#include "halley/schedule.h"

/* Operations of one micro-batch: a mark, forwards, backwards with recomputes before some, a mark.
 */
static int64_t operations_of_micro(const struct hl_schedule_shape *shape) {
    int64_t n = 2 + 2 * (int64_t)shape->n_blocks;
    for (int b = 0; b < shape->n_blocks; b++) n += shape->recompute && shape->recompute[b];
    return n;
}

static struct hl_op mark(enum hl_mark mark, int micro) {
    return (struct hl_op){
        .kind = HL_OP_MARK, .mark = mark, .block = -1, .micro = micro, .after = {-1, -1}};
}

/* The index-th operation of a backward pass: from the head down, a recompute before each block that
 * needs one. */
static struct hl_op backward_op(const struct hl_schedule_shape *shape, int64_t index, int micro) {
    for (int b = shape->n_blocks - 1; b >= 0; b--) {
        bool again = shape->recompute && shape->recompute[b];
        if (again && index-- == 0)
            return (struct hl_op){
                .kind = HL_OP_RECOMPUTE, .block = b, .micro = micro, .after = {-1, -1}};
        if (index-- == 0)
            return (struct hl_op){.kind = HL_OP_BWD,
                                  .block = b,
                                  .micro = micro,
                                  .after = {-1, -1},
                                  .grad_final = true};
    }
    return mark(HL_MARK_MICRO_END, micro);
}

static enum hl_status op(const struct hl_schedule_shape *shape, int64_t index, struct hl_op *out) {
    if (index == 0) return *out = mark(HL_MARK_STEP_BEGIN, 0), HL_OK;
    int64_t per_micro = operations_of_micro(shape), at = index - 1;
    int64_t micro = at / per_micro, within = at % per_micro;
    if (micro > shape->n_micro || (micro == shape->n_micro && within > 0)) return HL_END;
    if (micro == shape->n_micro) return *out = mark(HL_MARK_STEP_END, (int)micro), HL_OK;
    if (within == 0) *out = mark(HL_MARK_MICRO_BEGIN, (int)micro);
    else if (within <= shape->n_blocks)
        *out = (struct hl_op){
            .kind = HL_OP_FWD, .block = (int)within - 1, .micro = (int)micro, .after = {-1, -1}};
    else *out = backward_op(shape, within - 1 - shape->n_blocks, (int)micro);
    return HL_OK;
}

const struct hl_schedule hl_schedule_micro_major = {
    .name = "micro_major",
    .summary = "all blocks forward and backward, one micro-batch after another",
    .op = op};
