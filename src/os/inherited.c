/* See inherited.h. */
#include "os/inherited.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static enum hl_status map(int fd, size_t bytes, struct hl_inherited *out, struct hl_diag *diag) {
    void *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED)
        return hl_fail(diag, HL_E_IO, "%zu bytes shared with child processes: %m", bytes);
    *out = (struct hl_inherited){data, bytes, fd};
    return HL_OK;
}

enum hl_status hl_inherited_new(size_t bytes, struct hl_inherited *out, struct hl_diag *diag) {
    int fd = memfd_create("halley", MFD_CLOEXEC);
    enum hl_status status = HL_OK;
    if (fd < 0 || ftruncate(fd, (off_t)bytes))
        status = hl_fail(diag, HL_E_IO, "%zu bytes shared with child processes: %m", bytes);
    if (status == HL_OK) status = map(fd, bytes, out, diag);
    if (status != HL_OK && fd >= 0) (void)close(fd);
    return status;
}

enum hl_status hl_inherited_open(int fd, size_t bytes, struct hl_inherited *out,
                                 struct hl_diag *diag) {
    struct stat info;
    if (fstat(fd, &info) || !S_ISREG(info.st_mode) || (size_t)info.st_size < bytes)
        return hl_fail(diag, HL_E_FORMAT, "descriptor %d is no memory shared with a parent", fd);
    return map(fd, bytes, out, diag);
}

void hl_inherited_close(struct hl_inherited *shared) {
    if (!shared->data) return;
    (void)munmap(shared->data, shared->bytes);
    (void)close(shared->fd);
    *shared = (struct hl_inherited){.data = NULL};
}
