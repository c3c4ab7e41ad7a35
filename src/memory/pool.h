/* A memory pool: one or several files or devices that processes, maybe of several hosts, map and
 * use together. This room knows what lies where and who uses it; the protocol between ranks is the
 * wires' business (wires/ring.h, wires/pool.h).
 *
 * A pool is known by its address:
 *   NAME             the folder /dev/shm/halley-NAME
 *   /FOLDER          files (or links to devices) dev0, dev1, ... in it
 *   /FILE[,/FILE...] these files or DAX devices, in this order
 * Beside the devices there is a folder on each host, outside the pool: the address's own, or
 * /dev/shm/halley-UUID. It holds `lock`, which the owner of a job holds while it lives, `beds`,
 * where ranks of one kernel sleep, and perhaps `snapshot` (snapshot.h), which the owner's end
 * removes. */
#ifndef HALLEY_MEMORY_POOL_H
#define HALLEY_MEMORY_POOL_H

#include "halley/mem.h"
#include "memory/pool_format.h"
#include "os/fs.h"
#include "os/lines.h"
#include "os/shared.h"

struct hl_pool {
    struct hl_mem *mem;
    char address[HL_PATH_CAPACITY]; /* what other processes attach to */
    char folder[HL_PATH_CAPACITY];  /* of this host */
    bool listed;                    /* the address is a list of files */
    struct hl_pool_head head;       /* as of attaching, or of the job that was begun */
    struct hl_shared devices[HL_POOL_DEVICES];
    int lock;         /* of the owner; else -1 */
    int64_t made_pid; /* a fork's child owns nothing */
    enum hl_flush flush;
};

struct hl_pool_spec {
    const char *address; /* NULL: a new name */
    uint32_t n_devices;  /* of a new folder; 0: 1 */
    uint64_t device_bytes;
    enum hl_pool_mode mode;
    bool read_back; /* nc-wb: rule 15 */
    bool kept;      /* stays when its maker ends; else the maker's end is the pool's */
    bool force;     /* format files that hold something, or a pool whose users cannot be seen */
};

/* A new pool, zeroed, without a job. Nothing is written unless all of it can be had.
 * errors HL_E_USER: it exists, holds something else, too small; HL_E_IO: no room, with the size
 * that is needed */
enum hl_status hl_pool_make(struct hl_mem *mem, const struct hl_pool_spec *spec,
                            struct hl_pool **out, struct hl_diag *diag) HL_MUST_CHECK;
/* Map an existing pool. Nothing is written. timeout_ns: how long to wait for one to appear, and
 * with_job for its job to begin.
 * errors HL_E_USER: none there, a device is smaller or of another pool; HL_E_FORMAT: damaged;
 * HL_E_UNSUPPORTED: another version; HL_E_TIMEOUT */
enum hl_status hl_pool_attach(struct hl_mem *mem, const char *address, bool with_job,
                              int64_t timeout_ns, struct hl_pool **out,
                              struct hl_diag *diag) HL_MUST_CHECK;
/* Unmap. The owner of a job ends it; a pool that is not kept goes with it, files and all. */
void hl_pool_close(struct hl_pool *pool);

/* ---- jobs ---- */

/* Become the owner and clear lines and records for a new generation of ranks. The job's owner and
 * host are filled in here. force: although ranks of another kernel did not detach.
 * errors HL_E_USER: in use, by whom; too small, with the size needed */
enum hl_status hl_pool_begin(struct hl_pool *pool, const struct hl_pool_job *job, bool one_kernel,
                             uint64_t lines_bytes, uint64_t bulk_bytes, bool force,
                             struct hl_diag *diag) HL_MUST_CHECK;
/* Attach as `rank` of the job. errors HL_E_USER: no job, its owner is gone, made for one kernel and
 * this is another, somebody is this rank already */
enum hl_status hl_pool_join(struct hl_pool *pool, int rank, struct hl_diag *diag) HL_MUST_CHECK;
/* Also when the job has ended, as long as no other one has begun. */
void hl_pool_leave(struct hl_pool *pool, int rank);
/* Detach ranks of any job whose processes are seen to be gone: those of other machines, or in
 * another pid namespace, are only seen there. */
void hl_pool_forget_gone(struct hl_pool *pool);
void hl_pool_beat(struct hl_pool *pool, int rank, uint64_t beat);
/* Is the job that this process attached to still the pool's? Looks into the pool. */
bool hl_pool_is_current(const struct hl_pool *pool);
/* The pages in which ranks of one kernel sleep; HL_POOL_RECORDS lines.
 * errors HL_E_IO; *out zeroed when the job is one of several kernels */
enum hl_status hl_pool_map_beds(const struct hl_pool *pool, struct hl_shared *out,
                                struct hl_diag *diag) HL_MUST_CHECK;

/* ---- who is there ---- */

struct hl_pool_user {
    struct hl_pool_record record;
    bool attached;
    enum hl_life life;
    uint64_t beat;
    char host[64];
};
void hl_pool_look(const struct hl_pool *pool, int rank, struct hl_pool_user *out);
/* The owner holds its lock, or it is out of sight. */
bool hl_pool_owner_lives(const struct hl_pool *pool);
/* HL_E_USER names the first rank of any job that may still write, unless force and it is out of
 * sight. Waits a second for hearts that are out of sight. */
enum hl_status hl_pool_check_idle(const struct hl_pool *pool, bool force,
                                  struct hl_diag *diag) HL_MUST_CHECK;

/* ---- going away ---- */

/* Files are removed; devices lose their first page. errors HL_E_USER: in use */
enum hl_status hl_pool_remove(struct hl_mem *mem, const char *address, bool force,
                              struct hl_diag *diag) HL_MUST_CHECK;
/* Remove the pools in `parent` (NULL: /dev/shm) that were not to be kept and whose owner is gone.
 * n_out may be NULL. */
enum hl_status hl_pool_sweep(struct hl_mem *mem, const char *parent, int *n_out,
                             struct hl_diag *diag) HL_MUST_CHECK;
/* Calls visit(context, address) for each pool in `parent`. */
enum hl_status hl_pool_list(const char *parent, void (*visit)(void *context, const char *address),
                            void *context, struct hl_diag *diag) HL_MUST_CHECK;

/* ---- paths ---- */

enum hl_pool_place { HL_POOL_FOLDER, HL_POOL_LIST };
#define HL_POOL_PARENT "/dev/shm"
#define HL_POOL_PREFIX "halley-"
#define HL_POOL_SNAPSHOT "snapshot"
#define HL_POOL_SNAPSHOT_ASIDE "snapshot.new" /* until it is whole */
#define HL_POOL_UNFINISHED ".new-"            /* then the maker's pid: not all is in it yet */
/* A name becomes a folder's path; other addresses stay. false: too long. */
bool hl_pool_full_address(const char *address, char out[HL_PATH_CAPACITY]) HL_MUST_CHECK;
enum hl_pool_place hl_pool_place_of(const char *full_address);
uint32_t hl_pool_n_listed(const char *list);
/* The path of device d. false: there is none. */
bool hl_pool_device_path(const char *full_address, uint32_t d,
                         char out[HL_PATH_CAPACITY]) HL_MUST_CHECK;
/* The folder of this host for a pool that is a list. */
void hl_pool_list_folder(const unsigned char uuid[16], char out[HL_PATH_CAPACITY]);

/* ---- bytes ---- */

/* In any mode, at once: for what is written and read now and then. */
void hl_pool_put(const struct hl_pool *pool, uint32_t device, uint64_t offset, const void *data,
                 size_t n);
void hl_pool_get(const struct hl_pool *pool, uint32_t device, uint64_t offset, void *out, size_t n);
void hl_pool_clear(const struct hl_pool *pool, uint32_t device, uint64_t offset, uint64_t n);

#endif
