/* Sending a checkpoint's files. See fetch.h. */
#include "train/fetch.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint/manifest.h"
#include "checkpoint/out_file.h"
#include "checkpoint/run_folder.h"
#include "os/identity.h"
#include "train/folder.h"

enum { PIECE = 1 << 20, EXACT_BITS = 12 /* dropped, so that a double holds the rest */ };

struct fetch {
    struct hl_mem *mem;
    struct hl_fs *fs;
    struct hl_group *group;
    const char *output_dir, *from; /* from: rank 0's folder */
    char own[HL_PATH_CAPACITY], partial[HL_PATH_CAPACITY];
    char *piece;           /* [PIECE] */
    bool leads, keeps;     /* keeps: writes for its machine */
    enum hl_status status; /* of this rank's disk; the others are not left waiting for it */
    struct hl_diag why;
};

/* ---- who has what ---- */

static double exact(uint64_t hash) { return (double)(hash >> EXACT_BITS); }

/* Of a folder's manifest, whose files are there in full; 0: of none. */
static double identity(struct fetch *f, const char *folder) {
    char path[HL_PATH_CAPACITY], *text;
    size_t n;
    struct hl_manifest manifest;
    if (hl_manifest_read(f->mem, f->fs, folder, &manifest, NULL, NULL) != HL_OK ||
        !hl_path_join(path, folder, HL_MANIFEST_NAME) ||
        hl_fs_read_text(f->mem, f->fs, path, HL_MANIFEST_MAX_BYTES, &text, &n, NULL) != HL_OK)
        return 0;
    uint64_t hash = hl_text_xxh3(text, n);
    hl_free(f->mem, text);
    return exact(hash);
}

/* Equal for ranks that write to the same output_dir. */
static double place(const struct fetch *f) {
    char text[2 * HL_PATH_CAPACITY + 256], cwd[HL_PATH_CAPACITY] = "", host[128];
    struct hl_identity own;
    hl_identity_own(&own);
    hl_host_name(host, sizeof host);
    if (f->output_dir[0] != '/' && !getcwd(cwd, sizeof cwd)) cwd[0] = 0;
    int n = snprintf(text, sizeof text, "%s %llx %llx %s/%s", host, (unsigned long long)own.boot[0],
                     (unsigned long long)own.boot[1], cwd, f->output_dir);
    return exact(hl_text_xxh3(text, (size_t)n));
}

/* Fills in `own` and `keeps`. *n_out: ranks that will write; 0: all have it, or rank 0 has no
 * manifest. */
static enum hl_status compare(struct fetch *f, int *n_out, struct hl_diag *diag) {
    enum { HAS, PLACE, EACH };
    double all[HL_MAX_RANKS * EACH];
    int rank = hl_group_rank(f->group), n = hl_group_n_ranks(f->group);
    double there = identity(f, f->from), *mine = all + EACH * rank;
    mine[PLACE] = place(f);
    mine[HAS] = there != 0 || f->leads ? there : identity(f, f->own);
    enum hl_status status = hl_group_share(f->group, all, EACH, diag);
    double wanted = status == HL_OK ? all[HAS] : 0;
    /* whole, and another: not ours to replace; those who read it find that it differs */
    if (there != 0 || wanted == 0) (void)snprintf(f->own, sizeof f->own, "%s", f->from);
    *n_out = 0;
    for (int r = 1; r < n && status == HL_OK && wanted != 0; r++) {
        bool first = all[EACH * r + HAS] == 0;
        for (int q = 1; q < r; q++)
            first &= all[EACH * q + HAS] != 0 || all[EACH * q + PLACE] != all[EACH * r + PLACE];
        *n_out += first;
        if (first && r == rank) f->keeps = true;
    }
    return status;
}

/* ---- files ---- */

struct header {
    char name[128];
    int64_t bytes;
    uint64_t xxh3;
};

static void note(struct fetch *f, enum hl_status status) {
    if (status != HL_OK && f->status == HL_OK) f->status = status;
}

/* A piece, from rank 0's file into everybody's memory and the keepers' files. */
static enum hl_status pass_piece(struct fetch *f, int file, const char *path, int64_t at, size_t n,
                                 struct hl_out_file *out, struct hl_diag *diag) {
    if (f->leads && f->status == HL_OK)
        note(f, hl_fs_read_exact(f->fs, file, path, f->piece, n, at, &f->why));
    enum hl_status status = hl_group_broadcast(f->group, f->piece, n, diag);
    if (status == HL_OK && f->keeps && f->status == HL_OK)
        note(f, hl_out_write(out, f->piece, n, &f->why));
    return status;
}

static enum hl_status pass_file(struct fetch *f, struct header *h, struct hl_diag *diag) {
    char path[HL_PATH_CAPACITY];
    struct hl_out_file out;
    uint64_t xxh3 = 0;
    int file = -1;
    enum hl_status status = hl_group_broadcast(f->group, h, sizeof *h, diag);
    if (status != HL_OK) return status;
    h->name[sizeof h->name - 1] = 0;
    bool fits = hl_plain_name(h->name) && h->bytes >= 0 &&
                hl_path_join(path, f->leads ? f->from : f->partial, h->name);
    if (!fits) return hl_fail(diag, HL_E_FORMAT, "rank 0 sent the name of no file");
    if (f->leads && (file = f->fs->open(f->fs, path, HL_FS_READ)) < 0)
        note(f, hl_fail_at(&f->why, HL_E_IO, path, 0, 0, "cannot be read: %m"));
    bool writes = f->keeps && f->status == HL_OK;
    if (writes) note(f, hl_out_open(f->mem, f->fs, path, &out, &f->why));
    writes = writes && f->status == HL_OK;
    for (int64_t at = 0; at < h->bytes && status == HL_OK; at += PIECE) {
        int64_t n = h->bytes - at < PIECE ? h->bytes - at : PIECE;
        status = pass_piece(f, file, path, at, (size_t)n, &out, diag);
    }
    if (file >= 0) (void)f->fs->close(f->fs, file);
    if (writes && status == HL_OK && f->status == HL_OK)
        note(f, hl_out_commit(&out, &xxh3, &f->why));
    else if (writes) hl_out_abandon(&out);
    if (writes && status == HL_OK && f->status == HL_OK && xxh3 != h->xxh3)
        note(f, hl_fail_at(&f->why, HL_E_FORMAT, f->from, 0, 0,
                           "%s is damaged where rank 0 reads it, or cannot be read", h->name));
    return status;
}

/* What rank 0 will send as file i; the manifest last, as when it was saved. */
static void describe(struct fetch *f, const struct hl_manifest *manifest, int64_t i,
                     struct header *out) {
    char path[HL_PATH_CAPACITY];
    *out = (struct header){.name = HL_MANIFEST_NAME};
    if (i < manifest->n_files) {
        const struct hl_manifest_file *file = &manifest->files[i];
        memcpy(out->name, file->name, sizeof out->name);
        out->bytes = file->bytes;
        out->xxh3 = file->xxh3;
    } else if (hl_path_join(path, f->from, HL_MANIFEST_NAME)) {
        out->bytes = f->fs->size(f->fs, path);
        note(f, hl_file_xxh3(f->mem, f->fs, path, &out->xxh3, &f->why));
    }
}

static enum hl_status pass_files(struct fetch *f, struct hl_diag *diag) {
    struct hl_manifest manifest = {0};
    struct header h = {{0}, 0, 0};
    if (f->leads) note(f, hl_manifest_read(f->mem, f->fs, f->from, &manifest, NULL, &f->why));
    int64_t n = f->status == HL_OK ? manifest.n_files + 1 : 0;
    enum hl_status status = hl_group_broadcast(f->group, &n, sizeof n, diag);
    if (n == 0) note(f, hl_fail(&f->why, HL_E_IO, "rank 0 cannot read %.300s", f->from));
    for (int64_t i = 0; i < n && status == HL_OK; i++) {
        if (f->leads) describe(f, &manifest, i, &h);
        status = pass_file(f, &h, diag);
    }
    return status;
}

/* ---- the copy ---- */

static void begin_copy(struct fetch *f) {
    const char *name = strrchr(f->own, '/') + 1;
    char text[300];
    note(f, hl_run_folder_make(f->fs, f->output_dir, &f->why));
    (void)snprintf(text, sizeof text, ".%.250s.partial", name);
    if (f->status != HL_OK) return;
    if (!hl_path_join(f->partial, f->output_dir, text))
        note(f, hl_fail(&f->why, HL_E_USER, "%.200s: the path is too long", f->output_dir));
    else if ((!hl_folder_delete(f->mem, f->fs, f->partial) && errno != ENOENT) ||
             f->fs->make_folder(f->fs, f->partial))
        note(f, hl_out_explain(f->fs, f->partial, "create the folder", &f->why));
}

static void end_copy(struct fetch *f) {
    bool there = f->fs->size(f->fs, f->own) >= 0 || errno == EISDIR;
    if (f->status == HL_OK &&
        (f->fs->sync_folder(f->fs, f->partial) ||
         (there && !hl_folder_delete(f->mem, f->fs, f->own)) ||
         f->fs->rename(f->fs, f->partial, f->own) || f->fs->sync_folder(f->fs, f->output_dir)))
        note(f, hl_out_explain(f->fs, f->own, "keep rank 0's checkpoint", &f->why));
    if (f->status != HL_OK && *f->partial) (void)hl_folder_delete(f->mem, f->fs, f->partial);
}

static enum hl_status send(struct fetch *f, struct hl_diag *diag) {
    if (!(f->piece = hl_alloc(f->mem, PIECE, 1)))
        return hl_fail_memory(diag, PIECE, "sending the checkpoint");
    if (f->keeps) begin_copy(f);
    enum hl_status status = pass_files(f, diag);
    if (status != HL_OK) note(f, status);
    if (f->keeps) end_copy(f);
    hl_free(f->mem, f->piece);
    if (status != HL_OK) return status;
    if (f->status == HL_OK) return HL_OK;
    if (diag) *diag = f->why;
    return f->status;
}

enum hl_status hl_fetch_checkpoint(struct hl_mem *mem, struct hl_fs *fs, struct hl_group *group,
                                   const char *output_dir, char path[HL_PATH_CAPACITY],
                                   int *n_sent_out, struct hl_diag *diag) {
    *n_sent_out = 0;
    if (hl_group_n_ranks(group) == 1) return HL_OK;
    struct fetch f = {.mem = mem,
                      .fs = fs,
                      .group = group,
                      .output_dir = output_dir,
                      .from = path,
                      .leads = hl_group_rank(group) == 0};
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') path[--n] = 0;
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    if (!hl_plain_name(name) || !hl_path_join(f.own, output_dir, name))
        return hl_fail(diag, HL_E_USER, "%.200s: is no folder of a checkpoint", path);
    enum hl_status status = compare(&f, n_sent_out, diag);
    if (status == HL_OK && *n_sent_out > 0) {
        status = send(&f, diag);
        if (status == HL_OK)
            status = hl_group_barrier(group, diag); /* all have what they will read */
    }
    if (status == HL_OK && !f.leads) (void)snprintf(path, HL_PATH_CAPACITY, "%s", f.own);
    return status;
}
