/* See snapshot.h. */
#include "memory/snapshot.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "memory/pool_internal.h"

enum {
    LINE = HL_LINE_BYTES,
    LINE_FLOATS = LINE / (int)sizeof(float),
    PAGE = HL_SNAPSHOT_PAGE_BYTES,
    BASES = PAGE,
    READYS = 2 * PAGE,
    NOTES = 3 * PAGE, /* two */
    COPIES = 5 * PAGE,
};
static const char magic[8] = {'H', 'A', 'L', 'L', 'E', 'Y', 'S', 'N'};

struct note {
    uint32_t n, crc32c;
    char text[HL_SNAPSHOT_NOTE_BYTES];
};
_Static_assert(sizeof(struct note) == PAGE, "one page");

static uint64_t copy_elements(const struct hl_snapshot_shape *shape) {
    return shape->n_shared + shape->n_seats * shape->n_own;
}

uint64_t hl_snapshot_bytes(const struct hl_snapshot_shape *shape) {
    uint64_t bytes = COPIES + 2 * copy_elements(shape) * sizeof(float);
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

/* ---- few bytes, at once ---- */

static void put(struct hl_snapshot *s, uint64_t offset, const void *data, size_t n) {
    memcpy(s->memory.write + offset, data, n);
    hl_lines_flush(s->flush, s->memory.write + offset, n);
    hl_fence_all();
}

static void get(const struct hl_snapshot *s, uint64_t offset, void *out, size_t n) {
    hl_lines_flush(s->flush, s->memory.read + offset, n);
    hl_fence_all();
    memcpy(out, s->memory.read + offset, n);
}

/* ---- life ---- */

static uint32_t head_sum(const struct hl_snapshot_head *head) {
    return hl_crc32c(head, offsetof(struct hl_snapshot_head, crc32c));
}

/* Under another name until all is in it: whoever makes it may be killed at any time. */
static enum hl_status make_aside(const char *path, const char *aside,
                                 const struct hl_snapshot_head *head, uint64_t bytes,
                                 struct hl_diag *diag) {
    struct hl_snapshot s = {.flush = hl_flush_kind()};
    enum hl_status status = hl_shared_make(aside, bytes, diag);
    if (status == HL_OK) status = hl_shared_open(aside, &s.memory, diag);
    if (status != HL_OK) return status;
    put(&s, 0, head, sizeof *head);
    hl_snapshot_close(&s);
    if (!rename(aside, path)) return HL_OK;
    status = hl_fail_at(diag, HL_E_IO, path, 0, 0, "cannot make it: %m");
    (void)unlink(aside);
    return status;
}

enum hl_status hl_snapshot_make(const char *path, const struct hl_snapshot_shape *shape,
                                struct hl_diag *diag) {
    char folder[HL_PATH_CAPACITY], aside[HL_PATH_CAPACITY];
    struct hl_snapshot_head head = {.version = HL_SNAPSHOT_VERSION,
                                    .n_seats = shape->n_seats,
                                    .n_shared = shape->n_shared,
                                    .n_own = shape->n_own};
    uint64_t bytes = hl_snapshot_bytes(shape);
    assert(shape->n_shared % LINE_FLOATS == 0 && shape->n_own % LINE_FLOATS == 0);
    assert(shape->n_seats >= 1 && shape->n_seats <= HL_SNAPSHOT_SEATS);
    memcpy(head.magic, magic, sizeof magic);
    head.crc32c = head_sum(&head);
    (void)snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(path, '/') - path), path);
    if (!hl_path_join(aside, folder, HL_POOL_SNAPSHOT_ASIDE)) return hl_pool_too_long(path, diag);
    (void)unlink(path);
    (void)unlink(aside);
    enum hl_status status =
        hl_pool_check_room(folder, bytes, "--elastic keeps two copies of the state in memory: it",
                           "train without it, or with a smaller model or fewer ranks", diag);
    return status == HL_OK ? make_aside(path, aside, &head, bytes, diag) : status;
}

static enum hl_status check_head(struct hl_snapshot *s, const char *path, struct hl_diag *diag) {
    struct hl_snapshot_head head = {.version = 0};
    if (s->memory.n_bytes >= PAGE) get(s, 0, &head, sizeof head);
    s->shape = (struct hl_snapshot_shape){head.n_shared, head.n_own, head.n_seats};
    bool ours = !memcmp(head.magic, magic, sizeof magic) && head.crc32c == head_sum(&head);
    if (ours && head.version != HL_SNAPSHOT_VERSION)
        return hl_fail_at(diag, HL_E_FORMAT, path, 0, 0,
                          "is the state of a run of another version of halley");
    if (!ours || hl_snapshot_bytes(&s->shape) > s->memory.n_bytes)
        return hl_fail_at(diag, HL_E_FORMAT, path, 0, 0, "is not the state of a run");
    return HL_OK;
}

enum hl_status hl_snapshot_open(const char *path, struct hl_snapshot *out, struct hl_diag *diag) {
    struct hl_snapshot s = {.flush = hl_flush_kind()};
    if (access(path, F_OK) && errno == ENOENT) return HL_END;
    enum hl_status status = hl_shared_open(path, &s.memory, diag);
    if (status == HL_OK) status = check_head(&s, path, diag);
    if (status == HL_OK) *out = s;
    else hl_snapshot_close(&s);
    return status;
}

void hl_snapshot_close(struct hl_snapshot *s) {
    hl_shared_close(&s->memory);
    *s = (struct hl_snapshot){.flush = HL_FLUSH_NONE};
}

/* ---- bases and READYs ---- */

static uint32_t base_sum(const struct hl_snapshot_base *base) {
    return hl_crc32c(base, offsetof(struct hl_snapshot_base, crc32c));
}

enum hl_status hl_snapshot_last(const struct hl_snapshot *s, struct hl_snapshot_base *out) {
    struct hl_snapshot_base newest = {.sequence = 0};
    for (int i = 0; i < 2; i++) {
        struct hl_snapshot_base base;
        get(s, BASES + (uint64_t)i * LINE, &base, sizeof base);
        if (base.crc32c == base_sum(&base) && base.sequence > newest.sequence) newest = base;
    }
    if (!newest.sequence) return HL_END;
    *out = newest;
    return HL_OK;
}

void hl_snapshot_begin(struct hl_snapshot *s, const struct hl_snapshot_base *base) {
    struct hl_snapshot_base last = {.sequence = 0}, next = *base;
    (void)hl_snapshot_last(s, &last);
    next.sequence = last.sequence + 1;
    next.crc32c = base_sum(&next);
    put(s, BASES + (next.sequence % 2) * LINE, &next, sizeof next);
}

int64_t hl_snapshot_committed(const struct hl_snapshot *s, const struct hl_snapshot_base *base) {
    int64_t least = INT64_MAX;
    for (uint64_t seat = 0; seat < HL_SNAPSHOT_SEATS; seat++) {
        struct hl_snapshot_ready ready;
        if (!(base->seats >> seat & 1)) continue;
        get(s, READYS + seat * LINE, &ready, sizeof ready);
        int64_t step = ready.generation == base->generation ? ready.step : base->step;
        if (step < least) least = step;
    }
    return least;
}

uint64_t hl_snapshot_writers(const struct hl_snapshot_base *base, int64_t step) {
    return step == base->step ? base->writers : base->seats;
}

/* The step before the generation: a line that is half written is of an older generation still, or
 * differs from a whole one in one word. */
void hl_snapshot_ready(struct hl_snapshot *s, int seat, uint64_t generation, int64_t step) {
    struct hl_snapshot_ready *line =
        (struct hl_snapshot_ready *)(void *)(s->memory.write + READYS + (size_t)seat * LINE);
    hl_fence_stores();
    __atomic_store_n(&line->step, step, __ATOMIC_RELEASE);
    __atomic_store_n(&line->generation, generation, __ATOMIC_RELEASE);
    hl_line_flush(line);
    hl_fence_all();
}

/* ---- the state ---- */

int64_t hl_snapshot_own(const struct hl_snapshot *s, int seat) {
    return (int64_t)(s->shape.n_shared + (uint64_t)seat * s->shape.n_own);
}

static uint64_t place(const struct hl_snapshot *s, int64_t step, int64_t first, int64_t n) {
    uint64_t all = copy_elements(&s->shape);
    assert(first >= 0 && n >= 0 && (uint64_t)(first + n) <= all);
    return COPIES + ((uint64_t)(step % 2) * all + (uint64_t)first) * sizeof(float);
}

void hl_snapshot_write(struct hl_snapshot *s, int64_t step, int64_t first, int64_t n,
                       const float *data) {
    int64_t whole = n / LINE_FLOATS * LINE_FLOATS;
    char *to = s->memory.write + place(s, step, first, n);
    assert(first % LINE_FLOATS == 0);
    hl_lines_stream(to, data, (size_t)whole * sizeof *data);
    if (whole == n) return;
    _Alignas(LINE) float last[LINE_FLOATS] = {0};
    memcpy(last, data + whole, (size_t)(n - whole) * sizeof *data);
    hl_lines_stream(to + whole * (int64_t)sizeof *data, last, sizeof last);
}

void hl_snapshot_read(const struct hl_snapshot *s, int64_t step, int64_t first, int64_t n,
                      float *out) {
    get(s, place(s, step, first, n), out, (size_t)n * sizeof *out);
}

void hl_snapshot_write_note(struct hl_snapshot *s, int64_t step, const char *text) {
    struct note note = {.n = (uint32_t)strlen(text)};
    assert(note.n < sizeof note.text);
    memcpy(note.text, text, note.n);
    note.crc32c = hl_crc32c(note.text, note.n);
    put(s, NOTES + (uint64_t)(step % 2) * PAGE, &note, sizeof note);
}

bool hl_snapshot_read_note(const struct hl_snapshot *s, int64_t step,
                           char out[HL_SNAPSHOT_NOTE_BYTES]) {
    struct note note;
    get(s, NOTES + (uint64_t)(step % 2) * PAGE, &note, sizeof note);
    if (note.n >= sizeof note.text || note.crc32c != hl_crc32c(note.text, note.n)) return false;
    memcpy(out, note.text, note.n);
    out[note.n] = 0;
    return true;
}
