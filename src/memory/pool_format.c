/* The first page of a pool. See pool_format.h. */
#include "memory/pool_format.h"

#include <assert.h>
#include <string.h>

#include "base/crc32c.h"

static const char magic[8] = {'H', 'A', 'L', 'L', 'E', 'Y', 'P', 'L'};
static const char *const mode_names[] = {"hc", "nc-wb", "nc-uc"};
enum { N_MODES = sizeof mode_names / sizeof *mode_names };

const char *hl_pool_mode_name(enum hl_pool_mode mode) {
    return (size_t)mode < N_MODES ? mode_names[mode] : "?";
}

bool hl_pool_mode_find(const char *name, enum hl_pool_mode *out) {
    for (int m = 0; m < N_MODES; m++)
        if (!strcmp(name, mode_names[m])) return *out = (enum hl_pool_mode)m, true;
    return false;
}

void hl_pool_head_begin(struct hl_pool_head *head, uint32_t n_devices, uint64_t device_bytes,
                        enum hl_pool_mode mode, bool kept) {
    assert(n_devices >= 1 && n_devices <= HL_POOL_DEVICES);
    *head = (struct hl_pool_head){.version = HL_POOL_VERSION,
                                  .flags = (uint32_t)mode | (kept ? HL_POOL_KEPT : 0),
                                  .n_devices = n_devices,
                                  .n_records = HL_POOL_RECORDS,
                                  .record_bytes = HL_POOL_RECORD_BYTES,
                                  .stripe_bytes = HL_POOL_STRIPE_BYTES,
                                  .device_bytes = device_bytes};
    memcpy(head->magic, magic, sizeof magic);
    head->records =
        (struct hl_pool_area){HL_POOL_HEAD_BYTES, (uint64_t)HL_POOL_RECORDS * HL_POOL_RECORD_BYTES};
}

uint64_t hl_pool_head_lay_out(struct hl_pool_head *head, uint64_t lines_bytes,
                              uint64_t bulk_bytes) {
    uint64_t s = head->stripe_bytes, first = head->records.offset + head->records.bytes;
    assert(bulk_bytes % (s * head->n_devices) == 0);
    head->lines = (struct hl_pool_area){first, lines_bytes};
    head->bulk =
        (struct hl_pool_area){(first + lines_bytes + s - 1) / s * s, bulk_bytes / head->n_devices};
    return head->bulk.offset + head->bulk.bytes;
}

static uint32_t sum_of(const struct hl_pool_head *head) {
    return hl_crc32c(head, offsetof(struct hl_pool_head, crc32c));
}

void hl_pool_head_seal(struct hl_pool_head *head, uint32_t device) {
    head->device = device;
    head->crc32c = sum_of(head);
}

/* Sizes that a mapping is later indexed with: a page that was made to deceive must not. */
static bool makes_sense(const struct hl_pool_head *h) {
    uint64_t n = h->device_bytes;
    return h->n_devices >= 1 && h->n_devices <= HL_POOL_DEVICES && h->device < h->n_devices &&
           h->n_records == HL_POOL_RECORDS && h->record_bytes == HL_POOL_RECORD_BYTES &&
           h->stripe_bytes == HL_POOL_STRIPE_BYTES && h->records.offset == HL_POOL_HEAD_BYTES &&
           h->lines.offset <= n && h->lines.bytes <= n - h->lines.offset && h->bulk.offset <= n &&
           h->bulk.bytes <= n - h->bulk.offset && h->job.n_ranks <= HL_POOL_RECORDS;
}

enum hl_status hl_pool_head_check(const struct hl_pool_head *head, const char *path,
                                  struct hl_diag *diag) {
    if (memcmp(head->magic, magic, sizeof magic) != 0)
        return hl_fail_at(diag, HL_E_FORMAT, path, 0, 0,
                          "holds no pool: it does not begin with HALLEYPL; 'halley pool create' "
                          "makes one");
    if (head->version != HL_POOL_VERSION)
        return hl_fail_at(diag, HL_E_UNSUPPORTED, path, 0, 0,
                          "is a pool of format version %u, and this program knows version %d: "
                          "use the same halley on all machines, or make the pool again with "
                          "'halley pool create --force'",
                          head->version, HL_POOL_VERSION);
    if (head->crc32c != sum_of(head) || !makes_sense(head))
        return hl_fail_at(diag, HL_E_FORMAT, path, 0, 0,
                          "the first page of the pool is damaged (checksum %08x, not %08x): make "
                          "it again with 'halley pool create --force'",
                          sum_of(head), head->crc32c);
    return HL_OK;
}

enum hl_pool_mode hl_pool_head_mode(const struct hl_pool_head *head) {
    return (enum hl_pool_mode)(head->flags & HL_POOL_MODE_BITS);
}

uint64_t hl_pool_stripe(const struct hl_pool_head *head, uint64_t at, uint32_t *device_out) {
    uint64_t stripe = at / head->stripe_bytes;
    *device_out = (uint32_t)(stripe % head->n_devices);
    return head->bulk.offset + stripe / head->n_devices * head->stripe_bytes +
           at % head->stripe_bytes;
}
