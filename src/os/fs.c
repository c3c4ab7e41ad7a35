/* Files through the system's calls, and the loops that every caller of them needs. See os/fs.h. */
#include "os/fs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static int os_open(struct hl_fs *fs, const char *path, enum hl_fs_mode mode) {
    (void)fs;
    int flags = mode == HL_FS_READ ? O_RDONLY : O_WRONLY | O_CREAT | O_TRUNC;
    int file;
    do file = open(path, flags | O_CLOEXEC, 0666);
    while (file < 0 && errno == EINTR);
    return file;
}

static int os_close(struct hl_fs *fs, int file) {
    (void)fs;
    return close(file);
}

static int64_t os_read(struct hl_fs *fs, int file, void *data, size_t n, int64_t offset) {
    (void)fs;
    return pread(file, data, n, offset);
}

static int64_t os_write(struct hl_fs *fs, int file, const void *data, size_t n) {
    (void)fs;
    return write(file, data, n);
}

static int os_sync(struct hl_fs *fs, int file) {
    (void)fs;
    return fsync(file);
}

static int64_t os_size(struct hl_fs *fs, const char *path) {
    (void)fs;
    struct stat info;
    if (stat(path, &info)) return -1;
    if (S_ISREG(info.st_mode)) return info.st_size;
    errno = S_ISDIR(info.st_mode) ? EISDIR : EINVAL;
    return -1;
}

static int os_make_folder(struct hl_fs *fs, const char *path) {
    (void)fs;
    return mkdir(path, 0777);
}

/* Some network and FUSE file systems cannot sync a folder (EINVAL): then there is nothing more to
 * be had. */
static int os_sync_folder(struct hl_fs *fs, const char *path) {
    (void)fs;
    int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) return -1;
    int failed = fsync(folder) && errno != EINVAL ? errno : 0;
    (void)close(folder);
    errno = failed;
    return failed ? -1 : 0;
}

static int os_rename(struct hl_fs *fs, const char *from, const char *to) {
    (void)fs;
    return rename(from, to);
}

static int os_remove(struct hl_fs *fs, const char *path) {
    (void)fs;
    return remove(path);
}

static int os_list(struct hl_fs *fs, const char *path,
                   void (*visit)(void *context, const char *name), void *context) {
    (void)fs;
    DIR *folder = opendir(path);
    if (!folder) return -1;
    struct dirent *entry;
    while (errno = 0, (entry = readdir(folder)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            visit(context, entry->d_name);
    int failed = errno;
    (void)closedir(folder);
    errno = failed;
    return failed ? -1 : 0;
}

static int64_t os_free_bytes(struct hl_fs *fs, const char *path) {
    (void)fs;
    struct statvfs info;
    if (statvfs(path, &info)) return -1;
    return (int64_t)(info.f_bavail * info.f_frsize);
}

struct hl_fs *hl_fs_os(void) {
    static struct hl_fs fs = {.open = os_open,
                              .close = os_close,
                              .read = os_read,
                              .write = os_write,
                              .sync = os_sync,
                              .size = os_size,
                              .make_folder = os_make_folder,
                              .sync_folder = os_sync_folder,
                              .rename = os_rename,
                              .remove = os_remove,
                              .list = os_list,
                              .free_bytes = os_free_bytes};
    return &fs;
}

bool hl_path_join(char out[HL_PATH_CAPACITY], const char *folder, const char *name) {
    size_t n = strlen(folder);
    const char *slash = n && folder[n - 1] != '/' ? "/" : "";
    int written = snprintf(out, HL_PATH_CAPACITY, "%s%s%s", folder, slash, name);
    return written >= 0 && written < HL_PATH_CAPACITY;
}

int hl_fs_write_all(struct hl_fs *fs, int file, const void *data, size_t n) {
    const char *at = data;
    while (n) {
        int64_t written = fs->write(fs, file, at, n);
        if (written < 0 && errno == EINTR) continue;
        if (written == 0) errno = ENOSPC;
        if (written <= 0) return -1;
        at += written;
        n -= (size_t)written;
    }
    return 0;
}

enum hl_status hl_fs_read_exact(struct hl_fs *fs, int file, const char *path, void *data, size_t n,
                                int64_t offset, struct hl_diag *diag) {
    char *at = data;
    while (n) {
        int64_t got = fs->read(fs, file, at, n, offset);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return hl_fail_at(diag, HL_E_IO, path, 0, 0, "cannot read: %m");
        if (got == 0)
            return hl_fail_at(diag, HL_E_FORMAT, path, 0, 0,
                              "ends at byte %lld, %zu bytes too early", (long long)offset, n);
        at += got;
        offset += got;
        n -= (size_t)got;
    }
    return HL_OK;
}

enum hl_status hl_fs_read_text(struct hl_mem *mem, struct hl_fs *fs, const char *path, size_t limit,
                               char **out, size_t *n_out, struct hl_diag *diag) {
    int64_t size = fs->size(fs, path);
    if (size < 0) return hl_fail_at(diag, HL_E_IO, path, 0, 0, "cannot read: %m");
    if ((uint64_t)size > limit)
        return hl_fail_at(diag, HL_E_FORMAT, path, 0, 0,
                          "%lld bytes; at most %zu are expected here", (long long)size, limit);
    char *text = hl_alloc(mem, (size_t)size + 1, 1);
    if (!text) return hl_fail_memory(diag, (unsigned long long)size + 1, path);
    int file = fs->open(fs, path, HL_FS_READ);
    enum hl_status status = HL_OK;
    if (file < 0) status = hl_fail_at(diag, HL_E_IO, path, 0, 0, "cannot open: %m");
    else {
        status = hl_fs_read_exact(fs, file, path, text, (size_t)size, 0, diag);
        (void)fs->close(fs, file);
    }
    if (status) {
        hl_free(mem, text);
        return status;
    }
    *out = text;
    if (n_out) *n_out = (size_t)size;
    return HL_OK;
}
