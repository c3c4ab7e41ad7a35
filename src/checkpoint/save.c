/* Saving a checkpoint so that a kill, a crash or a full disk at any moment loses nothing that was
 * committed.
 *
 * Order: every file into .checkpoint-N.partial, each brought to the disk; the manifest last; the
 * folder's names to the disk; rename to checkpoint-N (the commit); output_dir to the disk; `latest`
 * by rename; then old ones are renamed aside and deleted. The state of an output folder at each
 * moment: run_folder.h. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "checkpoint/config_json.h"
#include "checkpoint/manifest.h"
#include "checkpoint/out_file.h"
#include "checkpoint/run_folder.h"
#include "checkpoint/safetensors.h"
#include "halley/checkpoint.h"

struct saver {
    struct hl_mem *mem;
    struct hl_fs *fs;
    const char *output_dir;
    const struct hl_checkpoint *checkpoint;
    struct hl_log *log;
    struct hl_diag *diag;
    char partial[HL_PATH_CAPACITY]; /* the folder being written */
    struct hl_manifest manifest;
};

static enum hl_status too_long(const struct saver *s) {
    return hl_fail(s->diag, HL_E_USER, "%.200s: the path is too long", s->output_dir);
}

/* output_dir/<before>N<after> */
static bool numbered_path(const struct saver *s, const char *before, int64_t number,
                          const char *after, char out[HL_PATH_CAPACITY]) {
    char name[64];
    (void)snprintf(name, sizeof name, "%s%lld%s", before, (long long)number, after);
    return hl_path_join(out, s->output_dir, name);
}

/* ---- files ---- */

static enum hl_status begin_file(struct saver *s, const char *name, char path[HL_PATH_CAPACITY],
                                 struct hl_out_file *out) {
    assert(s->manifest.n_files < HL_MANIFEST_MAX_FILES);
    if (!hl_path_join(path, s->partial, name)) return too_long(s);
    return hl_out_open(s->mem, s->fs, path, out, s->diag);
}

static enum hl_status end_file(struct saver *s, const char *name, struct hl_out_file *out,
                               enum hl_status status) {
    struct hl_manifest_file *file = &s->manifest.files[s->manifest.n_files];
    (void)snprintf(file->name, sizeof file->name, "%s", name);
    file->bytes = out->bytes;
    if (status) hl_out_abandon(out);
    else status = hl_out_commit(out, &file->xxh3, s->diag);
    if (!status) s->manifest.n_files++;
    return status;
}

static enum hl_status put_text(struct saver *s, const char *name, const char *text, size_t n) {
    char path[HL_PATH_CAPACITY];
    struct hl_out_file out;
    enum hl_status status = begin_file(s, name, path, &out);
    if (status) return status;
    return end_file(s, name, &out, hl_out_write(&out, text, n, s->diag));
}

static enum hl_status put_optional(struct saver *s, const char *name, const char *text) {
    return text ? put_text(s, name, text, strlen(text)) : HL_OK;
}

static enum hl_status put_printed(struct saver *s, const char *name,
                                  void (*print)(const struct hl_model_config *config,
                                                struct hl_buf *out)) {
    struct hl_buf text = {.mem = s->mem};
    print(&s->checkpoint->model->config, &text);
    enum hl_status status = text.failed ? hl_fail_memory(s->diag, text.capacity, name)
                                        : put_text(s, name, text.data, text.n);
    hl_buf_free(&text);
    return status;
}

static enum hl_status put_tensors(struct saver *s, const char *name,
                                  const struct hl_st_plan_row *rows, int n_rows) {
    char path[HL_PATH_CAPACITY];
    struct hl_out_file out;
    enum hl_status status = begin_file(s, name, path, &out);
    if (status) return status;
    return end_file(s, name, &out, hl_st_write(s->mem, &out, rows, n_rows, s->diag));
}

static struct hl_st_plan_row *take_rows(struct saver *s, int n, enum hl_status *status_out) {
    struct hl_st_plan_row *rows = hl_alloc(s->mem, (size_t)n, sizeof *rows);
    *status_out =
        rows ? HL_OK : hl_fail_memory(s->diag, (size_t)n * sizeof *rows, "a list of tensors");
    return rows;
}

static enum hl_status put_weights(struct saver *s) {
    const struct hl_layout *layout = &s->checkpoint->model->layout;
    enum hl_status status;
    struct hl_st_plan_row *rows = take_rows(s, layout->n_tensors, &status);
    for (int i = 0; i < layout->n_tensors && !status; i++) {
        const struct hl_tensor *t = &layout->tensors[i];
        struct hl_st_plan_row *row = &rows[i];
        const float *params = s->checkpoint->params;
        *row = (struct hl_st_plan_row){.name = t->name,
                                       .n_dims = t->n_dims,
                                       .data = params ? params + t->offset : NULL,
                                       .source = s->checkpoint->source,
                                       .array = -1,
                                       .first = t->offset};
        row->transposed = t->file_transposed;
        row->shape[0] = t->n_dims == 1 || t->file_transposed ? t->cols : t->rows;
        row->shape[1] = t->file_transposed ? t->rows : t->cols;
    }
    if (!status) status = put_tensors(s, "model.safetensors", rows, layout->n_tensors);
    hl_free(s->mem, rows);
    return status;
}

static enum hl_status put_state(struct saver *s) {
    int n = s->checkpoint->n_arrays;
    enum hl_status status;
    struct hl_st_plan_row *rows = take_rows(s, n, &status);
    for (int i = 0; i < n && !status; i++) {
        const struct hl_saved_array *array = &s->checkpoint->arrays[i];
        rows[i] = (struct hl_st_plan_row){.name = array->name,
                                          .n_dims = 1,
                                          .shape = {array->n},
                                          .data = array->data,
                                          .source = s->checkpoint->source,
                                          .array = i};
    }
    if (!status) status = put_tensors(s, "state.safetensors", rows, n);
    hl_free(s->mem, rows);
    return status;
}

static enum hl_status put_manifest(struct saver *s) {
    struct hl_buf text = {.mem = s->mem};
    hl_manifest_print(&s->manifest, s->checkpoint->made_with_json, &text);
    enum hl_status status = text.failed ? hl_fail_memory(s->diag, text.capacity, HL_MANIFEST_NAME)
                                        : put_text(s, HL_MANIFEST_NAME, text.data, text.n);
    hl_buf_free(&text);
    return status;
}

static enum hl_status write_partial(struct saver *s) {
    const struct hl_checkpoint *c = s->checkpoint;
    if (s->fs->make_folder(s->fs, s->partial))
        return hl_out_explain(s->fs, s->partial, "create the folder", s->diag);
    enum hl_status status = put_weights(s);
    if (!status) status = put_printed(s, "config.json", hl_model_config_to_json);
    if (!status) status = put_printed(s, "generation_config.json", hl_generation_config_to_json);
    if (!status) status = put_optional(s, "tokenizer.json", c->tokenizer_json);
    if (!status) status = put_state(s);
    if (!status) status = put_optional(s, "loop.json", c->loop_json);
    if (!status) status = put_optional(s, "run.yaml", c->run_yaml);
    if (!status) status = put_manifest(s);
    if (!status && s->fs->sync_folder(s->fs, s->partial))
        status = hl_out_explain(s->fs, s->partial, "bring it to the disk", s->diag);
    return status;
}

/* ---- the output folder ---- */

/* Create output_dir with its parents where they are missing. */
static enum hl_status make_output_dir(struct saver *s) {
    char path[HL_PATH_CAPACITY];
    size_t n = strlen(s->output_dir);
    if (n == 0 || n >= sizeof path) return too_long(s);
    memcpy(path, s->output_dir, n + 1);
    for (size_t i = 1; i <= n; i++) {
        if (path[i] != '/' && path[i] != 0) continue;
        char kept = path[i];
        path[i] = 0;
        bool there = s->fs->size(s->fs, path) >= 0 || errno == EISDIR;
        if (!there && s->fs->make_folder(s->fs, path) && errno != EEXIST)
            return hl_out_explain(s->fs, path, "create the folder", s->diag);
        if (!there) { /* its name must survive too; a parent that cannot be opened is not ours to
                         sync */
            char *slash = strrchr(path, '/');
            if (slash && slash != path) *slash = 0;
            (void)s->fs->sync_folder(s->fs, !slash ? "." : slash == path ? "/" : path);
            if (slash && slash != path) *slash = '/';
        }
        path[i] = kept;
    }
    return HL_OK;
}

static bool exists(const struct hl_run_folder *folder, enum hl_entry_kind kind, int64_t number) {
    for (int i = 0; i < folder->n_entries; i++)
        if (folder->entries[i].kind == kind && folder->entries[i].number == number) return true;
    return false;
}

/* Bring back a checkpoint that was set aside for one that never came; delete what interrupted saves
 * left. */
static void clean(struct saver *s, const struct hl_run_folder *folder) {
    for (int i = 0; i < folder->n_entries; i++) {
        const struct hl_entry *entry = &folder->entries[i];
        char path[HL_PATH_CAPACITY], target[HL_PATH_CAPACITY];
        if (entry->kind == HL_ENTRY_CHECKPOINT || !hl_path_join(path, s->output_dir, entry->name))
            continue;
        bool done;
        if (entry->kind == HL_ENTRY_REPLACED &&
            !exists(folder, HL_ENTRY_CHECKPOINT, entry->number)) {
            if (!numbered_path(s, "checkpoint-", entry->number, "", target)) continue;
            done = s->fs->rename(s->fs, path, target) == 0;
        } else if (entry->kind == HL_ENTRY_LATEST_PARTIAL) {
            done = s->fs->remove(s->fs, path) == 0;
        } else {
            done = hl_folder_delete(s->mem, s->fs, path);
        }
        if (!done) hl_log(s->log, HL_LOG_WARN, "cannot clear away %s: %m", path);
        else
            hl_log(s->log, HL_LOG_INFO, "cleared away %s, left over from an interrupted save",
                   path);
    }
}

static int64_t next_serial(const struct hl_run_folder *folder) {
    return folder->n_entries && folder->entries[0].complete ? folder->entries[0].serial + 1 : 1;
}

/* The same step may be saved again (a run that was resumed from an older one): the old folder steps
 * aside first and is found under that name until the new one stands. */
static enum hl_status commit(struct saver *s) {
    char final[HL_PATH_CAPACITY], replaced[HL_PATH_CAPACITY];
    if (!numbered_path(s, "checkpoint-", s->checkpoint->step, "", final) ||
        !numbered_path(s, ".checkpoint-", s->checkpoint->step, ".replaced", replaced))
        return too_long(s);
    bool again = s->fs->size(s->fs, final) < 0 && errno == EISDIR;
    if (again && s->fs->rename(s->fs, final, replaced))
        return hl_out_explain(s->fs, final, "set the old one aside", s->diag);
    if (s->fs->rename(s->fs, s->partial, final)) {
        enum hl_status status =
            hl_out_explain(s->fs, final, "rename the finished checkpoint", s->diag);
        if (again) (void)s->fs->rename(s->fs, replaced, final);
        return status;
    }
    if (s->fs->sync_folder(s->fs, s->output_dir))
        return hl_out_explain(s->fs, s->output_dir, "bring the checkpoint's name to the disk",
                              s->diag);
    if (again && !hl_folder_delete(s->mem, s->fs, replaced))
        hl_log(s->log, HL_LOG_WARN, "cannot remove the older %s: %m", replaced);
    return HL_OK;
}

/* A reader does not need it: a failure is worth a warning only. */
static void point_latest(struct saver *s) {
    char partial[HL_PATH_CAPACITY], latest[HL_PATH_CAPACITY], name[64];
    if (!hl_path_join(partial, s->output_dir, ".latest.partial") ||
        !hl_path_join(latest, s->output_dir, "latest"))
        return;
    int n = snprintf(name, sizeof name, "checkpoint-%lld\n", (long long)s->checkpoint->step);
    struct hl_diag why = {0};
    struct hl_out_file out;
    uint64_t hash;
    enum hl_status status = hl_out_open(s->mem, s->fs, partial, &out, &why);
    if (!status) {
        status = hl_out_write(&out, name, (size_t)n, &why);
        if (status) hl_out_abandon(&out);
        else status = hl_out_commit(&out, &hash, &why);
    }
    if (!status && s->fs->rename(s->fs, partial, latest))
        status = hl_out_explain(s->fs, latest, "rename", &why);
    if (!status && s->fs->sync_folder(s->fs, s->output_dir))
        status = hl_out_explain(s->fs, latest, "bring it to the disk", &why);
    if (status)
        hl_log(s->log, HL_LOG_WARN, "the checkpoint is saved, but 'latest' was not renewed: %s",
               why.text);
}

/* First renamed, then deleted: no moment shows half a checkpoint under a name that counts. */
static void remove_old(struct saver *s, const struct hl_run_folder *folder, int64_t limit) {
    int64_t kept = 1; /* the one just saved */
    for (int i = 0; i < folder->n_entries; i++) {
        const struct hl_entry *entry = &folder->entries[i];
        char path[HL_PATH_CAPACITY], aside[HL_PATH_CAPACITY];
        if (entry->kind != HL_ENTRY_CHECKPOINT || !entry->complete ||
            entry->number == s->checkpoint->step)
            continue;
        if (kept < limit) {
            kept++;
            continue;
        }
        if (!numbered_path(s, "checkpoint-", entry->number, "", path) ||
            !numbered_path(s, ".checkpoint-", entry->number, ".removed", aside))
            return;
        if (s->fs->rename(s->fs, path, aside) || !hl_folder_delete(s->mem, s->fs, aside))
            hl_log(s->log, HL_LOG_WARN,
                   "the checkpoint is saved, but the old %s could not be removed: %m", path);
    }
}

static enum hl_status save(struct saver *s, int64_t save_total_limit) {
    enum hl_status status = make_output_dir(s);
    if (status) return status;
    struct hl_run_folder folder;
    status = hl_run_folder_scan(s->mem, s->fs, s->output_dir, &folder, s->log, s->diag);
    if (status) return status;
    clean(s, &folder);
    s->manifest.serial = next_serial(&folder);
    s->manifest.step = s->checkpoint->step;
    if (!numbered_path(s, ".checkpoint-", s->checkpoint->step, ".partial", s->partial))
        status = too_long(s);
    if (!status) status = write_partial(s);
    if (!status) status = commit(s);
    if (status) {
        if (s->partial[0]) (void)hl_folder_delete(s->mem, s->fs, s->partial);
    } else {
        point_latest(s);
        if (save_total_limit > 0) remove_old(s, &folder, save_total_limit);
    }
    hl_run_folder_free(&folder);
    return status;
}

enum hl_status hl_checkpoint_save(struct hl_mem *mem, struct hl_fs *fs, const char *output_dir,
                                  const struct hl_checkpoint *checkpoint, int64_t save_total_limit,
                                  struct hl_log *log, struct hl_diag *diag) {
    struct saver *s = hl_alloc(mem, 1, sizeof *s);
    if (!s) return hl_fail_memory(diag, sizeof *s, "saving a checkpoint");
    *s = (struct saver){.mem = mem,
                        .fs = fs,
                        .output_dir = output_dir,
                        .checkpoint = checkpoint,
                        .log = log,
                        .diag = diag};
    enum hl_status status = save(s, save_total_limit);
    hl_free(mem, s);
    return status;
}
