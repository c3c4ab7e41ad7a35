/* What lies in a memory pool: its first page, and where everything else is. Little-endian; offsets,
 * never pointers. docs/formats/pool.md is the same in words. */
#ifndef HALLEY_MEMORY_POOL_FORMAT_H
#define HALLEY_MEMORY_POOL_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "halley/status.h"
#include "os/identity.h"

enum {
    HL_POOL_VERSION = 1,
    HL_POOL_DEVICES = 64, /* most */
    HL_POOL_RECORDS = 64, /* ranks, at most */
    HL_POOL_HEAD_BYTES = 4096,
    HL_POOL_RECORD_BYTES = 256,
    HL_POOL_STRIPE_BYTES = 2 << 20,
};

/* How writes of one host reach another. */
enum hl_pool_mode {
    HL_POOL_COHERENT,   /* one machine, or CXL 3 with back-invalidation: ordered stores do */
    HL_POOL_WRITE_BACK, /* cached, and nobody keeps it coherent: flushes */
    HL_POOL_UNCACHED,   /* mapped uncached: fences */
};
const char *hl_pool_mode_name(enum hl_pool_mode mode); /* "hc", "nc-wb", "nc-uc" */
bool hl_pool_mode_find(const char *name, enum hl_pool_mode *out);

enum { HL_POOL_MODE_BITS = 3, HL_POOL_KEPT = 4, HL_POOL_ONE_KERNEL = 8, HL_POOL_READ_BACK = 16 };

struct hl_pool_area {
    uint64_t offset, bytes;
};

/* One job's use of the pool: what its ranks must agree on. n_ranks 0: no job. */
struct hl_pool_job {
    uint32_t n_ranks, n_lanes, n_slots, unused;
    uint64_t part_bytes;
    int64_t dead_after_ns;
    struct hl_identity owner; /* the process that began it */
    char host[64];
};

/* Page 0 of each device: the same but for `device`. Written by whoever formats the pool or begins a
 * job, before ranks attach. */
struct hl_pool_head {
    char magic[8]; /* "HALLEYPL" */
    uint32_t version, flags;
    unsigned char uuid[16];
    uint32_t n_devices, device;
    uint32_t n_records, record_bytes;
    uint64_t stripe_bytes, device_bytes;
    struct hl_pool_area records, lines; /* on device 0 */
    struct hl_pool_area bulk;           /* on each device, striped over all */
    struct hl_pool_area spare[5];
    uint64_t generation;  /* of jobs: grows by one with each that begins */
    uint32_t incarnation; /* random, never 0: lines and records of another one do not count */
    uint32_t unused;
    struct hl_pool_job job;
    unsigned char plan_hash[32]; /* zeros: no plan */
    unsigned char unused_rest[4092 - 376];
    uint32_t crc32c; /* of all bytes before */
};
_Static_assert(sizeof(struct hl_pool_head) == HL_POOL_HEAD_BYTES, "the first page");

/* Who is attached as a rank. One line, written by that rank alone. */
struct hl_pool_record {
    struct hl_identity who;
    uint32_t incarnation, attached;
    uint64_t unused[2];
};
_Static_assert(sizeof(struct hl_pool_record) == 64, "one line");
/* The record's second line: that rank's heart. Its third: the host's name. */
struct hl_pool_heart {
    uint64_t beat, unused[7];
};

/* A head for new devices: areas, checksum and device number are still to be set. */
void hl_pool_head_begin(struct hl_pool_head *head, uint32_t n_devices, uint64_t device_bytes,
                        enum hl_pool_mode mode, bool kept);
/* Areas for lines_bytes of lines and bulk_bytes in all of bulk, a multiple of stripe * devices.
 * Bytes that each device must have are returned. */
uint64_t hl_pool_head_lay_out(struct hl_pool_head *head, uint64_t lines_bytes, uint64_t bulk_bytes);
void hl_pool_head_seal(struct hl_pool_head *head, uint32_t device);
/* errors HL_E_FORMAT: no pool, or damaged; HL_E_UNSUPPORTED: another version */
enum hl_status hl_pool_head_check(const struct hl_pool_head *head, const char *path,
                                  struct hl_diag *diag) HL_MUST_CHECK;
enum hl_pool_mode hl_pool_head_mode(const struct hl_pool_head *head);

/* Where byte `at` of the bulk lies: on device *device_out, at the offset that is returned. */
uint64_t hl_pool_stripe(const struct hl_pool_head *head, uint64_t at, uint32_t *device_out);

#endif
