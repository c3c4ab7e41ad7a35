/* An allocator whose blocks lie where a folder is: in /dev/shm, on hugetlbfs, on a file system of a
 * memory pool. For large state that is seldom touched. A block is a file that is mapped and removed
 * at once, so nothing stays behind, however the process ends. */
#ifndef HALLEY_MEMORY_PLACED_H
#define HALLEY_MEMORY_PLACED_H

#include "halley/log.h"
#include "halley/mem.h"

struct hl_placed;
/* The folder must be there and hold files. log: why a block could not be had; may be NULL.
 * errors HL_E_IO; free with hl_placed_free, after all blocks were given back */
enum hl_status hl_placed_new(struct hl_mem *mem, const char *folder, struct hl_log *log,
                             struct hl_placed **out, struct hl_diag *diag) HL_MUST_CHECK;
void hl_placed_free(struct hl_placed *placed);
struct hl_mem *hl_placed_mem(struct hl_placed *placed);

#endif
