/* A small model with weights and state, as a checkpoint to save and to compare with. */
#ifndef HALLEY_TESTS_CHECKPOINT_FIXTURE_H
#define HALLEY_TESTS_CHECKPOINT_FIXTURE_H

#include "halley/checkpoint.h"
#include "os/fs.h"

struct fixture {
    struct hl_model *model;
    float *params, *m;
    struct hl_saved_array arrays[2];
    struct hl_checkpoint checkpoint;
};

/* "gpt2", "llama", "llama-tied", "llama-scaled", "qwen2", "qwen2-tied", "qwen3", "qwen3-tied" */
struct hl_model_config fixture_config(const char *kind);
void fixture_set_up(struct fixture *f, const char *kind, uint64_t seed);
void fixture_tear_down(struct fixture *f);
/* Open path: everything in it must be what the fixture holds. */
void fixture_check(const struct fixture *f, struct hl_fs *fs, const char *path);

#endif
