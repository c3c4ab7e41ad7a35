/* See elastic.h. */
#include "train/elastic.h"

#include "os/clock.h"
#include "train/state.h"

/* ---- where what lies ---- */

/* Blocks begin at lines, so that no two ranks write into one. */
static int64_t whole_lines(int64_t n) {
    return (n + HL_SLICE_UNIT - 1) / HL_SLICE_UNIT * HL_SLICE_UNIT;
}

static struct hl_snapshot_shape shape_of(const struct hl_trainer *t) {
    struct hl_snapshot_shape shape = {.n_arrays = 1 + (uint32_t)t->optimizer->n_slots};
    for (int b = 0; b < t->model->layout.n_blocks; b++)
        shape.n_elements += (uint64_t)whole_lines(t->model->layout.blocks[b].n);
    return shape;
}

/* Array 0 is the weights, those behind it the optimizer's slots. */
static enum hl_buffer buffer_of(uint32_t array) {
    return array ? (enum hl_buffer)(HL_BUFFER_SLOT0 + (int)array - 1) : HL_BUFFER_MASTER;
}

/* This rank's slice of a block. */
static struct hl_range slice_of(const struct hl_trainer *t, int block) {
    struct hl_range range = t->model->layout.blocks[block];
    struct hl_range slice = hl_slice(range.n, HL_SLICE_UNIT, hl_group_rank(t->setup.group),
                                     hl_group_n_ranks(t->setup.group));
    return (struct hl_range){range.offset + slice.offset, slice.n};
}

void hl_elastic_cost(const struct hl_trainer *t, uint64_t *held_out, uint64_t *written_out) {
    struct hl_snapshot_shape shape = shape_of(t);
    *held_out = hl_snapshot_bytes(&shape);
    *written_out = 0;
    for (int b = 0; b < t->model->layout.n_blocks; b++)
        *written_out += (uint64_t)slice_of(t, b).n * sizeof(float) * shape.n_arrays;
}

/* ---- out ---- */

static void write_array(struct hl_elastic *e, struct hl_trainer *t, uint32_t array) {
    const struct hl_layout *layout = &t->model->layout;
    for (int64_t b = 0, at = 0; b < layout->n_blocks; at += whole_lines(layout->blocks[b++].n)) {
        struct hl_range slice = slice_of(t, (int)b);
        if (slice.n)
            hl_snapshot_write(&e->snapshot, t->step, array,
                              at + slice.offset - layout->blocks[b].offset, slice.n,
                              hl_engine_data(t->engine, buffer_of(array), slice));
    }
}

static enum hl_status write_state(struct hl_elastic *e, struct hl_trainer *t,
                                  struct hl_diag *diag) {
    int64_t before = hl_clock_ns();
    e->note.mem = t->mem;
    for (uint32_t a = 0; a < e->snapshot.shape.n_arrays; a++) write_array(e, t, a);
    if (hl_group_rank(t->setup.group) == 0) {
        e->note.n = 0;
        hl_trainer_write_loop(t, NULL, NULL, &e->note);
        if (e->note.failed || e->note.n >= HL_SNAPSHOT_NOTE_BYTES)
            return hl_fail_memory(diag, HL_SNAPSHOT_NOTE_BYTES, "the state of the loop");
        hl_snapshot_write_note(&e->snapshot, t->step, e->note.data);
    }
    e->written_ns += hl_clock_ns() - before;
    return HL_OK;
}

enum hl_status hl_elastic_commit(struct hl_elastic *e, struct hl_trainer *t, struct hl_diag *diag) {
    if (!e->path) return HL_OK;
    enum hl_status status = write_state(e, t, diag);
    if (status == HL_OK)
        hl_snapshot_ready(&e->snapshot, hl_group_rank(t->setup.group), e->generation, t->step);
    return status;
}

/* ---- in ---- */

enum hl_status hl_elastic_look(struct hl_elastic *e, const char *path, uint64_t generation,
                               struct hl_diag *diag) {
    *e = (struct hl_elastic){.path = path, .generation = generation};
    if (!path) return HL_OK;
    enum hl_status status = hl_snapshot_open(path, &e->snapshot, diag);
    if (status != HL_OK) return status == HL_END ? HL_OK : status;
    e->found = hl_snapshot_last(&e->snapshot, &e->base) == HL_OK;
    if (!e->found) hl_snapshot_close(&e->snapshot);
    return HL_OK;
}

static void read_weights(struct hl_elastic *e, struct hl_trainer *t, int64_t step, float *scratch) {
    const struct hl_layout *layout = &t->model->layout;
    hl_engine_weights_stale(t->engine);
    for (int64_t b = 0, at = 0; b < layout->n_blocks; at += whole_lines(layout->blocks[b++].n)) {
        struct hl_range master = hl_engine_held(t->engine, HL_BUFFER_MASTER, (int)b),
                        range = hl_engine_held_weights(t->engine, (int)b);
        if (range.n <= master.n) range = master;
        if (!range.n) continue;
        float *to =
            range.n == master.n ? hl_engine_data(t->engine, HL_BUFFER_MASTER, master) : scratch;
        hl_snapshot_read(&e->snapshot, step, 0, at + range.offset - layout->blocks[b].offset,
                         range.n, to);
        hl_state_put(t, range, (int)b, to);
    }
}

static void read_slot(struct hl_elastic *e, struct hl_trainer *t, int64_t step, uint32_t array) {
    const struct hl_layout *layout = &t->model->layout;
    for (int64_t b = 0, at = 0; b < layout->n_blocks; at += whole_lines(layout->blocks[b++].n)) {
        struct hl_range held = hl_engine_held(t->engine, buffer_of(array), (int)b);
        if (held.n)
            hl_snapshot_read(&e->snapshot, step, array, at + held.offset - layout->blocks[b].offset,
                             held.n, hl_engine_data(t->engine, buffer_of(array), held));
    }
}

enum hl_status hl_elastic_restore(struct hl_elastic *e, struct hl_trainer *t,
                                  struct hl_diag *diag) {
    char note[HL_SNAPSHOT_NOTE_BYTES];
    struct hl_snapshot_shape shape = shape_of(t);
    int64_t step = hl_snapshot_committed(&e->snapshot, &e->base);
    if (shape.n_elements != e->snapshot.shape.n_elements ||
        shape.n_arrays != e->snapshot.shape.n_arrays ||
        !hl_snapshot_read_note(&e->snapshot, step, note))
        return hl_fail_at(diag, HL_E_FORMAT, e->path, 0, 0,
                          "holds the state of another run, or none");
    size_t n = (size_t)hl_state_largest_block(t);
    float *scratch = hl_alloc(t->mem, n, sizeof *scratch);
    if (!scratch) return hl_fail_memory(diag, n * sizeof *scratch, "reading weights");
    enum hl_status status = hl_trainer_read_loop(t, note, e->path, diag);
    if (status == HL_OK) {
        read_weights(e, t, step, scratch);
        for (uint32_t a = 1; a < shape.n_arrays; a++) read_slot(e, t, step, a);
    }
    hl_free(t->mem, scratch);
    return status;
}

/* ---- a generation begins ---- */

enum hl_status hl_elastic_make(struct hl_elastic *e, struct hl_trainer *t, struct hl_diag *diag) {
    struct hl_snapshot_shape shape = shape_of(t);
    if (!e->path || e->found) return HL_OK;
    if (t->strategy->saved || t->strategy->caps)
        return hl_fail(diag, HL_E_USER,
                       "elastic: strategy '%s' keeps state of its own on each rank, which is lost "
                       "with it; use ddp or zero1 to zero3",
                       t->strategy->name);
    return hl_snapshot_make(e->path, &shape, diag);
}

/* All have come here, and stand at the same step. */
static enum hl_status meet(struct hl_trainer *t, struct hl_diag *diag) {
    double steps[HL_MAX_RANKS];
    int rank = hl_group_rank(t->setup.group), n = hl_group_n_ranks(t->setup.group);
    steps[rank] = (double)t->step;
    enum hl_status status = hl_group_share(t->setup.group, steps, 1, diag);
    for (int r = 0; r < n && status == HL_OK; r++)
        if (steps[r] != steps[rank])
            status = hl_fail(diag, HL_E_FORMAT,
                             "elastic: rank %d is at step %lld and rank %d at step %lld", rank,
                             (long long)t->step, r, (long long)steps[r]);
    return status;
}

enum hl_status hl_elastic_begin(struct hl_elastic *e, struct hl_trainer *t, struct hl_diag *diag) {
    enum hl_status status = HL_OK;
    if (!e->path) return HL_OK;
    if (!e->found) {
        status = meet(t, diag); /* rank 0 has made it */
        if (status == HL_OK) status = hl_snapshot_open(e->path, &e->snapshot, diag);
        if (status == HL_END)
            status = hl_fail_at(diag, HL_E_IO, e->path, 0, 0, "is not there any more");
        if (status == HL_OK) status = write_state(e, t, diag);
    }
    if (status == HL_OK) status = meet(t, diag); /* the copy is whole, all have read */
    if (status != HL_OK) return status;
    e->base = (struct hl_snapshot_base){.generation = e->generation,
                                        .step = t->step,
                                        .n_ranks = (uint64_t)hl_group_n_ranks(t->setup.group)};
    if (hl_group_rank(t->setup.group) == 0) hl_snapshot_begin(&e->snapshot, &e->base);
    return meet(t, diag);
}

void hl_elastic_close(struct hl_elastic *e) {
    hl_snapshot_close(&e->snapshot);
    hl_buf_free(&e->note);
}
