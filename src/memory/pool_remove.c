/* Pools that go away: named ones, and those whose owner is gone. See pool.h. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "memory/pool.h"
#include "memory/pool_internal.h"
#include "os/clock.h"

enum { YOUNG_SECONDS = 10 };

/* Devices keep their bytes; without a first page they are no pool any more. */
static void clear_devices(struct hl_pool *p) {
    for (uint32_t d = 0; d < p->head.n_devices; d++)
        if (p->listed || p->devices[d].device) hl_pool_clear(p, d, 0, HL_POOL_HEAD_BYTES);
}

static enum hl_status check_removable(struct hl_pool *p, bool force, struct hl_diag *diag) {
    char path[HL_PATH_CAPACITY];
    if (!hl_path_join(path, p->folder, "lock")) return hl_pool_too_long(p->folder, diag);
    if (!hl_shared_lock_is_free(path) && !force)
        return hl_fail(diag, HL_E_USER,
                       "pool %s is in use by the job of pid %lld on %s: end it first, or remove "
                       "the pool under it with --force",
                       p->address, (long long)p->head.job.owner.pid, p->head.job.host);
    return force ? HL_OK : hl_pool_check_idle(p, false, diag);
}

/* It looks like a pool's folder, and nothing valid is in it. */
static enum hl_status remove_ruin(const char *address, struct hl_diag *diag) {
    char path[HL_PATH_CAPACITY];
    bool pool = hl_pool_device_path(address, 0, path) && !access(path, F_OK);
    if (!pool) return hl_fail(diag, HL_E_USER, "there is no pool %s", address);
    hl_pool_remove_folder(address, HL_POOL_DEVICES);
    return HL_OK;
}

enum hl_status hl_pool_remove(struct hl_mem *mem, const char *address, bool force,
                              struct hl_diag *diag) {
    struct hl_pool *p;
    char full[HL_PATH_CAPACITY];
    if (!hl_pool_full_address(address, full)) return hl_pool_too_long(address, diag);
    enum hl_status status = hl_pool_attach(mem, address, false, 0, &p, diag);
    bool folder = hl_pool_place_of(full) == HL_POOL_FOLDER;
    if (status != HL_OK) return folder && force ? remove_ruin(full, diag) : status;
    status = check_removable(p, force, diag);
    if (status == HL_OK) {
        clear_devices(p);
        hl_pool_remove_folder(p->folder, p->listed ? 0 : p->head.n_devices);
    }
    hl_pool_close(p);
    return status;
}

/* ---- all in one folder ---- */

struct search {
    const char *parent;
    void (*visit)(void *context, const char *address);
    void *context;
};

static void consider(void *context, const char *name) {
    struct search *s = context;
    char path[HL_PATH_CAPACITY];
    struct stat info;
    if (strncmp(name, HL_POOL_PREFIX, strlen(HL_POOL_PREFIX)) != 0) return;
    if (!hl_path_join(path, s->parent, name) || lstat(path, &info) || !S_ISDIR(info.st_mode))
        return;
    s->visit(s->context, path);
}

enum hl_status hl_pool_list(const char *parent, void (*visit)(void *context, const char *address),
                            void *context, struct hl_diag *diag) {
    struct search s = {parent ? parent : HL_POOL_PARENT, visit, context};
    struct hl_fs *fs = hl_fs_os();
    if (fs->list(fs, s.parent, consider, &s))
        return hl_fail_at(diag, HL_E_IO, s.parent, 0, 0, "cannot look into it: %m");
    return HL_OK;
}

struct sweep {
    struct hl_mem *mem;
    int n;
};

static bool is_young(const char *folder) {
    struct stat info;
    return stat(folder, &info) || hl_clock_wall_seconds() - (double)info.st_mtime < YOUNG_SECONDS;
}

/* A folder that its maker did not finish, or a list's folder of this host, or a pool. */
static bool is_stale(struct hl_mem *mem, const char *folder) {
    char path[HL_PATH_CAPACITY];
    struct hl_pool *p;
    if (!hl_path_join(path, folder, "lock") || !hl_shared_lock_is_free(path)) return false;
    if (strstr(folder, HL_POOL_UNFINISHED)) return !is_young(folder);
    if (hl_path_join(path, folder, "dev0") && access(path, F_OK)) return !is_young(folder);
    if (hl_pool_attach(mem, folder, false, 0, &p, NULL) != HL_OK) return false;
    bool stale = !(p->head.flags & HL_POOL_KEPT);
    hl_pool_close(p);
    return stale;
}

/* What a launcher that was killed left in a pool that stays. */
static void remove_snapshot(const char *folder) {
    char lock[HL_PATH_CAPACITY];
    if (hl_path_join(lock, folder, "lock") && hl_shared_lock_is_free(lock))
        hl_pool_remove_snapshot(folder);
}

static void sweep_one(void *context, const char *folder) {
    struct sweep *s = context;
    remove_snapshot(folder);
    if (!is_stale(s->mem, folder)) return;
    hl_pool_remove_folder(folder, HL_POOL_DEVICES);
    if (access(folder, F_OK)) s->n++; /* one that holds other things stays */
}

enum hl_status hl_pool_sweep(struct hl_mem *mem, const char *parent, int *n_out,
                             struct hl_diag *diag) {
    struct sweep s = {mem, 0};
    enum hl_status status = hl_pool_list(parent, sweep_one, &s, diag);
    if (n_out) *n_out = s.n;
    return status;
}
