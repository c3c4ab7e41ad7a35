/* Looking through an output folder. See run_folder.h. */
#include "checkpoint/run_folder.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/manifest.h"
#include "halley/checkpoint.h"

/* "checkpoint-123" followed by suffix; the canonical spelling only, so that one number has one
 * name. */
static bool numbered(const char *name, const char *prefix, const char *suffix,
                     int64_t *number_out) {
    size_t n = strlen(prefix);
    if (strncmp(name, prefix, n) != 0) return false;
    const char *digits = name + n;
    size_t n_digits = strspn(digits, "0123456789");
    if (n_digits == 0 || n_digits > 18 || (digits[0] == '0' && n_digits > 1)) return false;
    if (strcmp(digits + n_digits, suffix) != 0) return false;
    *number_out = strtoll(digits, NULL, 10);
    return true;
}

static bool classify(const char *name, struct hl_entry *out) {
    if (strlen(name) >= sizeof out->name) return false;
    *out = (struct hl_entry){0};
    strcpy(out->name, name);
    if (numbered(name, "checkpoint-", "", &out->number)) out->kind = HL_ENTRY_CHECKPOINT;
    else if (numbered(name, ".checkpoint-", ".replaced", &out->number))
        out->kind = HL_ENTRY_REPLACED;
    else if (numbered(name, ".checkpoint-", ".partial", &out->number)) out->kind = HL_ENTRY_PARTIAL;
    else if (numbered(name, ".checkpoint-", ".removed", &out->number)) out->kind = HL_ENTRY_REMOVED;
    else if (!strcmp(name, ".latest.partial")) out->kind = HL_ENTRY_LATEST_PARTIAL;
    else return false;
    return true;
}

static void collect(void *context, const char *name) {
    struct hl_run_folder *folder = context;
    struct hl_entry entry;
    if (folder->failed || !classify(name, &entry)) return;
    if (folder->n_entries == folder->capacity) {
        int capacity = folder->capacity ? folder->capacity * 2 : 16;
        struct hl_entry *grown =
            hl_realloc(folder->mem, folder->entries, (size_t)capacity, sizeof *grown);
        if (!grown) {
            folder->failed = true;
            return;
        }
        folder->entries = grown;
        folder->capacity = capacity;
    }
    folder->entries[folder->n_entries++] = entry;
}

static int newest_first(const void *a, const void *b) {
    const struct hl_entry *x = a, *y = b;
    if (x->complete != y->complete) return x->complete ? -1 : 1;
    if (x->serial != y->serial) return x->serial > y->serial ? -1 : 1;
    return strcmp(x->name, y->name);
}

static bool has_checkpoint(const struct hl_run_folder *folder, int64_t number) {
    for (int i = 0; i < folder->n_entries; i++)
        if (folder->entries[i].kind == HL_ENTRY_CHECKPOINT && folder->entries[i].number == number)
            return true;
    return false;
}

static enum hl_status examine(struct hl_run_folder *folder, struct hl_fs *fs,
                              const char *output_dir, struct hl_entry *entry, struct hl_log *log,
                              struct hl_diag *diag) {
    bool candidate = entry->kind == HL_ENTRY_CHECKPOINT ||
                     (entry->kind == HL_ENTRY_REPLACED && !has_checkpoint(folder, entry->number));
    if (!candidate) return HL_OK;
    char path[HL_PATH_CAPACITY];
    if (!hl_path_join(path, output_dir, entry->name))
        return hl_fail(diag, HL_E_USER, "%.200s: the path is too long", output_dir);
    struct hl_manifest *manifest = hl_alloc(folder->mem, 1, sizeof *manifest);
    if (!manifest) return hl_fail_memory(diag, sizeof *manifest, "a manifest");
    struct hl_diag why = {0};
    enum hl_status status = hl_manifest_read(folder->mem, fs, path, manifest, NULL, &why);
    if (status == HL_OK) {
        entry->complete = true;
        entry->serial = manifest->serial;
        entry->step = manifest->step;
    } else if (status == HL_END) {
        hl_log(log, HL_LOG_WARN,
               "%s holds no manifest.json: it is not one of our complete checkpoints and is passed "
               "over",
               path);
    } else if (status != HL_E_MEMORY) {
        hl_log(log, HL_LOG_WARN, "passing over a broken checkpoint: %s", why.text);
    }
    hl_free(folder->mem, manifest);
    return status == HL_E_MEMORY ? hl_fail_memory(diag, sizeof *manifest, "a manifest") : HL_OK;
}

enum hl_status hl_run_folder_scan(struct hl_mem *mem, struct hl_fs *fs, const char *output_dir,
                                  struct hl_run_folder *out, struct hl_log *log,
                                  struct hl_diag *diag) {
    struct hl_run_folder folder = {.mem = mem};
    enum hl_status status = HL_OK;
    if (fs->list(fs, output_dir, collect, &folder) && errno != ENOENT)
        status = hl_fail_at(diag, HL_E_IO, output_dir, 0, 0, "cannot look into the folder: %m");
    if (!status && folder.failed)
        status = hl_fail_memory(diag, sizeof(struct hl_entry), "a list of checkpoints");
    for (int i = 0; i < folder.n_entries && !status; i++)
        status = examine(&folder, fs, output_dir, &folder.entries[i], log, diag);
    if (status) {
        hl_run_folder_free(&folder);
        return status;
    }
    if (folder.n_entries)
        qsort(folder.entries, (size_t)folder.n_entries, sizeof *folder.entries, newest_first);
    *out = folder;
    return HL_OK;
}

void hl_run_folder_free(struct hl_run_folder *folder) {
    hl_free(folder->mem, folder->entries);
    folder->entries = NULL;
    folder->n_entries = folder->capacity = 0;
}

enum hl_status hl_checkpoint_latest(struct hl_mem *mem, struct hl_fs *fs, const char *output_dir,
                                    char *path_out, size_t capacity, struct hl_log *log,
                                    struct hl_diag *diag) {
    struct hl_run_folder folder;
    enum hl_status status = hl_run_folder_scan(mem, fs, output_dir, &folder, log, diag);
    if (status) return status;
    for (int i = 0; i < folder.n_entries; i++) {
        const struct hl_entry *entry = &folder.entries[i];
        if (entry->kind == HL_ENTRY_PARTIAL || entry->kind == HL_ENTRY_REMOVED)
            hl_log(log, HL_LOG_INFO,
                   "%s/%s is left over from an interrupted save; the next save removes it",
                   output_dir, entry->name);
    }
    char path[HL_PATH_CAPACITY];
    if (!folder.n_entries || !folder.entries[0].complete) status = HL_END;
    else if (!hl_path_join(path, output_dir, folder.entries[0].name) || strlen(path) >= capacity)
        status = hl_fail(diag, HL_E_USER, "%.200s: the path is too long", output_dir);
    else strcpy(path_out, path);
    hl_run_folder_free(&folder);
    return status;
}

/* ---- deleting ---- */

static void collect_name(void *context, const char *name) {
    hl_buf_add(context, name, strlen(name) + 1);
}

bool hl_folder_delete(struct hl_mem *mem, struct hl_fs *fs, const char *path) {
    struct hl_buf names = {.mem = mem};
    if (fs->list(fs, path, collect_name, &names) && !names.n) {
        hl_buf_free(&names);
        return errno == ENOENT;
    }
    bool all = !names.failed;
    for (size_t i = 0; i < names.n; i += strlen(names.data + i) + 1) {
        char inside[HL_PATH_CAPACITY];
        if (!hl_path_join(inside, path, names.data + i) || fs->remove(fs, inside)) all = false;
    }
    hl_buf_free(&names);
    return fs->remove(fs, path) == 0 && all;
}
