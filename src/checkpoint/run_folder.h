/* What lies in an output folder: complete checkpoints, broken ones, and leftovers of interrupted
 * saves.
 *
 *   checkpoint-N/              committed when it holds a manifest whose sizes are right
 *   .checkpoint-N.partial/     being written; never looked at
 *   .checkpoint-N.replaced/    the older checkpoint of the same step while the new one takes its
 * place: still good until checkpoint-N exists .checkpoint-N.removed/     being deleted latest,
 * .latest.partial    the newest one's name, for people and scripts */
#ifndef HALLEY_CHECKPOINT_RUN_FOLDER_H
#define HALLEY_CHECKPOINT_RUN_FOLDER_H

#include <stdbool.h>
#include <stdint.h>

#include "halley/log.h"
#include "halley/mem.h"
#include "halley/status.h"
#include "os/fs.h"

enum hl_entry_kind {
    HL_ENTRY_CHECKPOINT,
    HL_ENTRY_REPLACED,
    HL_ENTRY_PARTIAL,
    HL_ENTRY_REMOVED,
    HL_ENTRY_LATEST_PARTIAL
};

struct hl_entry {
    char name[64];
    enum hl_entry_kind kind;
    int64_t number; /* N of the name */
    bool complete;
    int64_t serial, step; /* of its manifest, when complete */
};

struct hl_run_folder {
    struct hl_mem *mem;
    struct hl_entry *entries; /* complete ones first, the newest in front */
    int n_entries, capacity;
    bool failed; /* while listing: memory */
};

/* A folder that does not exist is empty. Broken checkpoints are named in the log. */
enum hl_status hl_run_folder_scan(struct hl_mem *mem, struct hl_fs *fs, const char *output_dir,
                                  struct hl_run_folder *out, struct hl_log *log,
                                  struct hl_diag *diag) HL_MUST_CHECK;
void hl_run_folder_free(struct hl_run_folder *folder);

/* Delete a flat folder with its files, as far as possible; false: something stayed (errno). */
bool hl_folder_delete(struct hl_mem *mem, struct hl_fs *fs, const char *path);

#endif
