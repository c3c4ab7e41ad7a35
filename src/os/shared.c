/* mmap of shared files and DAX devices. See shared.h. */
#include "os/shared.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "os/cgroup.h"
#include "os/futex.h"

enum { HUGETLBFS = 0x958458f6 };

enum hl_status hl_shared_room(const char *folder, struct hl_shared_room *out,
                              struct hl_diag *diag) {
    struct statfs info;
    if (statfs(folder, &info)) return hl_fail_at(diag, HL_E_IO, folder, 0, 0, "cannot look: %m");
    uint64_t block = (uint64_t)info.f_bsize;
    *out = (struct hl_shared_room){.known = info.f_blocks != 0,
                                   .free_bytes = (uint64_t)info.f_bavail * block,
                                   .total_bytes = (uint64_t)info.f_blocks * block,
                                   .page_bytes = 4096};
    if ((unsigned)info.f_type == (unsigned)HUGETLBFS) out->page_bytes = (size_t)info.f_bsize;
    return HL_OK;
}

static enum hl_status reserve_bytes(int file, const char *path, size_t n, struct hl_diag *diag) {
    int error;
    do error = posix_fallocate(file, 0, (off_t)n);
    while (error == EINTR);
    errno = error;
    if (error) return hl_fail_at(diag, HL_E_IO, path, 0, 0, "cannot reserve %zu bytes: %m", n);
    return HL_OK;
}

enum hl_status hl_shared_make(const char *path, size_t n_bytes, struct hl_diag *diag) {
    int file = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file < 0) return hl_fail_at(diag, HL_E_IO, path, 0, 0, "cannot make it: %m");
    enum hl_status status = HL_OK;
    if (ftruncate(file, (off_t)n_bytes))
        status = hl_fail_at(diag, HL_E_IO, path, 0, 0, "cannot make it %zu bytes: %m", n_bytes);
    else status = reserve_bytes(file, path, n_bytes, diag);
    (void)close(file);
    if (status != HL_OK) (void)unlink(path);
    return status;
}

/* Of a DAX device, as the kernel tells; 0: it does not. */
static size_t device_bytes(const struct stat *info) {
    char path[96], text[64];
    (void)snprintf(path, sizeof path, "/sys/dev/char/%u:%u/size", major(info->st_rdev),
                   minor(info->st_rdev));
    return hl_read_small(path, text, sizeof text) ? (size_t)strtoull(text, NULL, 10) : 0;
}

static enum hl_status measure(int file, const char *path, struct hl_shared *out,
                              struct hl_diag *diag) {
    struct stat info;
    if (fstat(file, &info)) return hl_fail_at(diag, HL_E_IO, path, 0, 0, "cannot look: %m");
    out->device = S_ISCHR(info.st_mode);
    if (S_ISREG(info.st_mode)) out->n_bytes = (size_t)info.st_size;
    else if (out->device) out->n_bytes = device_bytes(&info);
    else
        return hl_fail_at(diag, HL_E_USER, path, 0, 0,
                          "is neither a file nor a DAX device (/dev/daxX.Y)");
    if (out->n_bytes) return HL_OK;
    return hl_fail_at(diag, HL_E_USER, path, 0, 0,
                      out->device ? "is no memory device: the kernel tells no size for it"
                                  : "is empty");
}

static enum hl_status map_both(int file, const char *path, struct hl_shared *out,
                               struct hl_diag *diag) {
    void *w = mmap(NULL, out->n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    void *r = w == MAP_FAILED ? w : mmap(NULL, out->n_bytes, PROT_READ, MAP_SHARED, file, 0);
    if (w == MAP_FAILED || r == MAP_FAILED) {
        int saved = errno;
        if (w != MAP_FAILED) (void)munmap(w, out->n_bytes);
        errno = saved;
        return hl_fail_at(diag, HL_E_IO, path, 0, 0, "cannot map %zu bytes: %m", out->n_bytes);
    }
    (void)madvise(w, out->n_bytes, MADV_HUGEPAGE); /* a kernel without them says so */
    (void)madvise(r, out->n_bytes, MADV_HUGEPAGE);
    out->write = w;
    out->read = r;
    return HL_OK;
}

static int open_shared(const char *path, struct hl_diag *diag) {
    int file = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (file < 0) (void)hl_fail_at(diag, HL_E_IO, path, 0, 0, "cannot open: %m");
    return file;
}

enum hl_status hl_shared_reserve(const char *path, struct hl_diag *diag) {
    struct hl_shared shared = {0};
    int file = open_shared(path, diag);
    if (file < 0) return HL_E_IO;
    enum hl_status status = measure(file, path, &shared, diag);
    if (status == HL_OK && !shared.device) status = reserve_bytes(file, path, shared.n_bytes, diag);
    (void)close(file);
    return status;
}

enum hl_status hl_shared_open(const char *path, struct hl_shared *out, struct hl_diag *diag) {
    struct hl_shared shared = {0};
    int file = open_shared(path, diag);
    if (file < 0) return HL_E_IO;
    enum hl_status status = measure(file, path, &shared, diag);
    if (status == HL_OK) status = map_both(file, path, &shared, diag);
    (void)close(file);
    if (status == HL_OK) *out = shared;
    return status;
}

void hl_shared_close(struct hl_shared *s) {
    if (s->write) (void)munmap(s->write, s->n_bytes);
    if (s->read) (void)munmap((void *)(uintptr_t)s->read, s->n_bytes);
    *s = (struct hl_shared){0};
}

/* Whoever only asks whether it is free holds it for an instant. */
static bool lock_patiently(int file) {
    for (int i = 0; i < 10; i++) {
        if (!flock(file, LOCK_EX | LOCK_NB)) return true;
        if (errno != EWOULDBLOCK) return false;
        hl_sleep_ns(5000000);
    }
    errno = EWOULDBLOCK;
    return false;
}

int hl_shared_lock(const char *path, bool make) {
    int file = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | (make ? O_CREAT : 0), 0600);
    if (file < 0 || lock_patiently(file)) return file;
    int saved = errno;
    (void)close(file);
    errno = saved;
    return -1;
}

void hl_shared_unlock(int lock) {
    if (lock >= 0) (void)close(lock);
}

bool hl_shared_lock_is_free(const char *path) {
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (file < 0) return errno == ENOENT || errno == ENOTDIR;
    bool is_free = !flock(file, LOCK_SH | LOCK_NB);
    (void)close(file);
    return is_free;
}
