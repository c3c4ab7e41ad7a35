/* See folder.h. */
#include "train/folder.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

bool hl_is_folder(struct hl_fs *fs, const char *path) {
    return fs->size(fs, path) < 0 && errno == EISDIR;
}

bool hl_is_inside(const char *path, const char *folder) {
    size_t n = strlen(folder);
    while (n && folder[n - 1] == '/') n--;
    return n && !strncmp(path, folder, n) && path[n] == '/';
}

/* ---- whose files ---- */

static bool starts(const char *name, const char *prefix) {
    return !strncmp(name, prefix, strlen(prefix));
}

static bool is_ours(const char *name) {
    static const char *const files[] = {"metrics.jsonl", "samples.jsonl", "run.yaml", "run.json",
                                        "latest",        "report.html",   "runs"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (!strcmp(name, files[i])) return true;
    const char *number = starts(name, ".checkpoint-")  ? name + 12
                         : starts(name, "checkpoint-") ? name + 11
                                                       : "";
    return *number >= '0' && *number <= '9';
}

struct names {
    char list[256][256];
    int n;
    bool more;
};

static void visit(void *context, const char *name) {
    struct names *names = context;
    if (!strcmp(name, ".") || !strcmp(name, "..")) return;
    if (names->n == 256 || strlen(name) >= sizeof names->list[0]) {
        names->more = true;
        return;
    }
    memcpy(names->list[names->n++], name, strlen(name) + 1);
}

static bool holds_run(struct hl_fs *fs, const char *path) {
    static const char *const marks[] = {"metrics.jsonl", "latest", "run.yaml"};
    char file[HL_PATH_CAPACITY];
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        if (hl_path_join(file, path, marks[i]) && fs->size(fs, file) >= 0) return true;
    return false;
}

/* Files of one folder, then the folder. Checkpoints and runs/ hold no folders. A link to a folder
 * is only a name: what it points to stays. */
static int remove_flat(struct hl_fs *fs, const char *path) {
    if (fs->remove(fs, path) == 0) return 0;
    if (!hl_is_folder(fs, path)) return -1;
    struct names inner;
    do {
        inner.n = 0;
        inner.more = false;
        if (fs->list(fs, path, visit, &inner) < 0) return -1;
        for (int i = 0; i < inner.n; i++) {
            char file[HL_PATH_CAPACITY];
            if (!hl_path_join(file, path, inner.list[i]) || fs->remove(fs, file) < 0) return -1;
        }
    } while (inner.more && inner.n);
    return fs->remove(fs, path);
}

static enum hl_status remove_run(struct hl_fs *fs, const char *path, struct hl_diag *diag) {
    struct names names;
    do {
        names.n = 0;
        names.more = false;
        if (fs->list(fs, path, visit, &names) < 0)
            return hl_fail_at(diag, HL_E_IO, path, 0, 0, "%m");
        int removed = 0;
        for (int i = 0; i < names.n; i++) {
            char file[HL_PATH_CAPACITY];
            if (!is_ours(names.list[i])) continue;
            if (!hl_path_join(file, path, names.list[i]) || remove_flat(fs, file) < 0)
                return hl_fail_at(diag, HL_E_IO, file, 0, 0, "cannot be removed: %m");
            removed++;
        }
        if (!removed) break;
    } while (names.more);
    return HL_OK;
}

/* ---- making ---- */

enum hl_status hl_run_folder_make(struct hl_fs *fs, const char *path, struct hl_diag *diag) {
    char part[HL_PATH_CAPACITY];
    if (strlen(path) >= sizeof part)
        return hl_fail(diag, HL_E_USER, "output_dir: the path is too long");
    for (size_t i = 1;; i++) {
        if (path[i] != '/' && path[i]) continue;
        memcpy(part, path, i);
        part[i] = 0;
        if (fs->make_folder(fs, part) < 0 && errno != EEXIST && !hl_is_folder(fs, part))
            return hl_fail_at(diag, HL_E_IO, part, 0, 0,
                              "cannot be made: %m; choose another --output_dir");
        if (!path[i]) return HL_OK;
    }
}

enum hl_status hl_run_folder_check(struct hl_fs *fs, const char *path, bool may_be_used,
                                   struct hl_diag *diag) {
    if (!*path) return hl_fail(diag, HL_E_USER, "output_dir: empty; name a folder");
    if (fs->size(fs, path) >= 0)
        return hl_fail(diag, HL_E_USER, "output_dir: %s is a file; name a folder", path);
    if (may_be_used || !hl_is_folder(fs, path) || !holds_run(fs, path)) return HL_OK;
    return hl_fail(diag, HL_E_USER,
                   "output_dir: %s holds a run already; go on with --resume, start over with "
                   "--overwrite_output_dir, or name "
                   "another folder",
                   path);
}

enum hl_status hl_run_folder_lock(struct hl_fs *fs, const char *path, struct hl_lock *lock,
                                  struct hl_diag *diag) {
    char file[HL_PATH_CAPACITY], who[40] = "";
    long holder = 0;
    if (lock->file >= 0 || !hl_is_folder(fs, path) || !hl_path_join(file, path, ".lock"))
        return HL_OK;
    if (hl_lock_take(lock, file, &holder) != HL_E_AGAIN) return HL_OK;
    if (holder > 0) (void)snprintf(who, sizeof who, ", process %ld", holder);
    return hl_fail(diag, HL_E_USER,
                   "output_dir: another training writes to %s%s; wait for it, stop it, or name "
                   "another folder",
                   path, who);
}

enum hl_status hl_run_folder_prepare(struct hl_fs *fs, const char *path, bool going_on,
                                     bool overwrite, struct hl_diag *diag) {
    enum hl_status status = hl_run_folder_check(fs, path, going_on || overwrite, diag);
    if (status != HL_OK) return status;
    if (!hl_is_folder(fs, path)) return hl_run_folder_make(fs, path, diag);
    return going_on || !holds_run(fs, path) ? HL_OK : remove_run(fs, path, diag);
}

enum hl_status hl_run_folder_write(struct hl_fs *fs, const char *folder, const char *name,
                                   const char *text, struct hl_diag *diag) {
    char path[HL_PATH_CAPACITY], aside[HL_PATH_CAPACITY];
    char hidden[300];
    (void)snprintf(hidden, sizeof hidden, ".%s.part", name);
    if (!hl_path_join(path, folder, name) || !hl_path_join(aside, folder, hidden))
        return hl_fail(diag, HL_E_USER, "output_dir: the path is too long");
    int file = fs->open(fs, aside, HL_FS_CREATE);
    if (file < 0) return hl_fail_at(diag, HL_E_IO, aside, 0, 0, "cannot be written: %m");
    int bad = hl_fs_write_all(fs, file, text, strlen(text)) < 0 || fs->sync(fs, file) < 0;
    if (fs->close(fs, file) < 0 || bad || fs->rename(fs, aside, path) < 0)
        return hl_fail_at(diag, HL_E_IO, path, 0, 0, "cannot be written: %m");
    return HL_OK;
}
