/* How many micro-batches each rank made in each round of a run that decided so by itself: the
 * record (rounds.jsonl) read back, to make the same run again. */
#ifndef HALLEY_TRAIN_ROUNDS_H
#define HALLEY_TRAIN_ROUNDS_H

#include "halley/mem.h"
#include "halley/status.h"

struct hl_rounds;

/* errors HL_E_IO; HL_E_FORMAT with file and line: no such record; HL_E_USER: of another number of
 * ranks. Free with hl_rounds_free. */
enum hl_status hl_rounds_read(struct hl_mem *mem, const char *path, int n_ranks,
                              struct hl_rounds **out, struct hl_diag *diag) HL_MUST_CHECK;
void hl_rounds_free(struct hl_rounds *rounds);
/* Micro-batches of a rank in step `step` (from 1), until ROUND and after it; 0: not in the record.
 */
void hl_rounds_of(const struct hl_rounds *rounds, int64_t step, int rank, int64_t *until_out,
                  int64_t *after_out);

#endif
