/* One training by several ranks for the laws suite: what was run, and what each rank saw of it. */
#ifndef HALLEY_TESTS_LAW_RUNS_H
#define HALLEY_TESTS_LAW_RUNS_H

#include "support/meeting.h"
#include "support/trainer_fixture.h"

enum { LAW_RANKS = 8, LAW_STEPS = 100, LAW_FLOATS = 1 << 17, LAW_BLOCKS = 16, LAW_WHY = 700 };

struct law_plan {
    const struct world *world; /* its options name the strategy */
    const char *wire;          /* NULL: threads */
    const char *wrappers;
    int n_ranks, n_steps;
    size_t part_bytes;       /* of the wire; 0: 4096 */
    const char *resume_from; /* a checkpoint; NULL: start anew */
    const char *folder;      /* output_dir of checkpoints */
    bool save, evaluate;     /* before the first step and after each one */
    bool save_at_end;
    int lost;                          /* the rank that a fault of `wrappers` takes away */
    int64_t timeout_ns;                /* of the group; 0: 30 s */
    int failing_rank;                  /* with fail_at: whose allocation */
    long fail_at;                      /* of a trainer's making; 0: none */
    bool only_make;                    /* no steps, nothing is looked at */
    const struct hl_strategy *instead; /* of the one that is named, with its state: one that breaks
                                          a law */
};

/* Moments of a run, for what is counted: before the first step, after step i, after the last save
 * when nothing is in flight any more. */
enum { LAW_AT_START, LAW_AT_SAVED = LAW_STEPS + 1, LAW_MOMENTS };
struct law_count {
    long taken;         /* allocations so far, by group, trainer and wire */
    int64_t sent_bytes; /* as a count wrapper sees them; 0 without one */
    int64_t operations; /* commits and releases, as a fault wrapper counts them; dito */
};

struct law_rank {
    enum hl_status status; /* of the first call that failed */
    struct hl_diag diag;
    int n_done; /* steps */
    double loss[LAW_STEPS], norm[LAW_STEPS], eval_loss[LAW_STEPS + 1];
    int n_blocks;
    uint64_t weights[LAW_BLOCKS]; /* hash of what compute reads of each block, in view */
    uint64_t own; /* hash of the arrays outside the engine and the numbers that a checkpoint holds
                     for this rank or for all alike */
    struct hl_strategy_need need;
    int64_t n_parameters;
    struct law_count counts[LAW_MOMENTS];
    long n_live; /* allocations that were not given back, when all is closed */
};

struct law_run {
    struct law_plan plan;
    bool ran;        /* ranks met and came to an end */
    char why[500];   /* when not */
    unsigned killed; /* bits of ranks */
    struct law_rank ranks[LAW_RANKS];
    struct hl_mem_probe probes[LAW_RANKS]; /* of each rank's wire, group and trainer */
    int64_t n_state;
    int n_arrays;
    uint64_t saved_weights[LAW_BLOCKS]; /* hash of what compute would read of `state` */
    float state[LAW_FLOATS]; /* weights, then each optimizer slot, of all ranks together; empty
                                where they do not fit */
};

/* Any thread may call it. NULL: no memory. Free with law_run_free. */
struct law_run *law_run(const struct law_plan *plan);
void law_run_free(struct law_run *run);
/* Ran, and no rank failed; else false with which one and why. */
bool law_run_is_good(const struct law_run *run, char why[LAW_WHY]);

/* "zero1 over count(threads), 3 ranks, accumulation 2, bf16" */
void law_run_name(const struct law_plan *plan, char *out, size_t capacity);

#endif
