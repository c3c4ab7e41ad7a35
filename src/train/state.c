/* Weights and optimizer state as initialisation, checkpoints and resuming see them: whole arrays in
 * storage order, though a rank may hold only its slices. See state.h. */
#include "train/state.h"

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
    struct hl_bf16 *copy = weights.n ? hl_engine_copy(t->engine, weights) : NULL;
    if (copy) t->kernels->to_bf16(weights.n, data + (weights.offset - range.offset), copy);
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

enum hl_status hl_state_load_slot(struct hl_trainer *t, struct hl_checkpoint_reader *reader,
                                  const char *name, enum hl_buffer buffer, struct hl_diag *diag) {
    enum hl_status status = HL_OK;
    for (int b = 0; b < t->model->layout.n_blocks && status == HL_OK; b++) {
        struct hl_range held = hl_engine_held(t->engine, buffer, b);
        if (held.n)
            status =
                hl_checkpoint_read_part(reader, name, t->model->layout.n_parameters, held.offset,
                                        held.n, hl_engine_data(t->engine, buffer, held), diag);
    }
    return status;
}

/* ---- out ---- */

enum hl_status hl_state_source_open(struct hl_trainer *t, struct hl_state_source *s,
                                    struct hl_diag *diag) {
    *s = (struct hl_state_source){.t = t, .block = -1};
    size_t n = (size_t)hl_state_largest_block(t);
    s->scratch = hl_alloc(t->mem, n, sizeof *s->scratch);
    return s->scratch ? HL_OK
                      : hl_fail_memory(diag, n * sizeof *s->scratch, "gathering a checkpoint");
}

void hl_state_source_close(struct hl_state_source *s) {
    if (s->t) hl_free(s->t->mem, s->scratch);
}

/* The next block of the next array comes to rank 0. Every rank gets here as often, in the same
 * order. */
static enum hl_status next_block(struct hl_state_source *s, struct hl_diag *diag) {
    struct hl_trainer *t = s->t;
    const struct hl_layout *layout = &t->model->layout;
    if (++s->block == layout->n_blocks) s->block = 0, s->buffer++;
    enum hl_buffer buffer =
        s->buffer ? (enum hl_buffer)(HL_BUFFER_SLOT0 + s->buffer - 1) : HL_BUFFER_MASTER;
    struct hl_range range = layout->blocks[s->block];
    struct hl_range held = hl_engine_held(t->engine, buffer, s->block);
    if (held.n)
        memcpy(s->scratch + (held.offset - range.offset), hl_engine_data(t->engine, buffer, held),
               (size_t)held.n * sizeof *s->scratch);
    if (held.n == range.n) return HL_OK; /* the same on all ranks, or this is the only one */
    const struct hl_collective_args args = {
        .kind = HL_GATHER, .data = s->scratch, .n = range.n, .element_bytes = sizeof *s->scratch};
    hl_collective_start(t->setup.group, &args, &s->gather);
    return hl_collective_wait(t->setup.group, &s->gather, diag);
}

enum hl_status hl_state_fetch(void *context, int array, int64_t first, int64_t n,
                              const float **data_out, int64_t *n_out, struct hl_diag *diag) {
    struct hl_state_source *s = context;
    const struct hl_layout *layout = &s->t->model->layout;
    enum hl_status status = HL_OK;
    while (status == HL_OK &&
           (s->block < 0 || s->buffer != array + 1 ||
            first >= layout->blocks[s->block].offset + layout->blocks[s->block].n))
        status = next_block(s, diag);
    if (status != HL_OK) return status;
    int64_t left = layout->blocks[s->block].offset + layout->blocks[s->block].n - first;
    *data_out = s->scratch + (first - layout->blocks[s->block].offset);
    *n_out = n < left ? n : left;
    return HL_OK;
}

enum hl_status hl_state_whole_engine(struct hl_trainer *t, struct hl_engine **out,
                                     struct hl_diag *diag) {
    const struct hl_layout *layout = &t->model->layout;
    const struct hl_engine_shape shape = {.bf16_copy = t->kernels->dtype == HL_BF16};
    struct hl_state_source source;
    struct hl_engine *whole = NULL;
    enum hl_status status = hl_state_source_open(t, &source, diag);
    if (status != HL_OK) return status;
    if (hl_group_rank(t->setup.group) == 0)
        status = hl_engine_new(t->mem, layout, &shape, &whole, diag);
    struct hl_diag broken;
    for (int b = 0; b < layout->n_blocks; b++) {
        enum hl_status came = next_block(&source, &broken);
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
    int last = s->t->model->layout.n_blocks - 1;
    while (status == HL_OK && (s->buffer < s->t->optimizer->n_slots || s->block < last))
        status = next_block(s, diag);
    return status;
}
