/* A file that only grows. Each record is one write, unbuffered, so that `tail -f` and TensorBoard
 * see it at once; after a short write the file is cut back to its last whole record. */
#include "report/append.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum hl_status hl_append_open(struct hl_append *file, struct hl_mem *mem, const char *path,
                              int64_t size, bool exclusive, struct hl_diag *diag) {
    *file = (struct hl_append){.fd = -1, .mem = mem};
    file->path = hl_strdup(mem, path);
    if (!file->path) return hl_fail_memory(diag, 1, "a path");
    file->fd =
        open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (exclusive ? O_EXCL : 0), 0666);
    struct stat info;
    if (file->fd < 0 || fstat(file->fd, &info)) {
        enum hl_status status = hl_fail(
            diag, HL_E_IO, "cannot write %s: %m; is the folder there and yours to write?", path);
        hl_append_close(file);
        return status;
    }
    file->size = info.st_size < size ? info.st_size : size;
    if (file->size == info.st_size || ftruncate(file->fd, file->size) == 0) return HL_OK;
    enum hl_status status =
        hl_fail(diag, HL_E_IO, "cannot cut %s to %lld bytes: %m", path, (long long)file->size);
    hl_append_close(file);
    return status;
}

enum hl_status hl_append_record(struct hl_append *file, const void *bytes, size_t n,
                                struct hl_diag *diag) {
    const char *from = bytes;
    for (size_t left = n; left;) {
        ssize_t done = write(file->fd, from, left);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) {
            if (!done) errno = ENOSPC;
            enum hl_status status = hl_fail(diag, HL_E_IO, "cannot write %s: %m", file->path);
            if (left != n && ftruncate(file->fd, file->size)) return status;
            return status;
        }
        from += done;
        left -= (size_t)done;
    }
    file->size += (int64_t)n;
    return HL_OK;
}

enum hl_status hl_append_sync(struct hl_append *file, struct hl_diag *diag) {
    /* EINVAL: a pipe or a device, where there is nothing to sync */
    struct stat info;
    if (file->fd >= 0 && !fstat(file->fd, &info) && info.st_nlink == 0)
        return hl_fail(diag, HL_E_IO,
                       "%s was removed while it was being written; what follows is lost",
                       file->path);
    if (file->fd >= 0 && fsync(file->fd) && errno != EINVAL)
        return hl_fail(diag, HL_E_IO, "cannot sync %s: %m", file->path);
    return HL_OK;
}

void hl_append_close(struct hl_append *file) {
    if (file->fd >= 0) (void)close(file->fd);
    if (file->mem) hl_free(file->mem, file->path);
    *file = (struct hl_append){.fd = -1};
}
