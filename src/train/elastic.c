/* See elastic.h. */
#include "train/elastic.h"

#include "os/clock.h"

/* ---- seats ---- */

/* This rank's number among those of the seats; -1: it is not there. */
static int rank_of(uint64_t seats, int seat) {
    uint64_t bit = (uint64_t)1 << seat;
    return seats & bit ? __builtin_popcountll(seats & (bit - 1)) : -1;
}

static int seat_of(uint64_t seats, int rank) {
    while (rank-- > 0) seats &= seats - 1;
    return __builtin_ctzll(seats);
}

/* ---- where what lies ---- */

/* Blocks and arrays begin at lines, so that no two ranks write into one. */
static int64_t whole_lines(int64_t n) {
    return (n + HL_SLICE_UNIT - 1) / HL_SLICE_UNIT * HL_SLICE_UNIT;
}

/* Of an array of the engine: where a block begins in it; behind the last one: its size. */
static int64_t place_of_block(const struct hl_trainer *t, int block) {
    int64_t at = 0;
    for (int b = 0; b < block; b++) at += whole_lines(t->model->layout.blocks[b].n);
    return at;
}

/* Of the items in front of item i: what is shared, or one rank's of what each has. */
static int64_t size_before(const struct hl_elastic *e, const struct hl_trainer *t, int i,
                           bool own) {
    int64_t n = 0;
    for (const struct hl_state_array *a = e->list.items; a < e->list.items + i; a++)
        if (a->kind == HL_STATE_ENGINE) n += own ? 0 : place_of_block(t, t->model->layout.n_blocks);
        else if (a->kind == HL_STATE_ALIKE) n += own ? 0 : whole_lines(a->n);
        else n += own && a->rank == 0 ? whole_lines(a->n) : 0;
    return n;
}

/* In a copy. seat: whose, of an array that each has. */
static int64_t place_of(const struct hl_elastic *e, const struct hl_trainer *t,
                        const struct hl_state_array *array, int seat) {
    int i = (int)(array - e->list.items);
    if (array->kind != HL_STATE_OWN) return size_before(e, t, i, false);
    return hl_snapshot_own(&e->snapshot, seat) + size_before(e, t, i - array->rank, true);
}

/* A seat's last: f64, each in the place of two f32. */
static int64_t place_of_numbers(const struct hl_elastic *e, const struct hl_trainer *t, int seat) {
    return hl_snapshot_own(&e->snapshot, seat) + size_before(e, t, e->list.n, true);
}

static struct hl_snapshot_shape shape_of(const struct hl_elastic *e, struct hl_trainer *t) {
    struct hl_state_numbers numbers;
    hl_state_numbers(t, &numbers);
    return (struct hl_snapshot_shape){
        .n_shared = (uint64_t)size_before(e, t, e->list.n, false),
        .n_own = (uint64_t)(size_before(e, t, e->list.n, true) + whole_lines(2 * numbers.n)),
        .n_seats = (uint32_t)hl_group_n_ranks(t->setup.group)};
}

static struct hl_range slice_of(const struct hl_trainer *t, int64_t n) {
    return hl_slice(n, HL_SLICE_UNIT, hl_group_rank(t->setup.group),
                    hl_group_n_ranks(t->setup.group));
}

void hl_elastic_cost(const struct hl_elastic *e, const struct hl_trainer *t, uint64_t *held_out,
                     uint64_t *written_out) {
    int64_t n = (int64_t)e->snapshot.shape.n_own;
    for (int i = 0; i < e->list.n; i++) {
        const struct hl_state_array *array = &e->list.items[i];
        if (array->kind == HL_STATE_ALIKE) n += slice_of(t, array->n).n;
        for (int b = 0; b < t->model->layout.n_blocks && array->kind == HL_STATE_ENGINE; b++)
            n += slice_of(t, t->model->layout.blocks[b].n).n;
    }
    *written_out = (uint64_t)n * sizeof(float);
    *held_out = hl_snapshot_bytes(&e->snapshot.shape);
}

/* ---- out ---- */

static void write_engine(struct hl_elastic *e, struct hl_trainer *t,
                         const struct hl_state_array *array, int64_t place) {
    for (int b = 0; b < t->model->layout.n_blocks; b++) {
        struct hl_range block = t->model->layout.blocks[b], slice = slice_of(t, block.n),
                        range = {block.offset + slice.offset, slice.n};
        if (slice.n)
            hl_snapshot_write(&e->snapshot, t->step, place + place_of_block(t, b) + slice.offset,
                              slice.n, hl_engine_data(t->engine, array->buffer, range));
    }
}

static void write_array(struct hl_elastic *e, struct hl_trainer *t,
                        const struct hl_state_array *array) {
    int64_t place = place_of(e, t, array, e->seat);
    if (array->kind == HL_STATE_ENGINE) write_engine(e, t, array, place);
    else if (array->kind == HL_STATE_ALIKE) {
        struct hl_range slice = slice_of(t, array->n);
        if (slice.n)
            hl_snapshot_write(&e->snapshot, t->step, place + slice.offset, slice.n,
                              array->data + slice.offset);
    } else if (array->rank == hl_group_rank(t->setup.group))
        hl_snapshot_write(&e->snapshot, t->step, place, array->n, array->data);
}

static void write_numbers(struct hl_elastic *e, struct hl_trainer *t) {
    struct hl_state_numbers numbers;
    double values[HL_STATE_NUMBERS];
    hl_state_numbers(t, &numbers);
    hl_state_numbers_now(&numbers, values);
    hl_snapshot_write(&e->snapshot, t->step, place_of_numbers(e, t, e->seat), 2 * numbers.n,
                      (const float *)(const void *)values);
}

static enum hl_status write_state(struct hl_elastic *e, struct hl_trainer *t,
                                  struct hl_diag *diag) {
    int64_t before = hl_clock_ns();
    enum hl_status status = hl_trainer_drain(t, diag);
    if (status == HL_OK) status = hl_trainer_view(t, true, diag);
    if (status != HL_OK) return status;
    for (int i = 0; i < e->list.n; i++) write_array(e, t, &e->list.items[i]);
    write_numbers(e, t);
    if (hl_group_rank(t->setup.group) == 0) {
        e->note.mem = t->mem;
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
    if (status == HL_OK) hl_snapshot_ready(&e->snapshot, e->seat, e->generation, t->step);
    return status;
}

/* ---- in ---- */

enum hl_status hl_elastic_look(struct hl_elastic *e, const char *path, uint64_t generation,
                               int seat, struct hl_diag *diag) {
    *e = (struct hl_elastic){.path = path, .generation = generation, .seat = seat};
    if (!path) return HL_OK;
    enum hl_status status = hl_snapshot_open(path, &e->snapshot, diag);
    if (status != HL_OK) return status == HL_END ? HL_OK : status;
    e->found = hl_snapshot_last(&e->snapshot, &e->base) == HL_OK;
    if (!e->found) hl_snapshot_close(&e->snapshot);
    return HL_OK;
}

/* All have come here, and stand at the same step. Who they are is known then. */
static enum hl_status meet(struct hl_elastic *e, struct hl_trainer *t, struct hl_diag *diag) {
    double all[HL_MAX_RANKS][2];
    int rank = hl_group_rank(t->setup.group), n = hl_group_n_ranks(t->setup.group);
    all[rank][0] = (double)t->step;
    all[rank][1] = e->seat;
    enum hl_status status = hl_group_share(t->setup.group, all[0], 2, diag);
    e->seats = 0;
    for (int r = 0; r < n && status == HL_OK; r++) {
        e->seats |= (uint64_t)1 << (int)all[r][1];
        if (all[r][0] != all[rank][0])
            status = hl_fail(diag, HL_E_FORMAT,
                             "elastic: rank %d is at step %lld and rank %d at step %lld", rank,
                             (long long)t->step, r, (long long)all[r][0]);
    }
    return status;
}

/* What the last generation left of its committed step. */
struct left {
    const struct hl_elastic *e;
    const struct hl_trainer *t;
    int64_t step;
    uint64_t writers;
};

static enum hl_status read_array(void *context, const struct hl_state_array *array, int rank,
                                 int64_t first, int64_t n, float *out, struct hl_diag *diag) {
    const struct left *l = context;
    const struct hl_range *blocks = l->t->model->layout.blocks;
    int64_t at = place_of(l->e, l->t, array, seat_of(l->writers, rank)) + first;
    (void)diag;
    for (int b = 0; array->kind == HL_STATE_ENGINE && blocks[b].offset + blocks[b].n <= first; b++)
        at += whole_lines(blocks[b].n) - blocks[b].n;
    hl_snapshot_read(&l->e->snapshot, l->step, at, n, out);
    return HL_OK;
}

static double read_number(void *context, int rank, int i) {
    const struct left *l = context;
    double value;
    int64_t at = place_of_numbers(l->e, l->t, seat_of(l->writers, rank)) + 2 * i;
    hl_snapshot_read(&l->e->snapshot, l->step, at, 2, (float *)(void *)&value);
    return value;
}

/* Array 0, and what compute reads of it. */
static enum hl_status read_weights(const struct left *l, struct hl_trainer *t,
                                   struct hl_diag *diag) {
    size_t n = (size_t)hl_state_largest_block(t);
    float *scratch = hl_alloc(t->mem, n, sizeof *scratch);
    if (!scratch) return hl_fail_memory(diag, n * sizeof *scratch, "reading weights");
    enum hl_status status = HL_OK;
    hl_engine_weights_stale(t->engine);
    for (int b = 0; b < t->model->layout.n_blocks && status == HL_OK; b++) {
        struct hl_range master = hl_engine_held(t->engine, HL_BUFFER_MASTER, b),
                        range = hl_engine_held_weights(t->engine, b);
        if (range.n <= master.n) range = master;
        if (!range.n) continue;
        float *to =
            range.n == master.n ? hl_engine_data(t->engine, HL_BUFFER_MASTER, master) : scratch;
        status =
            read_array((void *)(uintptr_t)l, l->e->list.items, 0, range.offset, range.n, to, diag);
        if (status == HL_OK) hl_state_put(t, range, b, to);
    }
    hl_free(t->mem, scratch);
    return status;
}

static enum hl_status list_arrays(struct hl_elastic *e, struct hl_trainer *t,
                                  struct hl_diag *diag) {
    return e->list.items ? HL_OK : hl_state_list(t, &e->list, diag);
}

/* Is it of this run? */
static bool fits(const struct hl_elastic *e, struct hl_trainer *t) {
    const struct hl_snapshot_shape now = shape_of(e, t), then = e->snapshot.shape;
    return now.n_shared == then.n_shared && now.n_own == then.n_own &&
           (uint32_t)e->seat < then.n_seats;
}

enum hl_status hl_elastic_restore(struct hl_elastic *e, struct hl_trainer *t,
                                  struct hl_diag *diag) {
    char note[HL_SNAPSHOT_NOTE_BYTES];
    bool joins = false;
    enum hl_status status = hl_trainer_view(t, true, diag);
    if (status == HL_OK) status = list_arrays(e, t, diag);
    if (status == HL_OK) status = meet(e, t, diag);
    if (status != HL_OK) return status;
    int64_t step = hl_snapshot_committed(&e->snapshot, &e->base);
    struct left left = {e, t, step, hl_snapshot_writers(&e->base, step)};
    if (!fits(e, t) || !hl_snapshot_read_note(&e->snapshot, step, note))
        return hl_fail_at(diag, HL_E_FORMAT, e->path, 0, 0,
                          "holds the state of another run, or none");
    const struct hl_state_past past = {.n_ranks = __builtin_popcountll(left.writers),
                                       .rank = rank_of(left.writers, e->seat),
                                       .same = left.writers == e->seats,
                                       .read = read_array,
                                       .number = read_number,
                                       .context = &left};
    status = hl_trainer_read_loop(t, note, &past, e->path, diag);
    if (status == HL_OK) status = read_weights(&left, t, diag);
    if (status == HL_OK) status = hl_state_load(t, &e->list, &past, &joins, diag);
    t->started = !joins;
    return status;
}

/* ---- a generation begins ---- */

enum hl_status hl_elastic_make(struct hl_elastic *e, struct hl_trainer *t, struct hl_diag *diag) {
    if (!e->path || e->found) return HL_OK;
    enum hl_status status = list_arrays(e, t, diag);
    if (status != HL_OK) return status;
    const struct hl_snapshot_shape shape = shape_of(e, t);
    return hl_snapshot_make(e->path, &shape, diag);
}

enum hl_status hl_elastic_begin(struct hl_elastic *e, struct hl_trainer *t, struct hl_diag *diag) {
    enum hl_status status = HL_OK;
    if (!e->path) return HL_OK;
    if (!e->found) {
        status = meet(e, t, diag); /* rank 0 has made it */
        if (status == HL_OK) status = hl_snapshot_open(e->path, &e->snapshot, diag);
        if (status == HL_END)
            status = hl_fail_at(diag, HL_E_IO, e->path, 0, 0, "is not there any more");
        if (status == HL_OK) status = list_arrays(e, t, diag);
        if (status == HL_OK) status = write_state(e, t, diag);
    }
    if (status == HL_OK) status = meet(e, t, diag); /* the copy is whole, all have read */
    if (status != HL_OK) return status;
    e->base = (struct hl_snapshot_base){.generation = e->generation,
                                        .step = t->step,
                                        .seats = e->seats,
                                        .writers = e->found ? hl_snapshot_writers(&e->base, t->step)
                                                            : e->seats};
    if (hl_group_rank(t->setup.group) == 0) hl_snapshot_begin(&e->snapshot, &e->base);
    return meet(e, t, diag);
}

void hl_elastic_close(struct hl_elastic *e) {
    hl_snapshot_close(&e->snapshot);
    hl_state_list_free(&e->list);
    hl_buf_free(&e->note);
}
