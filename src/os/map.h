/* A file's bytes in the address space, read-only: pages are read when touched and may be dropped by
 * the kernel, so a mapped shard costs no memory of ours. A file that is cut short while it is
 * mapped ends the process (SIGBUS): shards are replaced by rename, never changed in place. */
#ifndef HALLEY_OS_MAP_H
#define HALLEY_OS_MAP_H

#include <stddef.h>

#include "halley/status.h"

struct hl_map {
    const void *data; /* NULL when the file is empty or nothing is mapped */
    size_t n_bytes;
};

/* errors HL_E_IO: it cannot be opened; HL_E_USER: it is a folder. */
enum hl_status hl_map_open(const char *path, struct hl_map *out,
                           struct hl_diag *diag) HL_MUST_CHECK;
void hl_map_close(
    struct hl_map *map); /* zeroed maps may be closed, and closing twice is harmless */

#endif
