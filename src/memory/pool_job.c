/* Who uses a pool: the owner of a job, its ranks, their hearts. See pool.h. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "halley/text_number.h"
#include "memory/pool.h"
#include "memory/pool_internal.h"
#include "os/futex.h"

enum { LINE = HL_LINE_BYTES };
static const int64_t HEART_WATCH_NS = 1000000000;

static uint64_t record_at(const struct hl_pool *p, int rank) {
    return p->head.records.offset + (uint64_t)rank * p->head.record_bytes;
}

/* ---- who is there ---- */

void hl_pool_look(const struct hl_pool *p, int rank, struct hl_pool_user *out) {
    struct hl_pool_heart heart;
    *out = (struct hl_pool_user){0};
    hl_pool_get(p, 0, record_at(p, rank), &out->record, sizeof out->record);
    hl_pool_get(p, 0, record_at(p, rank) + LINE, &heart, sizeof heart);
    hl_pool_get(p, 0, record_at(p, rank) + 2 * LINE, out->host, sizeof out->host);
    out->host[sizeof out->host - 1] = 0;
    out->attached = out->record.attached != 0;
    out->beat = heart.beat;
    out->life = hl_identity_life(&out->record.who);
}

bool hl_pool_owner_lives(const struct hl_pool *p) {
    struct hl_identity own;
    char path[HL_PATH_CAPACITY];
    hl_identity_own(&own);
    if (!hl_identity_same_kernel(&own, &p->head.job.owner)) return true;
    return hl_path_join(path, p->folder, "lock") && !hl_shared_lock_is_free(path);
}

static enum hl_status still_used(const struct hl_pool *p, int rank, const struct hl_pool_user *u,
                                 struct hl_diag *diag) {
    return hl_fail(diag, HL_E_USER,
                   "pool %s is still used by rank %d of a job (pid %lld on %s): wait for it or end "
                   "it first",
                   p->address, rank, (long long)u->record.who.pid, u->host);
}

enum hl_status hl_pool_check_idle(const struct hl_pool *p, bool force, struct hl_diag *diag) {
    struct hl_pool_user before[HL_POOL_RECORDS], now;
    int unseen = -1;
    for (int r = 0; r < HL_POOL_RECORDS; r++) {
        hl_pool_look(p, r, &before[r]);
        if (!before[r].attached) continue;
        if (before[r].life == HL_ALIVE) return still_used(p, r, &before[r], diag);
        if (before[r].life == HL_OUT_OF_SIGHT && unseen < 0) unseen = r;
    }
    if (unseen < 0) return HL_OK;
    hl_sleep_ns(HEART_WATCH_NS);
    for (int r = 0; r < HL_POOL_RECORDS; r++) {
        hl_pool_look(p, r, &now);
        if (before[r].attached && now.beat != before[r].beat) return still_used(p, r, &now, diag);
    }
    if (force) return HL_OK;
    return hl_fail(diag, HL_E_USER,
                   "pool %s: rank %d of an earlier job (pid %lld on %s) did not detach, its heart "
                   "stands still, and its process cannot be seen from here: when it is surely "
                   "gone, 'halley pool check %s --force' forgets it",
                   p->address, unseen, (long long)before[unseen].record.who.pid,
                   before[unseen].host, p->address);
}

/* ---- beginning ---- */

static enum hl_status check_size(const struct hl_pool *p, uint64_t lines_bytes, uint64_t bulk_bytes,
                                 struct hl_diag *diag) {
    struct hl_pool_head head = p->head;
    char need[40], have[40];
    uint64_t needed = hl_pool_head_lay_out(&head, lines_bytes, bulk_bytes);
    hl_print_bytes(need, sizeof need, needed);
    hl_print_bytes(have, sizeof have, p->head.device_bytes);
    if (needed <= p->head.device_bytes) return HL_OK;
    return hl_fail(diag, HL_E_USER,
                   "pool %s: each of its %u devices has %s, and this job needs %s on each: use a "
                   "larger pool, fewer ranks, fewer lanes or smaller parts",
                   p->address, p->head.n_devices, have, need);
}

/* A new file, so that a process that slept on the old one disturbs nobody. */
static enum hl_status make_beds(const struct hl_pool *p, struct hl_diag *diag) {
    char path[HL_PATH_CAPACITY];
    struct hl_shared_room room;
    if (!hl_path_join(path, p->folder, "beds"))
        return hl_fail(diag, HL_E_USER, "the pool's address '%.80s...' is too long", p->folder);
    enum hl_status status = hl_shared_room(p->folder, &room, diag);
    (void)unlink(path);
    return status == HL_OK ? hl_shared_make(path, room.page_bytes, diag) : status;
}

static uint32_t new_incarnation(uint32_t old) {
    uint32_t random = 0;
    if (!hl_random_bytes(&random, sizeof random)) random = old + 1;
    return random && random != old ? random : old + 1 ? old + 1 : 1;
}

/* First nobody's: what is left of earlier ranks fences itself. Then clean, then this job's. */
static void write_job(struct hl_pool *p, const struct hl_pool_job *job, bool one_kernel,
                      uint64_t lines_bytes, uint64_t bulk_bytes) {
    p->head.job = (struct hl_pool_job){0};
    p->head.generation++;
    p->head.incarnation = new_incarnation(p->head.incarnation);
    p->head.flags &= ~(uint32_t)HL_POOL_ONE_KERNEL;
    if (one_kernel) p->head.flags |= HL_POOL_ONE_KERNEL;
    (void)hl_pool_head_lay_out(&p->head, lines_bytes, bulk_bytes);
    hl_pool_write_heads(p);
    hl_pool_clear(p, 0, p->head.records.offset, p->head.records.bytes);
    hl_pool_clear(p, 0, p->head.lines.offset, p->head.lines.bytes);
    p->head.job = *job;
    hl_identity_own(&p->head.job.owner);
    hl_host_name(p->head.job.host, sizeof p->head.job.host);
    hl_pool_write_heads(p);
}

enum hl_status hl_pool_begin(struct hl_pool *p, const struct hl_pool_job *job, bool one_kernel,
                             uint64_t lines_bytes, uint64_t bulk_bytes, bool force,
                             struct hl_diag *diag) {
    assert(job->n_ranks >= 1 && job->n_ranks <= HL_POOL_RECORDS);
    enum hl_status status = check_size(p, lines_bytes, bulk_bytes, diag);
    if (status == HL_OK && p->listed && mkdir(p->folder, 0700) && errno != EEXIST)
        status = hl_fail_at(diag, HL_E_IO, p->folder, 0, 0, "cannot make the folder: %m");
    if (status == HL_OK) status = hl_pool_take_lock(p, diag);
    if (status == HL_OK) status = hl_pool_check_idle(p, force, diag);
    if (status == HL_OK && one_kernel) status = make_beds(p, diag);
    if (status == HL_OK) write_job(p, job, one_kernel, lines_bytes, bulk_bytes);
    return status;
}

enum hl_status hl_pool_map_beds(const struct hl_pool *p, struct hl_shared *out,
                                struct hl_diag *diag) {
    char path[HL_PATH_CAPACITY];
    *out = (struct hl_shared){0};
    if (!(p->head.flags & HL_POOL_ONE_KERNEL)) return HL_OK;
    if (!hl_path_join(path, p->folder, "beds"))
        return hl_fail(diag, HL_E_USER, "the pool's address '%.80s...' is too long", p->folder);
    return hl_shared_open(path, out, diag);
}

/* ---- ranks ---- */

static enum hl_status check_join(const struct hl_pool *p, int rank, struct hl_diag *diag) {
    struct hl_identity own;
    struct hl_pool_user there;
    hl_identity_own(&own);
    if (!p->head.job.n_ranks)
        return hl_fail(diag, HL_E_USER, "pool %s has no job: 'halley launch --pool %s' begins one",
                       p->address, p->address);
    if ((p->head.flags & HL_POOL_ONE_KERNEL) && !hl_identity_same_kernel(&own, &p->head.job.owner))
        return hl_fail(diag, HL_E_USER,
                       "pool %s was set up for the ranks of one machine (%s), and this is another "
                       "one: begin the job with the list of hosts",
                       p->address, p->head.job.host);
    if (!hl_pool_owner_lives(p))
        return hl_fail(diag, HL_E_USER,
                       "pool %s is stale: its owner, pid %lld on %s, is gone; remove it with "
                       "'halley pool free %s'",
                       p->address, (long long)p->head.job.owner.pid, p->head.job.host, p->address);
    hl_pool_look(p, rank, &there);
    if (there.attached && there.record.incarnation == p->head.incarnation && there.life != HL_GONE)
        return hl_fail(diag, HL_E_USER,
                       "pool %s: rank %d is attached already (pid %lld on %s): start each rank "
                       "once",
                       p->address, rank, (long long)there.record.who.pid, there.host);
    return HL_OK;
}

enum hl_status hl_pool_join(struct hl_pool *p, int rank, struct hl_diag *diag) {
    struct hl_pool_record record = {.incarnation = p->head.incarnation, .attached = 1};
    char host[LINE];
    assert(rank >= 0 && rank < HL_POOL_RECORDS);
    enum hl_status status = check_join(p, rank, diag);
    if (status != HL_OK) return status;
    hl_host_name(host, sizeof host);
    hl_identity_own(&record.who);
    hl_pool_put(p, 0, record_at(p, rank) + 2 * LINE, host, sizeof host);
    hl_pool_put(p, 0, record_at(p, rank), &record, sizeof record);
    return HL_OK;
}

bool hl_pool_is_current(const struct hl_pool *p) {
    struct hl_pool_head head;
    hl_pool_get(p, 0, 0, &head, LINE * 4);
    return head.generation == p->head.generation && head.incarnation == p->head.incarnation;
}

static void detach(struct hl_pool *p, int rank, struct hl_pool_record *record) {
    record->attached = 0;
    hl_pool_put(p, 0, record_at(p, rank), record, sizeof *record);
}

/* When the job has ended meanwhile the record may be another's. */
void hl_pool_leave(struct hl_pool *p, int rank) {
    struct hl_pool_record record;
    struct hl_identity own;
    hl_pool_get(p, 0, record_at(p, rank), &record, sizeof record);
    hl_identity_own(&own);
    if (record.attached && record.incarnation == p->head.incarnation && record.who.pid == own.pid &&
        record.who.birth == own.birth && hl_identity_same_kernel(&record.who, &own))
        detach(p, rank, &record);
}

void hl_pool_forget_gone(struct hl_pool *p) {
    for (int r = 0; r < HL_POOL_RECORDS; r++) {
        struct hl_pool_user user;
        hl_pool_look(p, r, &user);
        if (user.attached && user.life == HL_GONE) detach(p, r, &user.record);
    }
}

void hl_pool_beat(struct hl_pool *p, int rank, uint64_t beat) {
    const struct hl_pool_heart heart = {.beat = beat};
    hl_pool_put(p, 0, record_at(p, rank) + LINE, &heart, sizeof heart);
}
