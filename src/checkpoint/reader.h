/* An opened checkpoint folder, as the files of this room see it. */
#ifndef HALLEY_CHECKPOINT_READER_H
#define HALLEY_CHECKPOINT_READER_H

#include "checkpoint/manifest.h"
#include "checkpoint/safetensors.h"
#include "halley/checkpoint.h"

struct hl_checkpoint_reader {
    struct hl_mem *mem;
    struct hl_fs *fs;
    struct hl_log *log; /* borrowed, may be NULL */
    char *folder;
    struct hl_model_config config;
    struct hl_st_file
        *files; /* the weights; they stay open, so that a removal in between does no harm */
    int n_files;
    bool has_state;
    struct hl_st_file state;
    char *loop_json, *made_with_json, *run_yaml; /* NULL: none */
};

#endif
