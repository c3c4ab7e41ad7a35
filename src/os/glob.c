/* glob(3) with a fixed order. See glob.h. */
#include "os/glob.h"

#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum hl_status hl_paths_add(struct hl_paths *paths, const char *path, struct hl_diag *diag) {
    if (paths->n == paths->capacity) {
        size_t capacity = paths->capacity ? 2 * paths->capacity : 16;
        char **items = hl_realloc(paths->mem, paths->items, capacity, sizeof *items);
        if (!items) return hl_fail_memory(diag, capacity * sizeof *items, "a list of files");
        paths->items = items;
        paths->capacity = capacity;
    }
    char *copy = hl_strdup(paths->mem, path);
    if (!copy) return hl_fail_memory(diag, strlen(path) + 1, "a list of files");
    paths->items[paths->n++] = copy;
    return HL_OK;
}

void hl_paths_free(struct hl_paths *paths) {
    if (!paths->mem) return;
    for (size_t i = 0; i < paths->n; i++) hl_free(paths->mem, paths->items[i]);
    hl_free(paths->mem, paths->items);
    *paths = (struct hl_paths){0};
}

static int by_bytes(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

enum hl_status hl_glob(struct hl_paths *paths, const char *pattern, struct hl_diag *diag) {
    if (!access(pattern, F_OK) || (!strpbrk(pattern, "*?[") && pattern[0] != '~'))
        return hl_paths_add(paths, pattern, diag);
    glob_t found;
    int result = glob(pattern, GLOB_NOSORT | GLOB_TILDE, NULL, &found);
    if (result == GLOB_NOMATCH)
        return hl_fail(diag, HL_E_USER, "no file matches '%s'; look with: ls %s", pattern, pattern);
    if (result == GLOB_NOSPACE) return hl_fail_memory(diag, 0, "a list of files");
    if (result) return hl_fail_at(diag, HL_E_IO, pattern, 0, 0, "cannot read the folder: %m");
    qsort(found.gl_pathv, found.gl_pathc, sizeof *found.gl_pathv, by_bytes);
    enum hl_status status = HL_OK;
    for (size_t i = 0; i < found.gl_pathc && !status; i++)
        status = hl_paths_add(paths, found.gl_pathv[i], diag);
    globfree(&found);
    return status;
}
