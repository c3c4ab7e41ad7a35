/* New pools: files that are made, or files and devices that exist. See pool.h. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "halley/text_number.h"
#include "memory/pool.h"
#include "memory/pool_internal.h"
#include "os/memory.h"

enum { MOST_ASIDE = 1 << 20 };

static bool sufficient(const struct hl_shared_room *room, uint64_t needed) {
    return !room->known || room->free_bytes >= needed;
}

static bool parent_of(const char *path, char out[HL_PATH_CAPACITY]) {
    (void)snprintf(out, HL_PATH_CAPACITY, "%s", path);
    char *slash = strrchr(out, '/');
    if (!slash) return false;
    slash[slash == out] = 0;
    return true;
}

enum hl_status hl_pool_check_room(const char *path, uint64_t needed, const char *what,
                                  const char *less, struct hl_diag *diag) {
    struct hl_shared_room room;
    struct hl_memory memory;
    char parent[HL_PATH_CAPACITY], need[40], have[40], whole[40];
    if (!parent_of(path, parent)) return hl_pool_too_long(path, diag);
    enum hl_status status = hl_shared_room(parent, &room, diag);
    if (status != HL_OK) return status;
    hl_print_bytes(need, sizeof need, needed);
    hl_print_bytes(have, sizeof have, room.free_bytes);
    hl_print_bytes(whole, sizeof whole, room.total_bytes);
    if (!sufficient(&room, needed))
        return hl_fail(diag, HL_E_IO,
                       "%s needs %s in %s, where %s of %s are free: enlarge it (mount -o "
                       "remount,size=%lluM %s; a container: --shm-size=%lluM), or remove what "
                       "fills it ('halley pool free --stale')",
                       what, need, parent, have, whole,
                       (unsigned long long)((room.total_bytes + needed - room.free_bytes) >> 20) +
                           1,
                       parent, (unsigned long long)(needed >> 20) + 1);
    hl_memory_read(&memory);
    hl_print_bytes(have, sizeof have, memory.available_bytes);
    if (memory.available_bytes && memory.available_bytes < needed)
        return hl_fail(diag, HL_E_IO, "%s needs %s of memory, and %s are available: %s", what, need,
                       have, less);
    return HL_OK;
}

static enum hl_status exists_already(const char *address, struct hl_diag *diag) {
    return hl_fail(diag, HL_E_USER,
                   "pool %s exists already: choose another name, or remove it with 'halley pool "
                   "free %s'",
                   address, address);
}

/* The files dev0, dev1, ... in p->folder, which is new. */
static enum hl_status fill_folder(struct hl_pool *p, uint32_t n, size_t bytes,
                                  struct hl_diag *diag) {
    char path[HL_PATH_CAPACITY];
    enum hl_status status = hl_pool_take_lock(p, diag);
    for (uint32_t d = 0; d < n && status == HL_OK; d++) {
        if (!hl_pool_device_path(p->folder, d, path)) status = hl_pool_too_long(p->address, diag);
        else if ((status = hl_shared_make(path, bytes, diag)) == HL_OK)
            status = hl_shared_open(path, &p->devices[d], diag);
    }
    return status;
}

/* A folder that has another name until all is in it. */
static enum hl_status make_files(struct hl_pool *p, const struct hl_pool_spec *spec, uint32_t n,
                                 struct hl_diag *diag) {
    char parent[HL_PATH_CAPACITY];
    struct hl_shared_room room;
    if (!parent_of(p->address, parent)) return hl_pool_too_long(p->address, diag);
    if (!access(p->address, F_OK)) return exists_already(p->address, diag);
    enum hl_status status = hl_shared_room(parent, &room, diag);
    if (status != HL_OK) return status;
    size_t bytes = (spec->device_bytes + room.page_bytes - 1) / room.page_bytes * room.page_bytes;
    status = hl_pool_check_room(p->address, n * (uint64_t)bytes + MOST_ASIDE, "the pool",
                                "use fewer ranks, lanes or smaller parts", diag);
    if (status != HL_OK) return status;
    if (snprintf(p->folder, sizeof p->folder, "%s" HL_POOL_UNFINISHED "%d", p->address, getpid()) >=
        HL_PATH_CAPACITY)
        return hl_pool_too_long(p->address, diag);
    if (mkdir(p->folder, 0700))
        return hl_fail_at(diag, HL_E_IO, p->folder, 0, 0, "cannot make the folder: %m");
    status = fill_folder(p, n, bytes, diag);
    if (status == HL_E_IO && room.page_bytes > 4096)
        (void)hl_fail(diag, HL_E_IO,
                      "the pool needs %llu huge pages of %zu bytes in %s: reserve more (sysctl "
                      "vm.nr_hugepages)",
                      (unsigned long long)(n * bytes / room.page_bytes), room.page_bytes, parent);
    if (status != HL_OK) hl_pool_remove_folder(p->folder, n);
    return status;
}

/* From here on others find it. */
static enum hl_status publish(struct hl_pool *p, struct hl_diag *diag) {
    if (!rename(p->folder, p->address)) {
        (void)snprintf(p->folder, sizeof p->folder, "%s", p->address);
        return HL_OK;
    }
    bool exists = errno == EEXIST || errno == ENOTEMPTY || errno == ENOTDIR;
    if (exists) (void)exists_already(p->address, diag);
    else (void)hl_fail_at(diag, HL_E_IO, p->address, 0, 0, "cannot make the folder: %m");
    hl_pool_remove_folder(p->folder, p->head.n_devices);
    return exists ? HL_E_USER : HL_E_IO;
}

/* Files and devices that exist: not over somebody's data. */
static enum hl_status check_blank(const struct hl_pool *p, uint32_t d, const char *path,
                                  struct hl_diag *diag) {
    static const struct hl_pool_head blank;
    struct hl_pool_head head;
    hl_pool_get(p, d, 0, &head, sizeof head);
    if (!memcmp(&head, &blank, sizeof head)) return HL_OK;
    bool pool = hl_pool_head_check(&head, path, NULL) == HL_OK;
    return hl_fail_at(diag, HL_E_USER, path, 0, 0,
                      pool ? "holds a pool already: 'halley pool free' it, or make a new one over "
                             "it with --force"
                           : "holds data that is no pool: --force makes one over it");
}

/* A pool whose first page is damaged or of another version has no users that we could name. */
static enum hl_status check_overwritten(struct hl_mem *mem, const struct hl_pool *p,
                                        struct hl_diag *diag) {
    struct hl_pool *old;
    if (hl_pool_attach(mem, p->address, false, 0, &old, NULL) != HL_OK) return HL_OK;
    enum hl_status status = hl_pool_check_idle(old, true, diag);
    hl_pool_close(old);
    return status;
}

static enum hl_status open_one_listed(struct hl_pool *p, const struct hl_pool_spec *spec,
                                      uint32_t d, struct hl_diag *diag) {
    char path[HL_PATH_CAPACITY];
    uint64_t least = spec->device_bytes ? spec->device_bytes : HL_POOL_STRIPE_BYTES;
    if (!hl_pool_device_path(p->address, d, path)) return hl_pool_too_long(p->address, diag);
    enum hl_status status = hl_shared_open(path, &p->devices[d], diag);
    if (status == HL_OK && p->devices[d].n_bytes < least)
        return hl_fail_at(diag, HL_E_USER, path, 0, 0,
                          "has %zu bytes, and each device of the pool needs %llu: give a larger "
                          "one, or a smaller size",
                          p->devices[d].n_bytes, (unsigned long long)least);
    return status == HL_OK && !spec->force ? check_blank(p, d, path, diag) : status;
}

static enum hl_status open_listed(struct hl_pool *p, const struct hl_pool_spec *spec, uint32_t n,
                                  uint64_t *bytes_out, struct hl_diag *diag) {
    char path[HL_PATH_CAPACITY];
    enum hl_status status = HL_OK;
    uint64_t least = UINT64_MAX;
    for (uint32_t d = 0; d < n && status == HL_OK; d++) {
        status = open_one_listed(p, spec, d, diag);
        if (p->devices[d].n_bytes < least) least = p->devices[d].n_bytes;
    }
    if (status == HL_OK && spec->force) status = check_overwritten(p->mem, p, diag);
    for (uint32_t d = 0; d < n && status == HL_OK; d++)
        if (hl_pool_device_path(p->address, d, path)) status = hl_shared_reserve(path, diag);
    *bytes_out = spec->device_bytes ? spec->device_bytes
                                    : least / HL_POOL_STRIPE_BYTES * HL_POOL_STRIPE_BYTES;
    return status;
}

static enum hl_status make_listed(struct hl_pool *p, const struct hl_pool_spec *spec, uint32_t n,
                                  uint64_t *bytes_out, struct hl_diag *diag) {
    enum hl_status status = open_listed(p, spec, n, bytes_out, diag);
    if (status != HL_OK || spec->kept) return status;
    hl_pool_list_folder(p->head.uuid, p->folder);
    if (mkdir(p->folder, 0700) && errno != EEXIST)
        return hl_fail_at(diag, HL_E_IO, p->folder, 0, 0, "cannot make the folder: %m");
    return hl_pool_take_lock(p, diag);
}

static enum hl_status make(struct hl_pool *p, const struct hl_pool_spec *spec,
                           struct hl_diag *diag) {
    enum hl_status status = hl_pool_find_address(p, spec->address, diag);
    if (status != HL_OK) return status;
    p->listed = hl_pool_place_of(p->address) == HL_POOL_LIST;
    uint32_t n = p->listed ? hl_pool_n_listed(p->address) : spec->n_devices ? spec->n_devices : 1;
    uint64_t bytes = spec->device_bytes;
    if (n > HL_POOL_DEVICES)
        return hl_fail(diag, HL_E_USER, "a pool of %u devices; there can be 1 to %d", n,
                       HL_POOL_DEVICES);
    hl_pool_head_begin(&p->head, n, bytes, spec->mode, spec->kept);
    if (spec->read_back) p->head.flags |= HL_POOL_READ_BACK;
    if (!hl_random_bytes(p->head.uuid, sizeof p->head.uuid))
        return hl_fail(diag, HL_E_IO,
                       "the pool cannot have a name: the system gives no random numbers: %m");
    status = p->listed ? make_listed(p, spec, n, &bytes, diag) : make_files(p, spec, n, diag);
    if (status != HL_OK) return status;
    p->head.device_bytes = bytes;
    (void)hl_pool_head_lay_out(&p->head, 0, 0);
    hl_pool_write_heads(p);
    return p->listed ? HL_OK : publish(p, diag);
}

enum hl_status hl_pool_make(struct hl_mem *mem, const struct hl_pool_spec *spec,
                            struct hl_pool **out, struct hl_diag *diag) {
    struct hl_pool *p = hl_pool_new(mem, diag);
    if (!p) return HL_E_MEMORY;
    if (spec->mode == HL_POOL_WRITE_BACK && p->flush == HL_FLUSH_NONE) {
        hl_free(mem, p);
        return hl_fail(diag, HL_E_UNSUPPORTED,
                       "this processor has no instruction that flushes a cache line, so the "
                       "mode nc-wb is not possible");
    }
    enum hl_status status = make(p, spec, diag);
    if (status != HL_OK) {
        hl_pool_unmap(p);
        hl_shared_unlock(p->lock);
        hl_free(mem, p);
        return status;
    }
    if (spec->kept) {
        hl_shared_unlock(p->lock);
        p->lock = -1;
    }
    *out = p;
    return HL_OK;
}
