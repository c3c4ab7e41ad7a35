/* The checkpoint that a run goes on from, for machines that do not have it: each has its own disk,
 * and rank 0 wrote on one of them. */
#ifndef HALLEY_TRAIN_FETCH_H
#define HALLEY_TRAIN_FETCH_H

#include "halley/collective.h"
#include "halley/mem.h"
#include "halley/status.h"
#include "os/fs.h"

/* Collective. path: rank 0's checkpoint, the same text on all; becomes the one that this rank
 * reads: that path where a whole checkpoint is there, else the folder of the same name in
 * output_dir. Where there is none either, rank 0 sends its files and one rank of the machine writes
 * them into output_dir, whole or not at all. What is there and is another one, or rank 0's folder
 * without a manifest, is left to those who open it. n_sent_out: how many copies were written.
 * errors HL_E_IO: this rank cannot write, or rank 0 read; HL_E_FORMAT: a file of rank 0's is
 * damaged; HL_E_PEER */
enum hl_status hl_fetch_checkpoint(struct hl_mem *mem, struct hl_fs *fs, struct hl_group *group,
                                   const char *output_dir, char path[HL_PATH_CAPACITY],
                                   int *n_sent_out, struct hl_diag *diag) HL_MUST_CHECK;

#endif
