/* What the files of the pool share. */
#ifndef HALLEY_MEMORY_POOL_INTERNAL_H
#define HALLEY_MEMORY_POOL_INTERNAL_H

#include "memory/pool.h"

struct hl_pool *hl_pool_new(struct hl_mem *mem, struct hl_diag *diag); /* NULL: no memory */
void hl_pool_unmap(struct hl_pool *p);
enum hl_status hl_pool_too_long(const char *address, struct hl_diag *diag);
/* p->address from what a user wrote; a new name for NULL. */
enum hl_status hl_pool_find_address(struct hl_pool *p, const char *address,
                                    struct hl_diag *diag) HL_MUST_CHECK;
/* Device 0 last: whoever finds it valid finds the others valid. */
void hl_pool_write_heads(struct hl_pool *p);
/* HL_E_USER: somebody has it, and who. */
enum hl_status hl_pool_take_lock(struct hl_pool *p, struct hl_diag *diag) HL_MUST_CHECK;
/* Before a file of so many bytes is made: its file system and the machine have the room.
 * what    begins a sentence: "the pool"
 * less    how to need less of the machine's memory
 * errors  HL_E_IO, with the size that is needed */
enum hl_status hl_pool_check_room(const char *path, uint64_t needed, const char *what,
                                  const char *less, struct hl_diag *diag) HL_MUST_CHECK;
void hl_pool_remove_snapshot(const char *folder);
/* dev0 ... , beds, snapshot, lock and the folder itself. */
void hl_pool_remove_folder(const char *folder, uint32_t n_devices);

#endif
