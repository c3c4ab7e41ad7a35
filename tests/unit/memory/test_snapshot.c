/* The state that outlives ranks: where everything lies, what is refused, and that the committed
 * step is whole wherever each rank is frozen, in a generation and between two. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <unistd.h>

#include "base/crc32c.h"
#include "memory/snapshot.h"

struct rig {
    char folder[64], path[96];
    struct hl_snapshot s;
};

static void set_up(struct rig *r, const struct hl_snapshot_shape *shape) {
    struct hl_diag diag = {0};
    *r = (struct rig){.folder = "/dev/shm/test_snapshotXXXXXX"};
    assert_non_null(mkdtemp(r->folder));
    (void)snprintf(r->path, sizeof r->path, "%s/snapshot", r->folder);
    assert_int_equal(hl_snapshot_open(r->path, &r->s, &diag), HL_END);
    char aside[96];
    (void)snprintf(aside, sizeof aside, "%s/snapshot.new", r->folder);
    FILE *half = fopen(aside, "w"); /* of a rank that was killed */
    assert_true(half && !fclose(half));
    assert_int_equal(hl_snapshot_make(r->path, shape, &diag), HL_OK);
    assert_int_equal(access(aside, F_OK), -1);
    if (hl_snapshot_open(r->path, &r->s, &diag) != HL_OK) fail_msg("%s", diag.text);
}

static void tear_down(struct rig *r) {
    hl_snapshot_close(&r->s);
    (void)unlink(r->path);
    assert_int_equal(rmdir(r->folder), 0);
}

/* ---- the format ---- */

static void test_golden(void **state) {
    (void)state;
    struct rig r;
    set_up(&r, &(struct hl_snapshot_shape){.n_shared = 48, .n_own = 32, .n_seats = 3});
    const char *bytes = r.s.memory.read;
    assert_int_equal(hl_snapshot_bytes(&r.s.shape), 6 * 4096); /* of 20480 + 2 * 144 * 4 */
    assert_memory_equal(bytes, "HALLEYSN\2\0\0\0\3\0\0\0\60\0\0\0\0\0\0\0\40\0\0\0\0\0\0\0", 32);
    assert_int_equal(*(const uint32_t *)(const void *)(bytes + 60), hl_crc32c(bytes, 60));
    const struct hl_snapshot_base begun = {.generation = 7, .step = 5, .seats = 2, .writers = 6};
    hl_snapshot_begin(&r.s, &begun);
    const uint64_t *base = (const uint64_t *)(const void *)(bytes + 4096 + 64);
    assert_true(base[0] == 1 && base[1] == 7 && base[2] == 5 && base[3] == 2 && base[4] == 6);
    assert_true(hl_snapshot_writers(&begun, 5) == 6 && hl_snapshot_writers(&begun, 6) == 2);
    hl_snapshot_ready(&r.s, 3, 7, 6);
    const uint64_t *ready = (const uint64_t *)(const void *)(bytes + 8192 + 3 * 64);
    assert_true(ready[0] == 7 && ready[1] == 6);
    hl_snapshot_write_note(&r.s, 5, "{}");
    assert_memory_equal(bytes + 12288 + 4096, "\2\0\0\0", 4);
    assert_memory_equal(bytes + 12288 + 4096 + 8, "{}", 3);
    float data[17], back[17];
    for (int i = 0; i < 17; i++) data[i] = (float)i + 1;
    assert_int_equal(hl_snapshot_own(&r.s, 2), 48 + 2 * 32);
    hl_snapshot_write(&r.s, 5, 48 + 2 * 32, 17, data);
    const float *copy = (const float *)(const void *)(bytes + 20480 + 144 * 4);
    assert_memory_equal(copy + 112, data, sizeof data);
    for (int i = 129; i < 144; i++) assert_true(copy[i] == 0);
    hl_snapshot_read(&r.s, 5, 48 + 2 * 32, 17, back);
    assert_memory_equal(back, data, sizeof data);
    tear_down(&r);
}

static void expect(struct rig *r, enum hl_status wanted, const char *words) {
    struct hl_diag diag = {0};
    struct hl_snapshot s;
    assert_int_equal(hl_snapshot_open(r->path, &s, &diag), wanted);
    if (!strstr(diag.text, words)) fail_msg("no '%s' in: %s", words, diag.text);
}

static void set_version(struct rig *r, char version, bool summed) {
    r->s.memory.write[8] = version;
    uint32_t sum = hl_crc32c(r->s.memory.read, 60);
    if (summed) memcpy(r->s.memory.write + 60, &sum, sizeof sum);
}

static void test_refused(void **state) {
    (void)state;
    struct rig r;
    char note[HL_SNAPSHOT_NOTE_BYTES];
    struct hl_snapshot_base base;
    struct hl_diag diag = {0};
    set_up(&r, &(struct hl_snapshot_shape){.n_shared = 1 << 16, .n_own = 1 << 16, .n_seats = 2});
    assert_int_equal(hl_snapshot_last(&r.s, &base), HL_END);
    hl_snapshot_write_note(&r.s, 0, "here");
    assert_true(hl_snapshot_read_note(&r.s, 0, note));
    r.s.memory.write[12288 + 8] ^= 1;
    assert_false(hl_snapshot_read_note(&r.s, 0, note));
    set_version(&r, 1, false);
    expect(&r, HL_E_FORMAT, "is not the state of a run");
    set_version(&r, 1, true);
    expect(&r, HL_E_FORMAT, "of another version");
    set_version(&r, HL_SNAPSHOT_VERSION, true);
    assert_int_equal(truncate(r.path, 8192), 0);
    expect(&r, HL_E_FORMAT, "is not the state of a run");
    const struct hl_snapshot_shape large = {.n_own = 1ull << 46, .n_seats = 3};
    assert_int_equal(hl_snapshot_make(r.path, &large, &diag), HL_E_IO);
    assert_non_null(strstr(diag.text, "--elastic keeps two copies of the state in memory"));
    assert_int_equal(access(r.path, F_OK), -1);
    tear_down(&r);
}

/* ---- frozen anywhere ---- */

/* What a rank does in a step, one store after the other: it sends its part of the sum, gets those
 * of all others, writes its slice of what is shared and what is its own, rank 0 a note, and its
 * READY line in two stores. */
enum act { SEND, GET, WRITE_SLICE, WRITE_OWN, NOTE, READY_STEP, READY_GENERATION, N_ACTS };
enum { STEPS = 3, SLICE = 16, MOST = 3, ALL_SEATS = 7, ACTS = STEPS * N_ACTS };

struct world {
    struct rig *rig;
    struct hl_snapshot_base base;
    int n_ranks;
    bool ready_first; /* the mistake: READY before the slices */
};

static enum act act_of(const struct world *w, int at) {
    static const enum act wrong[N_ACTS] = {SEND,        GET,       READY_STEP, READY_GENERATION,
                                           WRITE_SLICE, WRITE_OWN, NOTE};
    int i = at % N_ACTS;
    return w->ready_first ? wrong[i] : (enum act)i;
}

/* Steps that a rank at `at` began by sending. */
static int sent(int at) { return (at + N_ACTS - 1) / N_ACTS; }

/* Can each rank have come so far? Nobody gets what was not sent. */
static bool reachable(const struct world *w, const int *at) {
    for (int r = 0; r < w->n_ranks; r++)
        for (int p = 0; p < w->n_ranks; p++) {
            int got = (at[r] + N_ACTS - 2) / N_ACTS; /* steps whose GET is done */
            if (got > sent(at[p])) return false;
        }
    return true;
}

/* Steps that a rank at `at` is ready with. Its first READY line counts when the generation is in
 * it, later ones with the step. */
static int ready_with(const struct world *w, int at) {
    int steps = at / N_ACTS, rest = at % N_ACTS, line = w->ready_first ? 2 : READY_STEP;
    return steps + (rest > line + (steps == 0));
}

static int seat_of(const struct world *w, int rank) {
    uint64_t seats = w->base.seats;
    while (rank--) seats &= seats - 1;
    return __builtin_ctzll(seats);
}

/* Slices of 3 * 16 elements, for any number of ranks. */
static void slice(int rank, int n_ranks, int *first, int *n) {
    int begin = MOST * rank / n_ranks, end = MOST * (rank + 1) / n_ranks;
    *first = begin * SLICE;
    *n = (end - begin) * SLICE;
}

static void write_slice(struct world *w, int rank, int64_t step) {
    float data[MOST * SLICE];
    int first, n;
    slice(rank, w->n_ranks, &first, &n);
    for (int i = 0; i < n; i++) data[i] = (float)step;
    hl_snapshot_write(&w->rig->s, step, first, n, data);
}

static void write_own(struct world *w, int rank, int64_t step) {
    float data[SLICE];
    for (int i = 0; i < SLICE; i++) data[i] = (float)step;
    hl_snapshot_write(&w->rig->s, step, hl_snapshot_own(&w->rig->s, seat_of(w, rank)), SLICE, data);
}

static void do_act(struct world *w, int rank, int at) {
    int64_t step = w->base.step + 1 + at / N_ACTS;
    uint64_t *line = (uint64_t *)(void *)(w->rig->s.memory.write + 8192 +
                                          (size_t)seat_of(w, rank) * HL_LINE_BYTES);
    char note[16];
    switch (act_of(w, at)) {
    case WRITE_SLICE: write_slice(w, rank, step); break;
    case WRITE_OWN: write_own(w, rank, step); break;
    case NOTE:
        (void)snprintf(note, sizeof note, "%lld", (long long)step);
        if (rank == 0) hl_snapshot_write_note(&w->rig->s, step, note);
        break;
    /* as hl_snapshot_ready does it */
    case READY_STEP: line[1] = (uint64_t)step; break;
    case READY_GENERATION: line[0] = w->base.generation; break;
    default: break;
    }
}

static struct hl_snapshot_base last_base(const struct world *w) {
    struct hl_snapshot_base last;
    assert_int_equal(hl_snapshot_last(&w->rig->s, &last), HL_OK);
    return last;
}

/* Is the copy of the step whole, with what is own of all who wrote it? */
static bool whole(struct world *w, int64_t step) {
    char note[HL_SNAPSHOT_NOTE_BYTES];
    float data[MOST * SLICE];
    const struct hl_snapshot_base last = last_base(w);
    uint64_t writers = hl_snapshot_writers(&last, step);
    hl_snapshot_read(&w->rig->s, step, 0, MOST * SLICE, data);
    for (int i = 0; i < MOST * SLICE; i++)
        if (data[i] != (float)step) return false;
    for (int seat = 0; seat < MOST; seat++) {
        if (!(writers >> seat & 1)) continue;
        hl_snapshot_read(&w->rig->s, step, hl_snapshot_own(&w->rig->s, seat), SLICE, data);
        for (int i = 0; i < SLICE; i++)
            if (data[i] != (float)step) return false;
    }
    return hl_snapshot_read_note(&w->rig->s, step, note) && atoll(note) == step;
}

static int64_t committed(struct world *w) {
    const struct hl_snapshot_base last = last_base(w);
    return hl_snapshot_committed(&w->rig->s, &last);
}

/* A world in which ranks of the seats begin at a step that `writers` left whole. */
static void begin(struct world *w, uint64_t seats, uint64_t writers, uint64_t generation,
                  int64_t step) {
    w->n_ranks = __builtin_popcountll(seats);
    w->base = (struct hl_snapshot_base){
        .generation = generation, .step = step, .seats = seats, .writers = writers};
    hl_snapshot_begin(&w->rig->s, &w->base);
}

static void replay(struct world *w, const int *at) {
    for (int i = 0; i < ACTS; i++)
        for (int r = 0; r < w->n_ranks; r++)
            if (i < at[r]) do_act(w, r, i);
}

/* From the memory as it is, which stays so, another generation begins at the committed step: frozen
 * at each word of its base, and after each act of its ranks. Every time the same step is found, or
 * a later one that is whole. Returns how often it is not. */
static int next_generation(struct world *before, uint64_t seats) {
    struct world w = *before;
    static char kept[6 * 4096];
    assert_true(sizeof kept >= w.rig->s.memory.n_bytes);
    memcpy(kept, w.rig->s.memory.read, w.rig->s.memory.n_bytes);
    int64_t step = committed(&w);
    int bad = 0;
    char *bases = w.rig->s.memory.write + 4096;
    uint64_t old[2 * HL_LINE_BYTES / 8], new[2 * HL_LINE_BYTES / 8];
    memcpy(old, bases, sizeof old);
    begin(&w, seats, hl_snapshot_writers(&before->base, step), before->base.generation + 1, step);
    memcpy(new, bases, sizeof new);
    for (size_t words = 0; words < sizeof new / 8; words++) { /* torn */
        memcpy(bases, old, sizeof old);
        memcpy(bases, new, words * 8);
        bad += committed(&w) != step || !whole(&w, step);
    }
    memcpy(bases, new, sizeof new);
    bad += committed(&w) != step || !whole(&w, step);
    for (int acts = 1; acts <= ACTS; acts++) { /* all ranks in lockstep */
        for (int r = 0; r < w.n_ranks; r++) do_act(&w, r, acts - 1);
        int64_t now = committed(&w);
        bad += now != step + ready_with(&w, acts) || !whole(&w, now);
    }
    memcpy(w.rig->s.memory.write, kept, w.rig->s.memory.n_bytes);
    return bad;
}

/* All that a few ranks can have done. Returns the number of states in which the committed step is
 * not whole, or not what the slowest READY says. */
static int freeze_everywhere(uint64_t seats, bool ready_first, int *n_states) {
    struct rig rig;
    int at[MOST] = {0}, bad = 0, n_ranks = __builtin_popcountll(seats);
    set_up(&rig, &(struct hl_snapshot_shape){MOST * SLICE, SLICE, MOST});
    for (int64_t code = 0, all = n_ranks == 3 ? (ACTS + 1) * (ACTS + 1) * (ACTS + 1)
                                              : (ACTS + 1) * (ACTS + 1);
         code < all; code++) {
        int64_t left = code;
        struct world w = {.rig = &rig, .n_ranks = n_ranks, .ready_first = ready_first};
        for (int r = 0; r < n_ranks; r++, left /= ACTS + 1) at[r] = (int)(left % (ACTS + 1));
        if (!reachable(&w, at)) continue;
        ++*n_states;
        memset(rig.s.memory.write + 4096, 0, 4 * 4096);
        begin(&w, seats, seats, 1, 4);
        for (int r = 0; r < n_ranks; r++) {
            write_slice(&w, r, 4);
            write_own(&w, r, 4);
        }
        hl_snapshot_write_note(&rig.s, 4, "4");
        replay(&w, at);
        int64_t least = INT64_MAX;
        for (int r = 0; r < n_ranks; r++) {
            int64_t step = 4 + ready_with(&w, at[r]);
            if (step < least) least = step;
        }
        if (committed(&w) != least || !whole(&w, least)) bad++;
        else if (!ready_first) bad += next_generation(&w, 1 + (uint64_t)code % ALL_SEATS) != 0;
    }
    tear_down(&rig);
    return bad;
}

static void test_frozen(void **state) {
    (void)state;
    int n = 0;
    assert_int_equal(freeze_everywhere(6, false, &n), 0);
    assert_true(n > 100);
    n = 0;
    assert_int_equal(freeze_everywhere(ALL_SEATS, false, &n), 0);
    assert_true(n > 1000);
}

/* The check sees the mistake. */
static void test_ready_too_early(void **state) {
    (void)state;
    int n = 0;
    assert_true(freeze_everywhere(5, true, &n) > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_frozen),
        cmocka_unit_test(test_ready_too_early),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
