/* Files that a pattern names. */
#ifndef HALLEY_OS_GLOB_H
#define HALLEY_OS_GLOB_H

#include <stddef.h>

#include "halley/mem.h"
#include "halley/status.h"

struct hl_paths {
    struct hl_mem *mem;
    char **items;
    size_t n, capacity;
};

/* Append what the pattern matches (*, ?, [..], a leading ~), sorted by byte values, so that the
 * order is the same under any locale. A name that exists is taken as it is, even when it holds such
 * characters; a name without them is appended whether it exists or not.
 * errors  HL_E_USER: a pattern that matches nothing */
enum hl_status hl_glob(struct hl_paths *paths, const char *pattern,
                       struct hl_diag *diag) HL_MUST_CHECK;
enum hl_status hl_paths_add(struct hl_paths *paths, const char *path,
                            struct hl_diag *diag) HL_MUST_CHECK;
void hl_paths_free(struct hl_paths *paths);

#endif
