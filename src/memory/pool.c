/* Mapping, owning and closing pools. See pool.h. */
#include "memory/pool.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "memory/pool_internal.h"
#include "os/clock.h"
#include "os/futex.h"

enum { MOST_ASIDE = 1 << 20, LOOK_AGAIN_NS = 20000000 };

/* ---- bytes ---- */

void hl_pool_put(const struct hl_pool *p, uint32_t d, uint64_t offset, const void *data, size_t n) {
    memcpy(p->devices[d].write + offset, data, n);
    hl_lines_flush(p->flush, p->devices[d].write + offset, n);
    hl_fence_all();
}

void hl_pool_get(const struct hl_pool *p, uint32_t d, uint64_t offset, void *out, size_t n) {
    hl_lines_flush(p->flush, p->devices[d].read + offset, n);
    hl_fence_all();
    memcpy(out, p->devices[d].read + offset, n);
}

void hl_pool_clear(const struct hl_pool *p, uint32_t d, uint64_t offset, uint64_t n) {
    memset(p->devices[d].write + offset, 0, n);
    hl_lines_flush(p->flush, p->devices[d].write + offset, n);
    hl_fence_all();
}

void hl_pool_write_heads(struct hl_pool *p) {
    for (uint32_t d = p->head.n_devices; d-- > 0;) {
        hl_pool_head_seal(&p->head, d);
        hl_pool_put(p, d, 0, &p->head, sizeof p->head);
    }
}

void hl_pool_unmap(struct hl_pool *p) {
    for (int d = 0; d < HL_POOL_DEVICES; d++) hl_shared_close(&p->devices[d]);
}

struct hl_pool *hl_pool_new(struct hl_mem *mem, struct hl_diag *diag) {
    struct hl_pool *p = hl_alloc(mem, 1, sizeof *p);
    if (!p) {
        (void)hl_fail_memory(diag, sizeof *p, "a pool");
        return NULL;
    }
    p->mem = mem;
    p->lock = -1;
    p->flush = hl_flush_kind();
    return p;
}

enum hl_status hl_pool_too_long(const char *address, struct hl_diag *diag) {
    return hl_fail(diag, HL_E_USER, "the pool's address '%.80s...' is too long", address);
}

static enum hl_status new_address(char out[HL_PATH_CAPACITY], struct hl_diag *diag) {
    uint64_t random;
    if (!hl_random_bytes(&random, sizeof random))
        return hl_fail(diag, HL_E_IO,
                       "the pool cannot have a name: the system gives no random numbers: %m");
    (void)snprintf(out, HL_PATH_CAPACITY, HL_POOL_PARENT "/" HL_POOL_PREFIX "%016llx",
                   (unsigned long long)random);
    return HL_OK;
}

enum hl_status hl_pool_find_address(struct hl_pool *p, const char *address, struct hl_diag *diag) {
    if (!address) return new_address(p->address, diag);
    return hl_pool_full_address(address, p->address) ? HL_OK : hl_pool_too_long(address, diag);
}

/* ---- attaching ---- */

/* The second and further devices belong to the first one's pool. */
static enum hl_status check_device(const struct hl_pool *p, uint32_t d, const char *path,
                                   struct hl_diag *diag) {
    struct hl_pool_head head;
    if (p->devices[d].n_bytes < sizeof head)
        return hl_fail_at(diag, HL_E_FORMAT, path, 0, 0, "holds no pool: %zu bytes are too few",
                          p->devices[d].n_bytes);
    hl_pool_get(p, d, 0, &head, sizeof head);
    enum hl_status status = hl_pool_head_check(&head, path, diag);
    if (status != HL_OK) return status;
    if (memcmp(head.uuid, p->head.uuid, sizeof head.uuid) != 0)
        return hl_fail_at(diag, HL_E_USER, path, 0, 0,
                          "belongs to another pool than device 0 (their UUIDs differ): name the "
                          "devices of one pool");
    if (head.device != d)
        return hl_fail_at(diag, HL_E_USER, path, 0, 0,
                          "is device %u of the pool, not %u: name the devices in their order",
                          head.device, d);
    if (p->devices[d].n_bytes < head.device_bytes)
        return hl_fail_at(diag, HL_E_USER, path, 0, 0,
                          "has %zu bytes, and the pool needs %llu: it was cut short or is another "
                          "device; make the pool again",
                          p->devices[d].n_bytes, (unsigned long long)head.device_bytes);
    return HL_OK;
}

static enum hl_status open_device(struct hl_pool *p, uint32_t d, struct hl_diag *diag) {
    char path[HL_PATH_CAPACITY];
    if (!hl_pool_device_path(p->address, d, path))
        return hl_fail(diag, HL_E_USER, "pool %s: its pool has %u devices; name all of them",
                       p->address, p->head.n_devices);
    enum hl_status status = hl_shared_open(path, &p->devices[d], diag);
    if (status == HL_OK && d == 0 && p->devices[0].n_bytes >= sizeof p->head)
        hl_pool_get(p, 0, 0, &p->head, sizeof p->head);
    return status == HL_OK ? check_device(p, d, path, diag) : status;
}

static enum hl_status attach(struct hl_pool *p, struct hl_diag *diag) {
    p->listed = hl_pool_place_of(p->address) == HL_POOL_LIST;
    enum hl_status status = open_device(p, 0, diag);
    for (uint32_t d = 1; status == HL_OK && d < p->head.n_devices; d++)
        status = open_device(p, d, diag);
    if (status != HL_OK) return status;
    if (p->listed && hl_pool_n_listed(p->address) != p->head.n_devices)
        return hl_fail(diag, HL_E_USER, "pool %s: %u devices are named, and the pool has %u",
                       p->address, hl_pool_n_listed(p->address), p->head.n_devices);
    if (p->listed) hl_pool_list_folder(p->head.uuid, p->folder);
    else (void)snprintf(p->folder, sizeof p->folder, "%s", p->address);
    return HL_OK;
}

/* Not there yet, or not ready: waiting may help. */
static bool is_awaited(struct hl_pool *p, bool with_job) {
    static const struct hl_pool_head blank;
    char path[HL_PATH_CAPACITY];
    if (!hl_pool_device_path(p->address, 0, path) || (access(path, F_OK) && errno == ENOENT))
        return true;
    if (hl_shared_open(path, &p->devices[0], NULL) != HL_OK) return false;
    bool large = p->devices[0].n_bytes >= sizeof p->head;
    if (large) hl_pool_get(p, 0, 0, &p->head, sizeof p->head);
    hl_shared_close(&p->devices[0]);
    if (large && !memcmp(&p->head, &blank, sizeof blank)) return true;
    return large && with_job && hl_pool_head_check(&p->head, path, NULL) == HL_OK &&
           !p->head.job.n_ranks;
}

static enum hl_status not_there(const struct hl_pool *p, int64_t timeout_ns, struct hl_diag *diag) {
    char path[HL_PATH_CAPACITY];
    bool exists = hl_pool_device_path(p->address, 0, path) && !access(path, F_OK);
    if (exists && timeout_ns == 0) return HL_OK; /* attaching says what is wrong */
    return hl_fail(diag, timeout_ns ? HL_E_TIMEOUT : HL_E_USER,
                   "pool %s %s%s: make it with 'halley pool create', or let 'halley launch' make "
                   "one",
                   p->address, exists ? "has no job" : "does not exist",
                   timeout_ns ? " after the time that was given" : "");
}

enum hl_status hl_pool_attach(struct hl_mem *mem, const char *address, bool with_job,
                              int64_t timeout_ns, struct hl_pool **out, struct hl_diag *diag) {
    struct hl_pool *p = hl_pool_new(mem, diag);
    if (!p) return HL_E_MEMORY;
    int64_t end = hl_clock_ns() + timeout_ns;
    enum hl_status status = hl_pool_find_address(p, address, diag);
    while (status == HL_OK && is_awaited(p, with_job)) {
        if (hl_clock_ns() < end) hl_sleep_ns(LOOK_AGAIN_NS);
        else {
            status = not_there(p, timeout_ns, diag);
            break;
        }
    }
    if (status == HL_OK) status = attach(p, diag);
    if (status == HL_OK) return *out = p, HL_OK;
    hl_pool_unmap(p);
    hl_free(mem, p);
    return status;
}

/* ---- owning, closing ---- */

static void unlink_in(const char *folder, const char *name) {
    char path[HL_PATH_CAPACITY];
    if (hl_path_join(path, folder, name)) (void)unlink(path);
}

void hl_pool_remove_snapshot(const char *folder) {
    unlink_in(folder, HL_POOL_SNAPSHOT);
    unlink_in(folder, HL_POOL_SNAPSHOT_ASIDE);
}

void hl_pool_remove_folder(const char *folder, uint32_t n_devices) {
    char name[32];
    for (uint32_t d = 0; d < n_devices; d++) {
        (void)snprintf(name, sizeof name, "dev%u", d);
        unlink_in(folder, name);
    }
    unlink_in(folder, "beds");
    hl_pool_remove_snapshot(folder);
    unlink_in(folder, "lock");
    (void)rmdir(folder);
}

enum hl_status hl_pool_take_lock(struct hl_pool *p, struct hl_diag *diag) {
    char path[HL_PATH_CAPACITY];
    if (p->lock >= 0) return HL_OK;
    if (!hl_path_join(path, p->folder, "lock")) return hl_pool_too_long(p->folder, diag);
    p->lock = hl_shared_lock(path, true);
    p->made_pid = getpid();
    if (p->lock >= 0) return HL_OK;
    if (errno != EWOULDBLOCK) return hl_fail_at(diag, HL_E_IO, path, 0, 0, "cannot lock: %m");
    return hl_fail(diag, HL_E_USER,
                   "pool %s is in use by the job of pid %lld on %s: wait for it, stop it, or make "
                   "another pool",
                   p->address, (long long)p->head.job.owner.pid, p->head.job.host);
}

/* The job is over; ranks that are left see another generation and write no more. */
static void end_job(struct hl_pool *p) {
    bool kept = p->head.flags & HL_POOL_KEPT;
    p->head.job = (struct hl_pool_job){0};
    p->head.generation++;
    hl_pool_write_heads(p);
    for (uint32_t d = 0; d < p->head.n_devices && !kept && p->listed; d++)
        hl_pool_clear(p, d, 0, HL_POOL_HEAD_BYTES);
}

void hl_pool_close(struct hl_pool *p) {
    if (!p) return;
    bool owner = p->lock >= 0 && p->made_pid == getpid();
    bool kept = p->head.flags & HL_POOL_KEPT;
    if (owner) end_job(p);
    hl_pool_unmap(p);
    if (owner && kept) unlink_in(p->folder, "beds"), hl_pool_remove_snapshot(p->folder);
    if (owner && (!kept || p->listed))
        hl_pool_remove_folder(p->folder, p->listed ? 0 : p->head.n_devices);
    hl_shared_unlock(p->lock);
    hl_free(p->mem, p);
}
