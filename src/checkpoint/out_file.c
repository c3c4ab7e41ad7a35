/* Writing with a running checksum; explaining why a disk refused. See out_file.h. */
#include "checkpoint/out_file.h"

#include <errno.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "halley/text_number.h"

enum { PIECE = 4 << 20 };

enum hl_status hl_out_explain(struct hl_fs *fs, const char *path, const char *verb,
                              struct hl_diag *diag) {
    int reason = errno;
    if (reason == ENOSPC || reason == EDQUOT || reason == EFBIG) {
        char folder[HL_PATH_CAPACITY], room[32] = "unknown";
        size_t n = strlen(path);
        if (n >= sizeof folder) n = sizeof folder - 1;
        memcpy(folder, path, n);
        folder[n] = 0;
        char *slash = strrchr(folder, '/');
        if (slash) *slash = 0;
        int64_t bytes = fs->free_bytes(fs, slash ? (folder[0] ? folder : "/") : ".");
        if (bytes >= 0) hl_print_bytes(room, sizeof room, (uint64_t)bytes);
        errno = reason;
        return hl_fail_at(diag, HL_E_IO, path, 0, 0,
                          "cannot %s: %m (%s free there); free some space, lower save_total_limit "
                          "or choose another "
                          "output_dir",
                          verb, room);
    }
    errno = reason;
    if (reason == EROFS || reason == EACCES || reason == EPERM)
        return hl_fail_at(diag, HL_E_IO, path, 0, 0,
                          "cannot %s: %m; make the folder writable or choose another output_dir",
                          verb);
    if (reason == EIO)
        return hl_fail_at(diag, HL_E_IO, path, 0, 0,
                          "cannot %s: %m; the disk reports errors: look at the system log and "
                          "choose another output_dir",
                          verb);
    return hl_fail_at(diag, HL_E_IO, path, 0, 0, "cannot %s: %m", verb);
}

enum hl_status hl_out_open(struct hl_mem *mem, struct hl_fs *fs, const char *path,
                           struct hl_out_file *out, struct hl_diag *diag) {
    *out = (struct hl_out_file){.mem = mem, .fs = fs, .path = path, .handle = -1};
    out->hash = hl_alloc(mem, 1, sizeof(XXH3_state_t));
    if (!out->hash) return hl_fail_memory(diag, sizeof(XXH3_state_t), "a checksum");
    (void)XXH3_64bits_reset(out->hash);
    out->handle = fs->open(fs, path, HL_FS_CREATE);
    if (out->handle >= 0) return HL_OK;
    enum hl_status status = hl_out_explain(fs, path, "create the file", diag);
    hl_out_abandon(out);
    return status;
}

enum hl_status hl_out_write(struct hl_out_file *out, const void *data, size_t n,
                            struct hl_diag *diag) {
    const char *at = data;
    while (n) {
        size_t piece = n < PIECE ? n : PIECE;
        if (hl_fs_write_all(out->fs, out->handle, at, piece))
            return hl_out_explain(out->fs, out->path, "write", diag);
        (void)XXH3_64bits_update(out->hash, at, piece);
        out->bytes += (int64_t)piece;
        at += piece;
        n -= piece;
    }
    return HL_OK;
}

enum hl_status hl_out_commit(struct hl_out_file *out, uint64_t *xxh3_out, struct hl_diag *diag) {
    enum hl_status status = HL_OK;
    if (out->fs->sync(out->fs, out->handle))
        status = hl_out_explain(out->fs, out->path, "bring it to the disk", diag);
    if (out->fs->close(out->fs, out->handle) && !status)
        status = hl_out_explain(out->fs, out->path, "close", diag);
    out->handle = -1;
    if (!status) *xxh3_out = XXH3_64bits_digest(out->hash);
    hl_out_abandon(out);
    return status;
}

void hl_out_abandon(struct hl_out_file *out) {
    if (out->handle >= 0) (void)out->fs->close(out->fs, out->handle);
    out->handle = -1;
    hl_free(out->mem, out->hash);
    out->hash = NULL;
}

uint64_t hl_text_xxh3(const void *data, size_t n) { return XXH3_64bits(data, n); }

static enum hl_status hash_handle(struct hl_fs *fs, int file, const char *path, void *piece,
                                  size_t room, XXH3_state_t *hash, struct hl_diag *diag) {
    for (int64_t offset = 0;;) {
        int64_t got = fs->read(fs, file, piece, room, offset);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return hl_fail_at(diag, HL_E_IO, path, 0, 0, "cannot read: %m");
        if (got == 0) return HL_OK;
        (void)XXH3_64bits_update(hash, piece, (size_t)got);
        offset += got;
    }
}

enum hl_status hl_file_xxh3(struct hl_mem *mem, struct hl_fs *fs, const char *path, uint64_t *out,
                            struct hl_diag *diag) {
    int file = fs->open(fs, path, HL_FS_READ);
    if (file < 0) return hl_fail_at(diag, HL_E_IO, path, 0, 0, "cannot open: %m");
    int64_t bytes = fs->size(fs, path);
    size_t room = bytes > 0 && bytes < PIECE ? (size_t)bytes : PIECE;
    void *piece = hl_alloc(mem, room, 1);
    enum hl_status status;
    if (!piece) status = hl_fail_memory(diag, room, "reading a checkpoint");
    else {
        XXH3_state_t hash;
        (void)XXH3_64bits_reset(&hash);
        status = hash_handle(fs, file, path, piece, room, &hash, diag);
        if (!status) *out = XXH3_64bits_digest(&hash);
    }
    hl_free(mem, piece);
    (void)fs->close(fs, file);
    return status;
}
