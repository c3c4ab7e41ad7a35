/* Weights and optimizer state as initialisation, checkpoints and resuming see them: whole arrays in
 * storage order, though a rank may hold only its slices. See state.h. */
#include "train/state.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

/* ---- in ---- */

static struct hl_range common(struct hl_range a, struct hl_range b) {
    int64_t first = a.offset > b.offset ? a.offset : b.offset;
    int64_t end = a.offset + a.n < b.offset + b.n ? a.offset + a.n : b.offset + b.n;
    return (struct hl_range){first, end > first ? end - first : 0};
}

void hl_state_put(struct hl_trainer *t, struct hl_range range, int block, const float *data) {
    struct hl_range master = common(range, hl_engine_held(t->engine, HL_BUFFER_MASTER, block));
    struct hl_range weights = common(range, hl_engine_held_weights(t->engine, block));
    if (weights.n)
        hl_engine_put_weights(t->engine, t->kernels, weights,
                              data + (weights.offset - range.offset));
    if (!master.n) return;
    float *to = hl_engine_data(t->engine, HL_BUFFER_MASTER, master);
    const float *from = data + (master.offset - range.offset);
    if (to != from) memcpy(to, from, (size_t)master.n * sizeof *to);
}

static bool master_is_whole(const struct hl_trainer *t) {
    for (int b = 0; b < t->model->layout.n_blocks; b++)
        if (hl_engine_held(t->engine, HL_BUFFER_MASTER, b).n != t->model->layout.blocks[b].n)
            return false;
    return true;
}

int64_t hl_state_largest_block(const struct hl_trainer *t) {
    int64_t n = 0;
    for (int b = 0; b < t->model->layout.n_blocks; b++)
        if (t->model->layout.blocks[b].n > n) n = t->model->layout.blocks[b].n;
    return n;
}

enum hl_status hl_state_init(struct hl_trainer *t, struct hl_diag *diag) {
    const struct hl_layout *layout = &t->model->layout;
    size_t n = (size_t)hl_state_largest_block(t);
    float *scratch = NULL;
    bool whole = master_is_whole(t);
    if (!whole && !(scratch = hl_alloc(t->mem, n, sizeof *scratch)))
        return hl_fail_memory(diag, n * sizeof *scratch, "initial weights");
    for (int b = 0; b < layout->n_blocks; b++) {
        float *at =
            whole ? hl_engine_data(t->engine, HL_BUFFER_MASTER, layout->blocks[b]) : scratch;
        hl_model_init_block(t->model, t->setup.seed, b, at);
        hl_state_put(t, layout->blocks[b], b, at);
    }
    hl_free(t->mem, scratch);
    return HL_OK;
}

struct loader {
    struct hl_trainer *t;
    float *scratch;
};

static float *place(void *context, const struct hl_tensor *tensor) {
    struct loader *l = context;
    if (l->scratch) return l->scratch;
    return hl_engine_data(l->t->engine, HL_BUFFER_MASTER,
                          (struct hl_range){tensor->offset, tensor->n});
}

static void placed(void *context, const struct hl_tensor *tensor, const float *data) {
    struct loader *l = context;
    /* a sum: files may hold tensors in any order */
    l->t->loaded_hash +=
        XXH3_64bits_withSeed(data, (size_t)tensor->n * sizeof *data, (XXH64_hash_t)tensor->offset);
    hl_state_put(l->t, (struct hl_range){tensor->offset, tensor->n}, tensor->block, data);
}

enum hl_status hl_state_load_weights(struct hl_trainer *t, struct hl_checkpoint_reader *reader,
                                     struct hl_diag *diag) {
    struct loader l = {.t = t};
    hl_engine_weights_stale(t->engine);
    t->loaded_hash = 0;
    size_t n = (size_t)hl_state_largest_block(t);
    if (!master_is_whole(t) && !(l.scratch = hl_alloc(t->mem, n, sizeof *l.scratch)))
        return hl_fail_memory(diag, n * sizeof *l.scratch, "reading weights");
    const struct hl_checkpoint_sink sink = {.place = place, .placed = placed, .context = &l};
    enum hl_status status = hl_checkpoint_read_tensors(reader, t->model, &sink, diag);
    hl_free(t->mem, l.scratch);
    return status;
}

/* This rank's part of what lies in the engine. */
static enum hl_status load_engine(struct hl_trainer *t, const struct hl_state_past *past,
                                  const struct hl_state_array *array, struct hl_diag *diag) {
    enum hl_status status = HL_OK;
    for (int b = 0; b < t->model->layout.n_blocks && status == HL_OK; b++) {
        struct hl_range held = hl_engine_held(t->engine, array->buffer, b);
        if (held.n)
            status = past->read(past->context, array, 0, held.offset, held.n,
                                hl_engine_data(t->engine, array->buffer, held), diag);
    }
    return status;
}

/* The same array of all ranks that there were, added in rank order. */
static enum hl_status load_sum(const struct hl_state_past *past, const struct hl_state_array *array,
                               struct hl_diag *diag) {
    enum { PIECE = 4096 };
    float piece[PIECE];
    enum hl_status status = HL_OK;
    memset(array->data, 0, (size_t)array->n * sizeof *array->data);
    for (int r = 0; r < past->n_ranks; r++)
        for (int64_t first = 0, n; first < array->n && status == HL_OK; first += n) {
            n = array->n - first < PIECE ? array->n - first : PIECE;
            status = past->read(past->context, array, r, first, n, piece, diag);
            for (int64_t i = 0; i < n && status == HL_OK; i++) array->data[first + i] += piece[i];
        }
    return status;
}

static enum hl_status load_own(struct hl_trainer *t, const struct hl_state_past *past,
                               const struct hl_state_array *array, bool *joins,
                               struct hl_diag *diag) {
    int rank = hl_group_rank(t->setup.group);
    if (array->rank != rank) return HL_OK;
    if (!array->sums || past->same) {
        *joins |= past->rank < 0;
        return past->rank < 0
                   ? HL_OK
                   : past->read(past->context, array, past->rank, 0, array->n, array->data, diag);
    }
    if (rank) return memset(array->data, 0, (size_t)array->n * sizeof *array->data), HL_OK;
    return load_sum(past, array, diag);
}

enum hl_status hl_state_load(struct hl_trainer *t, const struct hl_state_list *list,
                             const struct hl_state_past *past, bool *joins_out,
                             struct hl_diag *diag) {
    enum hl_status status = HL_OK;
    *joins_out = false;
    for (int i = 1; i < list->n && status == HL_OK; i++) {
        const struct hl_state_array *array = &list->items[i];
        if (array->kind == HL_STATE_ENGINE) status = load_engine(t, past, array, diag);
        else if (array->kind == HL_STATE_OWN) status = load_own(t, past, array, joins_out, diag);
        else status = past->read(past->context, array, 0, 0, array->n, array->data, diag);
    }
    return status;
}

/* ---- which arrays and numbers ---- */

static void add_array(struct hl_state_list *list, const char *prefix, const char *name, int rank,
                      struct hl_state_array array) {
    struct hl_state_array *item = &list->items[list->n++];
    *item = array;
    item->rank = rank;
    if (rank < 0) (void)snprintf(item->name, sizeof item->name, "%s.%s", prefix, name);
    else (void)snprintf(item->name, sizeof item->name, "%s.%s.rank%d", prefix, name, rank);
}

/* Slots of ranks that go their own ways are each rank's own. */
static void add_slot(struct hl_trainer *t, struct hl_state_list *list, int slot) {
    const char *name = t->optimizer->slot_names[slot];
    struct hl_state_array array = {.n = t->model->layout.n_parameters,
                                   .buffer = (enum hl_buffer)(HL_BUFFER_SLOT0 + slot)};
    if (!(t->strategy->caps & HL_CAP_DIVERGENT)) {
        add_array(list, "optimizer", name, -1, array);
        return;
    }
    array.kind = HL_STATE_OWN;
    array.data = hl_engine_data(t->engine, array.buffer, hl_layout_all(&t->model->layout));
    for (int r = 0; r < hl_group_n_ranks(t->setup.group); r++)
        add_array(list, "optimizer", name, r, array);
}

static void add_saved(struct hl_trainer *t, struct hl_state_list *list,
                      const struct hl_saved_state *saved) {
    bool own = saved->where != HL_SAVED_ALIKE;
    const struct hl_state_array array = {.kind = own ? HL_STATE_OWN : HL_STATE_ALIKE,
                                         .n = saved->n,
                                         .data = saved->data,
                                         .sums = saved->where == HL_SAVED_SUM};
    if (saved->counts) return;
    if (!own) add_array(list, "strategy", saved->name, -1, array);
    for (int r = 0; own && r < hl_group_n_ranks(t->setup.group); r++)
        add_array(list, "strategy", saved->name, r, array);
}

enum { MAX_SAVED = 16 };
static int saved_of(struct hl_trainer *t, struct hl_saved_state saved[MAX_SAVED]) {
    return t->strategy->saved ? t->strategy->saved(t->strategy_state, saved, MAX_SAVED) : 0;
}

enum hl_status hl_state_list(struct hl_trainer *t, struct hl_state_list *out,
                             struct hl_diag *diag) {
    struct hl_saved_state saved[MAX_SAVED];
    int n = saved_of(t, saved), n_slots = t->optimizer->n_slots;
    size_t most = 1 + (size_t)((n + n_slots) * hl_group_n_ranks(t->setup.group));
    *out =
        (struct hl_state_list){.mem = t->mem, .items = hl_alloc(t->mem, most, sizeof *out->items)};
    if (!out->items)
        return hl_fail_memory(diag, most * sizeof *out->items, "the list of a checkpoint's arrays");
    add_array(out, "model", "weights", -1,
              (struct hl_state_array){.n = t->model->layout.n_parameters});
    for (int s = 0; s < n_slots; s++) add_slot(t, out, s);
    for (int i = 0; i < n; i++) add_saved(t, out, &saved[i]);
    return HL_OK;
}

void hl_state_list_free(struct hl_state_list *list) {
    if (list->mem) hl_free(list->mem, list->items);
}

static void add_number(struct hl_state_numbers *out, const char *name, int64_t *at, bool sums) {
    assert(out->n < HL_STATE_NUMBERS);
    (void)snprintf(out->names[out->n], sizeof out->names[0], "%s", name);
    out->at[out->n] = at;
    out->sums[out->n++] = sums;
}

void hl_state_numbers(struct hl_trainer *t, struct hl_state_numbers *out) {
    struct hl_saved_state saved[MAX_SAVED];
    char name[64];
    int n = saved_of(t, saved);
    *out = (struct hl_state_numbers){.loss_sum = &t->uncommitted.loss_sum};
    if (hl_trainer_has_pace(t)) {
        add_number(out, "next_row", &t->next_row, false);
        add_number(out, "after_round", &t->after_round, false);
        add_number(out, "loss_sum", NULL, true);
        add_number(out, "n_rows", &t->uncommitted.n_rows, true);
        add_number(out, "n_tokens", &t->uncommitted.n_tokens, true);
        add_number(out, "n_supervised", &t->uncommitted.n_supervised, true);
    }
    for (int i = 0; i < n; i++)
        for (int64_t k = 0; saved[i].counts && k < saved[i].n; k++) {
            (void)snprintf(name, sizeof name, "%s.%d", saved[i].name, (int)k);
            add_number(out, name, (int64_t *)saved[i].data + k, saved[i].where == HL_SAVED_SUM);
        }
}

void hl_state_numbers_now(const struct hl_state_numbers *numbers, double *out) {
    for (int i = 0; i < numbers->n; i++)
        out[i] = numbers->at[i] ? (double)*numbers->at[i] : *numbers->loss_sum;
}

/* ---- out ---- */

enum hl_status hl_state_source_open(struct hl_trainer *t, const struct hl_state_list *list,
                                    struct hl_state_source *s, struct hl_diag *diag) {
    *s = (struct hl_state_source){.t = t, .list = list, .room = hl_state_largest_block(t)};
    size_t n = (size_t)s->room;
    s->scratch = hl_alloc(t->mem, n, sizeof *s->scratch);
    return s->scratch ? HL_OK
                      : hl_fail_memory(diag, n * sizeof *s->scratch, "gathering a checkpoint");
}

void hl_state_source_close(struct hl_state_source *s) {
    if (s->t) hl_free(s->t->mem, s->scratch);
}

/* A block of an array of the engine. */
static enum hl_status next_block(struct hl_state_source *s, enum hl_buffer buffer,
                                 struct hl_diag *diag) {
    struct hl_trainer *t = s->t;
    const struct hl_layout *layout = &t->model->layout;
    int block = 0;
    while (layout->blocks[block].offset + layout->blocks[block].n <= s->first) block++;
    struct hl_range range = layout->blocks[block];
    struct hl_range held = hl_engine_held(t->engine, buffer, block);
    s->n = range.n;
    if (held.n)
        memcpy(s->scratch + (held.offset - range.offset), hl_engine_data(t->engine, buffer, held),
               (size_t)held.n * sizeof *s->scratch);
    if (held.n == range.n) return HL_OK; /* the same on all ranks, or this is the only one */
    const struct hl_collective_args args = {
        .kind = HL_GATHER, .data = s->scratch, .n = range.n, .element_bytes = sizeof *s->scratch};
    hl_collective_start(t->setup.group, &args, &s->gather);
    return hl_collective_wait(t->setup.group, &s->gather, diag);
}

/* A piece of one rank's own array. */
static enum hl_status next_own(struct hl_state_source *s, const struct hl_state_array *array,
                               struct hl_diag *diag) {
    struct hl_group *group = s->t->setup.group;
    int64_t left = array->n - s->first;
    s->n = left < s->room ? left : s->room;
    if (hl_group_rank(group) == array->rank)
        memcpy(s->scratch, array->data + s->first, (size_t)s->n * sizeof *s->scratch);
    if (array->rank == 0) return HL_OK;
    const struct hl_collective_args args = {.kind = HL_SEND,
                                            .root = array->rank,
                                            .data = s->scratch,
                                            .n = s->n,
                                            .element_bytes = sizeof *s->scratch};
    hl_collective_start(group, &args, &s->gather);
    return hl_collective_wait(group, &s->gather, diag);
}

/* HL_END: there is no further piece. Every rank gets here as often, in the same order. */
static enum hl_status next_piece(struct hl_state_source *s, struct hl_diag *diag) {
    static const struct hl_state_array weights = {.buffer = HL_BUFFER_MASTER};
    int n_items = s->list ? s->list->n : 1;
    s->first += s->n;
    s->n = 0;
    for (; s->item < n_items; s->item++, s->first = 0) {
        const struct hl_state_array *array = s->list ? &s->list->items[s->item] : &weights;
        int64_t n = s->list ? array->n : s->t->model->layout.n_parameters;
        if (array->kind == HL_STATE_ALIKE || s->first >= n) continue;
        return array->kind == HL_STATE_OWN ? next_own(s, array, diag)
                                           : next_block(s, array->buffer, diag);
    }
    return HL_END;
}

enum hl_status hl_state_fetch(void *context, int array, int64_t first, int64_t n,
                              const float **data_out, int64_t *n_out, struct hl_diag *diag) {
    struct hl_state_source *s = context;
    enum hl_status status = HL_OK;
    while (status == HL_OK && (s->n == 0 || s->item != array + 1 || first >= s->first + s->n))
        status = next_piece(s, diag);
    if (status != HL_OK) return status;
    int64_t left = s->first + s->n - first;
    *data_out = s->scratch + (first - s->first);
    *n_out = n < left ? n : left;
    return HL_OK;
}

enum hl_status hl_state_whole_engine(struct hl_trainer *t, struct hl_engine **out,
                                     struct hl_diag *diag) {
    const struct hl_layout *layout = &t->model->layout;
    const struct hl_engine_shape shape = {.bf16_copy = t->kernels->dtype == HL_BF16};
    struct hl_state_source source;
    struct hl_engine *whole = NULL;
    enum hl_status status = hl_state_source_open(t, NULL, &source, diag);
    if (status != HL_OK) return status;
    if (hl_group_rank(t->setup.group) == 0)
        status = hl_engine_new(t->mem, layout, &shape, &whole, diag);
    struct hl_diag broken;
    for (int b = 0; b < layout->n_blocks; b++) {
        enum hl_status came = next_piece(&source, &broken);
        if (came != HL_OK) *diag = broken, status = came;
        if (came != HL_OK) break;
        if (!whole) continue;
        memcpy(hl_engine_data(whole, HL_BUFFER_MASTER, layout->blocks[b]), source.scratch,
               (size_t)layout->blocks[b].n * sizeof(float));
        hl_engine_publish(whole, t->kernels, layout->blocks[b]);
    }
    hl_state_source_close(&source);
    if (status != HL_OK) hl_engine_free(whole);
    else *out = whole;
    return status;
}

enum hl_status hl_state_source_finish(struct hl_state_source *s, struct hl_diag *diag) {
    enum hl_status status = HL_OK;
    while (status == HL_OK) status = next_piece(s, diag);
    return status == HL_END ? HL_OK : status;
}
