/* The state of a run in memory that outlives its ranks: a checkpoint that every step renews. A
 * file beside the pool; docs/formats/snapshot.md is the same in words.
 *
 * It holds two copies: of even steps and of odd ones. A copy is a part that all ranks share, whose
 * elements do not depend on how many they are, a part for each seat, and a note of where the run
 * is. A seat is what a rank, and whoever replaces it, keeps when ranks are counted anew. Each rank
 * writes its slices of what is shared and its seat's part of a step into copy step % 2, and then
 * its READY line.
 *
 * READY rule. A rank takes part in step t + 1 only after it was ready with t, and no step is made
 * without all ranks. So whoever is ready with t + 1 knows that all are with t: READYs differ by one
 * at most, their least t is a step that is whole in its copy, and nobody writes there before all
 * are ready with t + 1. That holds wherever each rank is frozen.
 *
 * A base says from which step a generation of ranks began, and which seats they have. READY lines
 * of another generation do not count: their ranks stand at the base. So one store of a base, which
 * is whole or not there, passes from one generation to the next; before it the old READYs still
 * tell the same step, after it nobody's do. The copy of the base's own step was written by ranks of
 * an older generation: the base names their seats too.
 *
 * Bytes go past the caches, lines are flushed when they are written and dropped before they are
 * read, so it does not matter whether the memory is coherent (rules 2 to 4 of
 * docs/formats/pool.md).
 */
#ifndef HALLEY_MEMORY_SNAPSHOT_H
#define HALLEY_MEMORY_SNAPSHOT_H

#include "halley/mem.h"
#include "memory/pool_format.h"
#include "os/lines.h"
#include "os/shared.h"

enum {
    HL_SNAPSHOT_VERSION = 2,
    HL_SNAPSHOT_PAGE_BYTES = 4096,
    HL_SNAPSHOT_NOTE_BYTES = HL_SNAPSHOT_PAGE_BYTES - 8, /* of text, its end included */
    HL_SNAPSHOT_SEATS = HL_POOL_RECORDS,
};

/* Elements are f32; multiples of 16, a line. */
struct hl_snapshot_shape {
    uint64_t n_shared, n_own; /* of all ranks; of each seat */
    uint32_t n_seats;         /* at most HL_SNAPSHOT_SEATS */
};
/* Page 0. Written before anybody else maps the file. */
struct hl_snapshot_head {
    char magic[8]; /* "HALLEYSN" */
    uint32_t version, n_seats;
    uint64_t n_shared, n_own, unused[3];
    uint32_t unused32, crc32c; /* of all bytes before */
};
/* Page 1: two of them, used in turn by rank 0. */
struct hl_snapshot_base {
    uint64_t sequence; /* the larger one counts */
    uint64_t generation;
    int64_t step;
    uint64_t seats, writers; /* bit s: seat s. Of the generation; of those who wrote step's copy */
    uint64_t unused[2];
    uint32_t unused32, crc32c; /* of all bytes before */
};
/* Page 2: one for each seat, written by its rank alone, the generation last. */
struct hl_snapshot_ready {
    uint64_t generation;
    int64_t step;
    uint64_t unused[6];
};
_Static_assert(sizeof(struct hl_snapshot_head) == HL_LINE_BYTES, "one line");
_Static_assert(sizeof(struct hl_snapshot_base) == HL_LINE_BYTES, "one line");
_Static_assert(sizeof(struct hl_snapshot_ready) == HL_LINE_BYTES, "one line");
_Static_assert(HL_SNAPSHOT_SEATS *HL_LINE_BYTES <= HL_SNAPSHOT_PAGE_BYTES, "READY lines");

struct hl_snapshot {
    struct hl_shared memory;
    struct hl_snapshot_shape shape;
    enum hl_flush flush;
};

/* Bytes of the file. */
uint64_t hl_snapshot_bytes(const struct hl_snapshot_shape *shape);
/* A new file, in a pool's folder, in the place of an older one; it has no base yet. Nothing is
 * written when there is not enough room. errors HL_E_IO: no room, with the size that is needed and
 * what to do */
enum hl_status hl_snapshot_make(const char *path, const struct hl_snapshot_shape *shape,
                                struct hl_diag *diag) HL_MUST_CHECK;
/* Map it. HL_END: there is none. errors HL_E_FORMAT: damaged, or of another version; HL_E_IO */
enum hl_status hl_snapshot_open(const char *path, struct hl_snapshot *out,
                                struct hl_diag *diag) HL_MUST_CHECK;
void hl_snapshot_close(struct hl_snapshot *s); /* a zeroed one may be closed */

/* The newest base. HL_END: none was written. */
enum hl_status hl_snapshot_last(const struct hl_snapshot *s, struct hl_snapshot_base *out);
/* By rank 0, when no rank of an older generation lives and all of this one have read what they need
 * to know of it: all but `sequence` of `base` counts from now on. */
void hl_snapshot_begin(struct hl_snapshot *s, const struct hl_snapshot_base *base);
/* The last step that all ranks of the base committed. */
int64_t hl_snapshot_committed(const struct hl_snapshot *s, const struct hl_snapshot_base *base);

/* Bit s: seat s has a part in the copy of that step. */
uint64_t hl_snapshot_writers(const struct hl_snapshot_base *base, int64_t step);

/* Where the part of a seat begins in a copy; what is shared begins at 0. */
int64_t hl_snapshot_own(const struct hl_snapshot *s, int seat);
/* Elements first ... of the copy of a step, to and from. write: first is a multiple of 16, and what
 * follows n up to the next one belongs to the writer too: it becomes 0. */
void hl_snapshot_write(struct hl_snapshot *s, int64_t step, int64_t first, int64_t n,
                       const float *data);
void hl_snapshot_read(const struct hl_snapshot *s, int64_t step, int64_t first, int64_t n,
                      float *out);
/* Text of at most HL_SNAPSHOT_NOTE_BYTES, by one rank. read: false when it is none. */
void hl_snapshot_write_note(struct hl_snapshot *s, int64_t step, const char *text);
bool hl_snapshot_read_note(const struct hl_snapshot *s, int64_t step,
                           char out[HL_SNAPSHOT_NOTE_BYTES]);
/* All that this rank wrote of the step is in the copy. */
void hl_snapshot_ready(struct hl_snapshot *s, int seat, uint64_t generation, int64_t step);

#endif
