/* mmap of whole files. See map.h. */
#include "os/map.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static enum hl_status map_descriptor(int file, const char *path, struct hl_map *out,
                                     struct hl_diag *diag) {
    struct stat info;
    if (fstat(file, &info)) return hl_fail_at(diag, HL_E_IO, path, 0, 0, "cannot look at it: %m");
    if (S_ISDIR(info.st_mode))
        return hl_fail_at(diag, HL_E_USER, path, 0, 0, "is a folder where a file is needed");
    if (!S_ISREG(info.st_mode))
        return hl_fail_at(diag, HL_E_USER, path, 0, 0,
                          "is not a regular file, so it cannot be mapped");
    struct hl_map map = {NULL, (size_t)info.st_size};
    if (map.n_bytes) {
        void *data = mmap(NULL, map.n_bytes, PROT_READ, MAP_PRIVATE, file, 0);
        if (data == MAP_FAILED)
            return hl_fail_at(diag, HL_E_IO, path, 0, 0, "cannot map %zu bytes: %m", map.n_bytes);
        map.data = data;
    }
    *out = map;
    return HL_OK;
}

enum hl_status hl_map_open(const char *path, struct hl_map *out, struct hl_diag *diag) {
    int file =
        open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe without a writer must not wait */
    if (file < 0) return hl_fail_at(diag, HL_E_IO, path, 0, 0, "cannot open: %m");
    enum hl_status status = map_descriptor(file, path, out, diag);
    close(file);
    return status;
}

void hl_map_close(struct hl_map *map) {
    if (map->data) munmap((void *)(uintptr_t)map->data, map->n_bytes);
    *map = (struct hl_map){0};
}
