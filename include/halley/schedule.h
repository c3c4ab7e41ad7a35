/* A schedule yields operations, known ahead to whoever must plan: one block, one micro-batch each.
 * The loop interprets the list; a prefetcher, the planner and the simulator read the same one.
 * Generators: src/schedules/<name>.c. */
#ifndef HALLEY_SCHEDULE_H
#define HALLEY_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

#include "halley/status.h"

enum hl_op_kind {
    HL_OP_FWD,
    HL_OP_BWD,
    HL_OP_BWD_X,
    HL_OP_BWD_W,
    HL_OP_RECOMPUTE,
    HL_OP_EXCHANGE,
    HL_OP_SEND,
    HL_OP_RECV,
    HL_OP_FETCH,
    HL_OP_DROP,
    HL_OP_UPDATE,
    HL_OP_MARK,
};
enum hl_mark { HL_MARK_STEP_BEGIN, HL_MARK_MICRO_BEGIN, HL_MARK_MICRO_END, HL_MARK_STEP_END };

struct hl_op {
    enum hl_op_kind kind;
    int lane;          /* 0 = compute */
    int block;         /* -1 for marks */
    int segment;       /* 0 until blocks are split at exchanges */
    int micro;         /* micro-batch within the step */
    int version;       /* of the parameters */
    int after[2];      /* indices of operations that must be done first, -1 none */
    enum hl_mark mark; /* kind MARK */
    bool grad_final; /* BWD: the gradient of this block has its last contribution of the micro-batch
                      */
};

struct hl_schedule_shape {
    int n_blocks;
    int n_micro; /* micro-batches of a step; generators may extend it while micro_end answers MORE
                  */
    bool tied_head;        /* block 0's gradient is final only after its own backward */
    const bool *recompute; /* [n_blocks] */
};

/* The next operation of the step, a pure function of (shape, index): HL_OK, or HL_END after the
 * last one. */
struct hl_schedule {
    const char *name, *summary;
    enum hl_status (*op)(const struct hl_schedule_shape *shape, int64_t index, struct hl_op *out);
};
enum hl_status hl_schedule_find(const char *name, const struct hl_schedule **out,
                                struct hl_diag *diag) HL_MUST_CHECK;

#endif
