/* pool: ranks are forked processes. Parts and collectives in every mode over one and more devices;
 * a killed and a stopped rank are named; ranks that do not belong are refused; what is left of an
 * earlier job disturbs nobody. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "support/collective_case.h"
#include "support/processes.h"
#include "support/wire_case.h"
#include "wires/wires.h"

enum { LANES = 2 };

static struct hl_pool_wire_spec a_pool(int n_ranks, uint32_t n_devices, enum hl_pool_mode mode) {
    return (struct hl_pool_wire_spec){.n_devices = n_devices,
                                      .mode = mode,
                                      .n_ranks = n_ranks,
                                      .n_lanes = LANES,
                                      .part_bytes = WIRE_PART_BYTES,
                                      .one_kernel = true,
                                      .dead_after_ns = 60000000000};
}

static bool can(enum hl_pool_mode mode) {
    return mode != HL_POOL_WRITE_BACK || hl_flush_kind() != HL_FLUSH_NONE;
}

static void test_parts_arrive_in_order(void **state) {
    (void)state;
    for (enum hl_pool_mode mode = HL_POOL_COHERENT; mode <= HL_POOL_UNCACHED; mode++)
        for (uint32_t devices = 1; devices <= 3 && can(mode); devices += 2) {
            struct hl_pool_wire_spec spec = a_pool(3, devices, mode);
            processes_run(&spec, wire_every_stream, NULL, 0);
        }
}

/* Ranks that look again after short sleeps, as on several machines. */
static void test_without_beds(void **state) {
    struct hl_pool_wire_spec spec = a_pool(3, 1, HL_POOL_COHERENT);
    (void)state;
    spec.one_kernel = false;
    processes_run(&spec, wire_every_stream, NULL, 0);
}

/* ---- collectives ---- */

static const struct hl_kernels *kernels(void) {
    const struct hl_kernels *k = NULL;
    struct hl_diag diag;
    if (hl_kernels_get(HL_F32, &k, &diag) != HL_OK) abort();
    return k;
}

enum { MOST = 5000 };

static void run_kind(struct rank_context *r, struct hl_group *g, struct hl_collective_args args) {
    static float data[MOST];
    struct hl_collective op;
    struct hl_diag diag = {0};
    for (int64_t i = 0; i < args.n; i++) data[i] = case_element(i, r->rank);
    args.data = data;
    hl_collective_start(g, &args, &op);
    if (hl_collective_wait(g, &op, &diag) != HL_OK) ranks_fail(r, "%s", diag.text);
    for (int64_t i = 0; i < args.n; i++) {
        float want = case_expected(&args, i, r->rank, r->n_ranks);
        if (memcmp(&want, &data[i], sizeof want) != 0)
            ranks_fail(r, "kind %d, n %lld: element %lld is %a, not %a", args.kind,
                       (long long)args.n, (long long)i, (double)data[i], (double)want);
    }
}

static void all_kinds(struct rank_context *r) {
    static const int64_t sizes[] = {0, 1, 63, 64, 65, 1000, MOST};
    struct hl_group *g = NULL;
    struct hl_diag diag = {0};
    ranks_check(r, hl_group_new(hl_mem_default(), r->wire, kernels(), 30000000000, &g, &diag) ==
                       HL_OK);
    for (int kind = HL_ALL_REDUCE; kind <= HL_SCATTER; kind++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
            for (int one_stage = 0; one_stage <= (kind == HL_ALL_REDUCE); one_stage++)
                run_kind(r, g,
                         (struct hl_collective_args){.kind = (enum hl_collective_kind)kind,
                                                     .lane = (int)s % LANES,
                                                     .root = (int)s % r->n_ranks,
                                                     .n = sizes[s],
                                                     .element_bytes = 4,
                                                     .one_stage = one_stage});
    hl_group_free(g);
}

static void test_collectives(void **state) {
    static const int ranks[] = {2, 3, 4, 7};
    (void)state;
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
        struct hl_pool_wire_spec spec = a_pool(ranks[i], (uint32_t)i + 1, HL_POOL_COHERENT);
        processes_run(&spec, all_kinds, NULL, 0);
        spec.mode = HL_POOL_WRITE_BACK;
        if (ranks[i] <= 3 && can(spec.mode)) processes_run(&spec, all_kinds, NULL, 0);
    }
}

/* ---- ranks that go away ---- */

static void wait_for_the_lost(struct rank_context *r, const char *words) {
    static float data[MOST];
    struct hl_group *g = NULL;
    struct hl_collective op;
    struct hl_diag diag = {0};
    ranks_check(r, hl_group_new(hl_mem_default(), r->wire, kernels(), 60000000000, &g, &diag) ==
                       HL_OK);
    hl_group_tell(g, HL_PHASE_BACKWARD, 17);
    const struct hl_collective_args args = {
        .kind = HL_ALL_REDUCE, .data = data, .n = MOST, .element_bytes = 4};
    enum hl_status status = HL_OK;
    for (int i = 0; i < 1000 && status == HL_OK; i++) {
        hl_collective_start(g, &args, &op);
        if (i == 3 && r->rank == 1) (void)raise(*(int *)r->shared);
        status = hl_collective_wait(g, &op, &diag);
    }
    ranks_check(r, status == HL_E_PEER);
    if (!strstr(diag.text, "rank 1 (host ") || !strstr(diag.text, words) ||
        !strstr(diag.text, "backward of step 17"))
        ranks_fail(r, "the message is: %s", diag.text);
    r->wire->ops->give_up(r->wire, diag.text); /* whoever has not noticed yet learns it from us */
    hl_group_free(g);
}

static void lose_one(struct rank_context *r) { wait_for_the_lost(r, "is gone"); }

static void test_a_killed_rank_is_named(void **state) {
    int number = SIGKILL;
    (void)state;
    for (int n = 2; n <= 4; n++) {
        struct hl_pool_wire_spec spec = a_pool(n, 1, HL_POOL_COHERENT);
        processes_run(&spec, lose_one, &number, 2);
        spec.one_kernel = false;
        processes_run(&spec, lose_one, &number, 2);
    }
}

static void test_a_stopped_rank_is_named(void **state) {
    int number = SIGSTOP;
    (void)state;
    struct hl_pool_wire_spec spec = a_pool(3, 1, HL_POOL_COHERENT);
    spec.dead_after_ns = 600000000;
    processes_run(&spec, lose_one, &number, 2);
}

/* All ranks were stopped, as by Ctrl-Z, for longer than the dead may be silent. Nobody is dead. */
static void sleep_together(struct rank_context *r) {
    (void)raise(SIGSTOP);
    all_kinds(r);
}

static void test_a_pause_kills_nobody(void **state) {
    struct hl_pool_wire_spec spec = a_pool(2, 1, HL_POOL_COHERENT);
    struct hl_pool *pool;
    struct hl_diag diag;
    pid_t pids[2];
    (void)state;
    spec.dead_after_ns = 300000000;
    assert_int_equal(hl_pool_wire_new(hl_mem_default(), &spec, &pool, &diag), HL_OK);
    for (int rank = 0; rank < 2; rank++) {
        pids[rank] = fork();
        if (pids[rank]) continue;
        struct rank_context r = {.rank = rank, .n_ranks = 2};
        const struct hl_wire_place place = {.rank = rank, .n_ranks = 2, .address = pool->address};
        if (hl_wire_pool.open(hl_mem_default(), &place, &r.wire, &diag) != HL_OK) _exit(2);
        sleep_together(&r);
        r.wire->ops->close(r.wire);
        _exit(*r.failure ? 1 : 0);
    }
    int status;
    for (int rank = 0; rank < 2; rank++)
        assert_int_equal(waitpid(pids[rank], &status, WUNTRACED), pids[rank]);
    usleep(600000);
    for (int rank = 0; rank < 2; rank++) (void)kill(pids[rank], SIGCONT);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(waitpid(pids[rank], &status, 0), pids[rank]);
        assert_int_equal(status, 0);
    }
    hl_pool_close(pool);
}

/* ---- ranks that do not belong ---- */

static struct hl_pool *new_pool(int n_ranks) {
    struct hl_pool_wire_spec spec = a_pool(n_ranks, 1, HL_POOL_COHERENT);
    struct hl_pool *pool = NULL;
    struct hl_diag diag = {0};
    if (hl_pool_wire_new(hl_mem_default(), &spec, &pool, &diag) != HL_OK) fail_msg("%s", diag.text);
    return pool;
}

static void refused(struct hl_wire_place place, enum hl_status want, const char *words) {
    struct hl_wire *w = NULL;
    struct hl_diag diag = {0};
    assert_int_equal(hl_wire_pool.open(hl_mem_default(), &place, &w, &diag), want);
    if (!strstr(diag.text, words)) fail_msg("'%s' is not in: %s", words, diag.text);
}

static void test_refusals(void **state) {
    struct hl_pool *pool = new_pool(2);
    struct hl_wire *w;
    struct hl_diag diag = {0};
    struct hl_wire_place place = {.rank = 0, .n_ranks = 2, .address = pool->address};
    (void)state;
    assert_int_equal(hl_wire_pool.open(hl_mem_default(), &place, &w, &diag), HL_OK);
    refused(place, HL_E_USER, "rank 0 is attached already");
    place.rank = 1;
    place.n_ranks = 3;
    refused(place, HL_E_USER, "is for 2 ranks, and this run has 3");
    place.n_ranks = 2;
    place.part_bytes = 512;
    refused(place, HL_E_USER, "parts of 256 bytes");
    place.part_bytes = 0;
    place.rank = 2;
    refused(place, HL_E_USER, "rank 2 of 2 ranks");
    place.rank = 1;
    place.address = NULL;
    refused(place, HL_E_USER, "which pool?");
    place.address = "there-is-none";
    refused(place, HL_E_USER, "does not exist");
    place.timeout_ns = 30000000;
    refused(place, HL_E_TIMEOUT, "after the time that was given");
    w->ops->close(w);
    hl_pool_close(pool);
}

static void test_what_cannot_be_had(void **state) {
    struct hl_pool_wire_spec spec = a_pool(64, 64, HL_POOL_COHERENT);
    struct hl_pool *pool = NULL;
    struct hl_diag diag = {0};
    (void)state;
    spec.n_lanes = 16;
    spec.part_bytes = 2 << 20;
    assert_int_equal(hl_pool_wire_new(hl_mem_default(), &spec, &pool, &diag), HL_E_IO);
    assert_non_null(strstr(diag.text, "the pool needs 514 GiB"));
    assert_non_null(strstr(diag.text, "remount"));
    spec.part_bytes = 100;
    assert_int_equal(hl_pool_wire_new(hl_mem_default(), &spec, &pool, &diag), HL_E_USER);
    spec = a_pool(65, 1, HL_POOL_COHERENT);
    assert_int_equal(hl_pool_wire_new(hl_mem_default(), &spec, &pool, &diag), HL_E_USER);
    assert_null(pool);
}

/* ---- one pool, several jobs ---- */

static void test_a_kept_pool_serves_many_jobs(void **state) {
    char name[64];
    struct hl_pool *pool, *again;
    struct hl_diag diag = {0};
    (void)state;
    (void)snprintf(name, sizeof name, "test-jobs-%d", getpid());
    const struct hl_pool_spec spec = {
        .address = name, .n_devices = 2, .device_bytes = 16 << 20, .kept = true};
    assert_int_equal(hl_pool_make(hl_mem_default(), &spec, &pool, &diag), HL_OK);
    hl_pool_close(pool);
    for (int job = 0; job < 3; job++) {
        struct hl_pool_wire_spec use = a_pool(2 + job % 2, 0, HL_POOL_COHERENT);
        use.address = name;
        if (hl_pool_wire_new(hl_mem_default(), &use, &pool, &diag) != HL_OK)
            fail_msg("%s", diag.text);
        assert_int_equal(pool->head.generation, 2 * job + 1);
        assert_int_equal(hl_pool_wire_new(hl_mem_default(), &use, &again, &diag), HL_E_USER);
        assert_non_null(strstr(diag.text, "is in use by the job of pid"));
        processes_run_on(pool, wire_every_stream, NULL);
        hl_pool_close(pool);
    }
    struct hl_pool_wire_spec large = a_pool(8, 0, HL_POOL_COHERENT);
    large.address = name;
    large.part_bytes = 1 << 20;
    assert_int_equal(hl_pool_wire_new(hl_mem_default(), &large, &pool, &diag), HL_E_USER);
    assert_non_null(strstr(diag.text, "this job needs"));
    assert_int_equal(hl_pool_remove(hl_mem_default(), name, false, &diag), HL_OK);
    assert_int_equal(hl_pool_attach(hl_mem_default(), name, false, 0, &pool, &diag), HL_E_USER);
}

/* A rank of the first job is left over. The second job may not begin while it lives; where that
 * cannot be seen, it writes nothing any more. */
static void test_a_left_over_rank(void **state) {
    char name[64];
    struct hl_pool *pool, *second;
    struct hl_wire *w;
    struct hl_diag diag = {0};
    void *room;
    enum hl_status status = HL_OK;
    const struct hl_stream s = {0, 0, 1};
    (void)state;
    (void)snprintf(name, sizeof name, "test-left-%d", getpid());
    const struct hl_pool_spec spec = {.address = name, .device_bytes = 16 << 20, .kept = true};
    assert_int_equal(hl_pool_make(hl_mem_default(), &spec, &pool, &diag), HL_OK);
    hl_pool_close(pool);
    struct hl_pool_wire_spec use = a_pool(2, 0, HL_POOL_COHERENT);
    use.address = name;
    assert_int_equal(hl_pool_wire_new(hl_mem_default(), &use, &pool, &diag), HL_OK);
    const struct hl_wire_place place = {.rank = 0, .n_ranks = 2, .address = name};
    assert_int_equal(hl_wire_pool.open(hl_mem_default(), &place, &w, &diag), HL_OK);
    assert_int_equal(w->ops->reserve(w, s, &room), HL_OK);
    assert_int_equal(w->ops->commit(w, s, 8), HL_OK);
    hl_pool_close(pool); /* the job ends without the rank */

    assert_int_equal(hl_pool_wire_new(hl_mem_default(), &use, &second, &diag), HL_E_USER);
    assert_non_null(strstr(diag.text, "is still used by rank 0 of a job"));
    for (int i = 0; i < 500 && status == HL_OK; i++) { /* until its heart has noticed */
        status = w->ops->reserve(w, s, &room);
        if (status == HL_OK) status = w->ops->commit(w, s, 8);
        if (status == HL_PENDING) status = HL_OK;
        w->ops->tell(w, HL_PHASE_FORWARD, i);
        (void)w->ops->wait(w, 10000000);
        usleep(5000);
        if (w->failed_rank == 0) status = HL_E_PEER;
    }
    assert_int_equal(status, HL_E_PEER);
    struct hl_peer me;
    w->ops->peer(w, 0, &me);
    assert_non_null(strstr(me.why, "given to another run"));
    w->ops->close(w);
    assert_int_equal(hl_pool_remove(hl_mem_default(), name, true, &diag), HL_OK);
}

/* ---- other places ---- */

static void run_listed(const char *list) {
    struct hl_pool *pool;
    struct hl_diag diag = {0};
    const struct hl_pool_spec spec = {.address = list, .mode = HL_POOL_COHERENT, .kept = true};
    if (hl_pool_make(hl_mem_default(), &spec, &pool, &diag) != HL_OK) fail_msg("%s", diag.text);
    hl_pool_close(pool);
    struct hl_pool_wire_spec use = a_pool(3, 0, HL_POOL_COHERENT);
    use.address = list;
    if (hl_pool_wire_new(hl_mem_default(), &use, &pool, &diag) != HL_OK) fail_msg("%s", diag.text);
    processes_run_on(pool, wire_every_stream, NULL);
    hl_pool_close(pool);
    assert_int_equal(hl_pool_remove(hl_mem_default(), list, false, &diag), HL_OK);
}

/* A DAX device is mapped in the same way; here plain files stand for two of them. */
static void test_files_as_devices(void **state) {
    char list[200];
    (void)state;
    (void)snprintf(list, sizeof list, "/dev/shm/test-dax0-%d,/dev/shm/test-dax1-%d", getpid(),
                   getpid());
    for (int i = 0; i < 2; i++) {
        char path[100];
        (void)snprintf(path, sizeof path, "/dev/shm/test-dax%d-%d", i, getpid());
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        assert_int_equal(ftruncate(fileno(file), (16 << 20) + i * 5000), 0);
        (void)fclose(file);
    }
    run_listed(list);
    for (char *path = strtok(list, ","); path; path = strtok(NULL, ","))
        assert_int_equal(unlink(path), 0);
}

static void test_memfd(void **state) {
    char path[64];
    (void)state;
    int file = memfd_create("pool", 0);
    assert_true(file >= 0);
    assert_int_equal(ftruncate(file, 16 << 20), 0);
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    run_listed(path);
    (void)close(file);
}

/* ---- memory ---- */

static void test_memory_short(void **state) {
    struct hl_pool *pool = new_pool(2);
    (void)state;
    for (long k = 1;; k++) {
        struct hl_mem_probe probe;
        struct hl_wire *w = NULL;
        struct hl_diag diag = {0};
        const struct hl_wire_place place = {.rank = 0, .n_ranks = 2, .address = pool->address};
        hl_mem_probe_init(&probe, k);
        enum hl_status status = hl_wire_pool.open(&probe.mem, &place, &w, &diag);
        if (w) w->ops->close(w);
        assert_int_equal(probe.n_live, 0);
        if (status == HL_OK) break;
        assert_int_equal(status, HL_E_MEMORY);
    }
    hl_pool_close(pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts_arrive_in_order),
        cmocka_unit_test(test_without_beds),
        cmocka_unit_test(test_collectives),
        cmocka_unit_test(test_a_killed_rank_is_named),
        cmocka_unit_test(test_a_stopped_rank_is_named),
        cmocka_unit_test(test_a_pause_kills_nobody),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_what_cannot_be_had),
        cmocka_unit_test(test_a_kept_pool_serves_many_jobs),
        cmocka_unit_test(test_a_left_over_rank),
        cmocka_unit_test(test_files_as_devices),
        cmocka_unit_test(test_memfd),
        cmocka_unit_test(test_memory_short),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
