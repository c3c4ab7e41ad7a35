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

struct hl_state_array;
/* What ranks left behind, in a checkpoint or in memory, and what this rank finds of it. */
struct hl_state_past {
    int n_ranks; /* then */
    int rank;    /* this one's then; -1: it was not there */
    bool same;   /* the ranks are those of then */
    /* Elements first ... first + n of an array, as `rank` had it then, or of what they shared; of
     * an array of the engine they lie in one block. */
    enum hl_status (*read)(void *context, const struct hl_state_array *array, int rank,
                           int64_t first, int64_t n, float *out, struct hl_diag *diag);
    /* Number i of hl_state_numbers; NULL: loop.json has them. */
    double (*number)(void *context, int rank, int i);
    void *context;
};

struct hl_state_numbers;
/* Where the run is, as JSON. numbers: of all ranks, or NULL. */
void hl_trainer_write_loop(const struct hl_trainer *t, const struct hl_state_numbers *names,
                           const double *numbers, struct hl_buf *out);
/* Go there. from: where the text is from, for messages. errors HL_E_USER: of another run;
 * HL_E_FORMAT; the trainer is as before */
enum hl_status hl_trainer_read_loop(struct hl_trainer *t, const char *text,
                                    const struct hl_state_past *past, const char *from,
                                    struct hl_diag *diag) HL_MUST_CHECK;

/* Initial weights, a pure function of the seed; each rank keeps its part. */
enum hl_status hl_state_init(struct hl_trainer *t, struct hl_diag *diag) HL_MUST_CHECK;
/* Every rank reads all tensors, keeps its part, and gets to know t->loaded_hash. */
enum hl_status hl_state_load_weights(struct hl_trainer *t, struct hl_checkpoint_reader *reader,
                                     struct hl_diag *diag) HL_MUST_CHECK;

/* An array of a checkpoint, f32 [n]. The list is the same on all ranks; see hl_state_list. */
enum hl_state_kind {
    HL_STATE_ENGINE, /* of the engine, whole on every rank or in slices */
    HL_STATE_ALIKE,  /* rank 0 has it */
    HL_STATE_OWN,    /* one rank's own */
};
struct hl_state_array {
    char
        name[128]; /* "optimizer.exp_avg", "strategy.NAME", and ".rank3" for what is a rank's own */
    enum hl_state_kind kind;
    int64_t n;
    enum hl_buffer buffer; /* ENGINE */
    int rank;              /* OWN */
    float *data;           /* ALIKE; OWN: the same array of this rank, whoever's turn it is */
    bool sums;             /* OWN: HL_SAVED_SUM */
};
struct hl_state_list {
    struct hl_mem *mem;
    struct hl_state_array *items; /* items[0]: the weights */
    int n;
};
/* In view, in which what it points to stays valid. Free with hl_state_list_free. */
enum hl_status hl_state_list(struct hl_trainer *t, struct hl_state_list *out,
                             struct hl_diag *diag) HL_MUST_CHECK;
void hl_state_list_free(struct hl_state_list *list);

/* This rank's part of all arrays of the list but the weights, in view. *joins_out: this rank was
 * not there, and what it must have of its own neither. */
enum hl_status hl_state_load(struct hl_trainer *t, const struct hl_state_list *list,
                             const struct hl_state_past *past, bool *joins_out,
                             struct hl_diag *diag) HL_MUST_CHECK;

/* Numbers of each rank that are no arrays: how far it is, and what the strategy counts. */
enum { HL_STATE_NUMBERS = 64 };
struct hl_state_numbers {
    char names[HL_STATE_NUMBERS][64];
    int64_t *at[HL_STATE_NUMBERS]; /* NULL: the number is `loss_sum`, a double */
    bool sums[HL_STATE_NUMBERS];   /* where the ranks are others, rank 0 takes the sum of all */
    double *loss_sum;
    int n;
};
void hl_state_numbers(struct hl_trainer *t, struct hl_state_numbers *out);
/* This rank's, [n]. */
void hl_state_numbers_now(const struct hl_state_numbers *numbers, double *out);

/* Piece by piece the arrays come to rank 0, in the order of the list: memory for one block.
 * Collective: rank 0 fetches (as a hl_checkpoint_source whose array i is items[i + 1]), the others
 * call finish alone; rank 0 calls it too, so that nobody waits when writing failed half-way. */
struct hl_state_source {
    struct hl_trainer *t;
    const struct hl_state_list *list; /* NULL: the weights alone */
    float *scratch;                   /* [room] */
    int64_t room;
    int item; /* with first and n: what is in scratch */
    int64_t first, n;
    struct hl_collective gather;
};
enum hl_status hl_state_source_open(struct hl_trainer *t, const struct hl_state_list *list,
                                    struct hl_state_source *s, struct hl_diag *diag) HL_MUST_CHECK;
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
