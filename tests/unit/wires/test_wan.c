/* wan on 127.0.0.1, each rank a process: streams and collectives give what threads give; whoever is
 * killed, stopped, missing, twice there or without the token is named; strangers do not disturb. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "halley/collective.h"
#include "os/clock.h"
#include "os/futex.h"
#include "os/net.h"
#include "support/collective_case.h"
#include "support/ranks.h"
#include "support/wire_case.h"
#include "wires/wires.h"

enum { PART_BYTES = WIRE_PART_BYTES, LANES = 2, N = 1500, MOST_RANKS = 4, KINDS = HL_BARRIER + 1 };
static const char token[] = "a token of this test";
static const int64_t SECOND = 1000000000;

static const struct hl_kernels *kernels(void) {
    const struct hl_kernels *k = NULL;
    struct hl_diag diag;
    if (hl_kernels_get(HL_F32, &k, &diag) != HL_OK) abort();
    return k;
}

/* ---- ranks as processes ---- */

enum { OPENED = 0, NOT_OPENED = 3 }; /* how a process ends */

struct job {
    struct rank_context ranks[2 * MOST_RANKS]; /* the second half: second processes of a rank */
    struct hl_diag diags[2 * MOST_RANKS];      /* of open */
    pid_t pids[2 * MOST_RANKS];
    char address[64];
    int n_ranks;
    int port_socket; /* keeps the address's port */
    int64_t timeout_ns;
    float results[MOST_RANKS][KINDS][N];
};

static void *shared_memory(size_t bytes) {
    void *m = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(m != MAP_FAILED);
    return m;
}

static struct job *job_new(int n_ranks, int64_t timeout_ns) {
    struct job *j = shared_memory(sizeof *j);
    struct hl_net_address at = {.ip = "127.0.0.1"};
    struct hl_diag diag;
    j->port_socket = hl_net_reserve(&at, &diag);
    assert_true(j->port_socket >= 0);
    j->n_ranks = n_ranks;
    j->timeout_ns = timeout_ns;
    (void)snprintf(j->address, sizeof j->address, "127.0.0.1:%d", at.port);
    return j;
}

static void job_free(struct job *j) {
    (void)close(j->port_socket);
    (void)munmap(j, sizeof *j);
}

static struct hl_wire_place place_of(const struct job *j, int rank) {
    return (struct hl_wire_place){.rank = rank,
                                  .n_ranks = j->n_ranks,
                                  .n_lanes = LANES,
                                  .part_bytes = PART_BYTES,
                                  .address = j->address,
                                  .token = token,
                                  .timeout_ns = j->timeout_ns};
}

/* In slot i of the job; body NULL: only open and close. */
static void start(struct job *j, int i, const struct hl_wire_place *place,
                  void (*body)(struct rank_context *r)) {
    struct rank_context *r = &j->ranks[i];
    *r = (struct rank_context){.rank = place->rank, .n_ranks = j->n_ranks, .shared = j};
    (void)fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid > 0) {
        j->pids[i] = pid; /* shared memory: only the parent writes it */
        return;
    }
    if (hl_wire_wan.open(hl_mem_default(), place, &r->wire, &j->diags[i]) != HL_OK)
        _exit(NOT_OPENED);
    if (body) body(r);
    if (!r->closed) r->wire->ops->close(r->wire);
    _exit(OPENED);
}

static void start_rank(struct job *j, int rank, void (*body)(struct rank_context *r)) {
    const struct hl_wire_place place = place_of(j, rank);
    start(j, rank, &place, body);
}

/* How the process of slot i ended, as waitpid says. */
static int end_of(struct job *j, int i) {
    int status;
    assert_int_equal(waitpid(j->pids[i], &status, 0), j->pids[i]);
    return status;
}
static void kill_now(const struct job *j, int i) {
    assert_true(j->pids[i] > 1);
    (void)kill(j->pids[i], SIGKILL);
}
static void expect_good_end(struct job *j, int i) {
    int status = end_of(j, i);
    if (*j->ranks[i].failure)
        fail_msg("rank %d of %d: %s", j->ranks[i].rank, j->n_ranks, j->ranks[i].failure);
    if (status != OPENED)
        fail_msg("rank %d of %d: status %d; %s", j->ranks[i].rank, j->n_ranks, status,
                 j->diags[i].text);
}
static void expect_refused(struct job *j, int i, enum hl_status status, const char *words) {
    int end = end_of(j, i);
    if (!WIFEXITED(end) || WEXITSTATUS(end) != NOT_OPENED || j->diags[i].status != status ||
        !strstr(j->diags[i].text, words))
        fail_msg("rank %d: end %d, status %d: %s; not: %s", j->ranks[i].rank, end,
                 j->diags[i].status, j->diags[i].text, words);
}

static void run(int n_ranks, void (*body)(struct rank_context *r)) {
    struct job *j = job_new(n_ranks, 20 * SECOND);
    for (int r = n_ranks - 1; r >= 0; r--) start_rank(j, r, body); /* the first comes last */
    for (int r = 0; r < n_ranks; r++) expect_good_end(j, r);
    job_free(j);
}

/* ---- streams ---- */

static void test_parts_arrive_in_order(void **state) {
    (void)state;
    for (int n = 2; n <= MOST_RANKS; n++) run(n, wire_every_stream);
}

/* A sender gets no further than its credits while a reader sleeps. */
static void full(struct rank_context *r) {
    const struct hl_stream s = {0, 0, HL_EVERYONE}, go = {1, 0, r->rank};
    const void *data;
    size_t bytes;
    void *room;
    if (r->rank == 0) {
        int n = 0;
        while (r->wire->ops->reserve(r->wire, s, &room) == HL_OK && n < 1000) {
            memset(room, n++, 8);
            (void)r->wire->ops->commit(r->wire, s, 8);
        }
        ranks_check(r, n >= 4 && n <= 64);
        for (int p = 1; p < r->n_ranks; p++)
            ranks_check(r, wire_send_part(r->wire, (struct hl_stream){1, 0, p}, &n, sizeof n) ==
                               HL_OK);
        ranks_check(r, wire_send_part(r->wire, s, "", 0) == HL_OK);
        return;
    }
    int n = 0;
    ranks_check(r, wire_next_part(r->wire, go, &data, &bytes) == HL_OK && bytes == sizeof n);
    memcpy(&n, data, sizeof n);
    for (int i = 0; i < n; i++) {
        ranks_check(r, wire_next_part(r->wire, s, &data, &bytes) == HL_OK && bytes == 8);
        ranks_check(r, ((const unsigned char *)data)[7] == i);
        (void)r->wire->ops->release(r->wire, s);
    }
    ranks_check(r, wire_next_part(r->wire, s, &data, &bytes) == HL_OK && bytes == 0);
}

static void test_credits_end(void **state) {
    (void)state;
    run(3, full);
}

/* ---- collectives ---- */

static void all_kinds(struct rank_context *r) {
    struct job *j = r->shared;
    struct hl_group *g = NULL;
    struct hl_collective op;
    struct hl_diag diag = {0};
    ranks_check(r, hl_group_new(hl_mem_default(), r->wire, kernels(), 60 * SECOND, &g, &diag) ==
                       HL_OK);
    for (int kind = 0; kind < KINDS && !*r->failure; kind++) {
        float *data = j->results[r->rank][kind], out[N];
        const struct hl_collective_args args = {.kind = (enum hl_collective_kind)kind,
                                                .lane = kind % LANES,
                                                .root = 1,
                                                .data = data,
                                                .out = kind == HL_ALL_TO_ALL ? out : NULL,
                                                .n = kind == HL_ALL_TO_ALL ? 48 * r->n_ranks : N,
                                                .unit = kind == HL_ALL_TO_ALL ? 48 : 0,
                                                .wire = kind == HL_REDUCE ? HL_BF16 : HL_F32,
                                                .element_bytes = 4};
        for (int64_t i = 0; i < N; i++) data[i] = out[i] = case_element(i, r->rank);
        hl_collective_start(g, &args, &op);
        if (hl_collective_wait(g, &op, &diag) != HL_OK) ranks_fail(r, "%s", diag.text);
        if (kind == HL_ALL_TO_ALL) memcpy(data, out, sizeof out);
    }
    hl_group_free(g);
}

static void test_bits_of_threads(void **state) {
    (void)state;
    for (int n = 2; n <= MOST_RANKS; n++) {
        struct job *threads = shared_memory(sizeof *threads), *wan = job_new(n, 20 * SECOND);
        ranks_run(n, LANES, PART_BYTES, all_kinds, threads);
        for (int r = 0; r < n; r++) start_rank(wan, r, all_kinds);
        for (int r = 0; r < n; r++) expect_good_end(wan, r);
        assert_memory_equal(threads->results, wan->results, sizeof wan->results);
        for (int64_t i = 0; i < N; i++) { /* and these are serial sums */
            float sum = case_sum_of(i, n, HL_F32);
            for (int r = 0; r < n; r++)
                assert_memory_equal(&sum, &wan->results[r][HL_ALL_REDUCE][i], sizeof sum);
        }
        (void)munmap(threads, sizeof *threads);
        job_free(wan);
    }
}

/* ---- failures ---- */

/* All-reduce until it fails: rank 1 is expected to be named, with these words. */
static void reduce_until_failure(struct rank_context *r, const char *words) {
    struct hl_group *g = NULL;
    struct hl_collective op;
    struct hl_diag diag = {0};
    enum hl_status status = HL_OK;
    float data[N] = {0};
    ranks_check(r, hl_group_new(hl_mem_default(), r->wire, kernels(), 60 * SECOND, &g, &diag) ==
                       HL_OK);
    hl_group_tell(g, HL_PHASE_BACKWARD, 7);
    for (int i = 0; i < 1000 && status == HL_OK; i++) {
        const struct hl_collective_args args = {
            .kind = HL_ALL_REDUCE, .data = data, .n = N, .element_bytes = 4};
        if (r->rank == 1 && i == 20) break; /* its body breaks it */
        hl_collective_start(g, &args, &op);
        status = hl_collective_wait(g, &op, &diag);
    }
    hl_group_free(g);
    if (r->rank == 1) return;
    ranks_check(r, status == HL_E_PEER);
    if (!strstr(diag.text, "rank 1 (host ") || !strstr(diag.text, "backward of step 7") ||
        !strstr(diag.text, words))
        ranks_fail(r, "the message is: %s", diag.text);
    r->wire->ops->give_up(r->wire, diag.text);
}

static void killed(struct rank_context *r) {
    reduce_until_failure(r, "is gone");
    if (r->rank == 1) (void)raise(SIGKILL);
}
static void stopped(struct rank_context *r) {
    reduce_until_failure(r, "is gone");
    if (r->rank == 1) (void)raise(SIGSTOP);
}
static void gave_up(struct rank_context *r) {
    reduce_until_failure(r, "the disk is full");
    if (r->rank == 1) r->wire->ops->give_up(r->wire, "the disk is full");
}
static void left_early(struct rank_context *r) { reduce_until_failure(r, "has left the run"); }

static void break_rank_1(int n_ranks, int64_t timeout_ns, void (*body)(struct rank_context *r)) {
    struct job *j = job_new(n_ranks, timeout_ns);
    for (int r = 0; r < n_ranks; r++) start_rank(j, r, body);
    for (int r = 0; r < n_ranks; r++)
        if (r != 1) expect_good_end(j, r);
    kill_now(j, 1);
    (void)end_of(j, 1);
    job_free(j);
}

static void test_failures_are_named(void **state) {
    (void)state;
    break_rank_1(2, 20 * SECOND, killed);
    break_rank_1(4, 20 * SECOND, killed);
    break_rank_1(3, 10 * SECOND, stopped); /* long before the collective's own deadline */
    break_rank_1(3, 20 * SECOND, gave_up);
    break_rank_1(2, 20 * SECOND, left_early);
}

/* What was sent before leaving is there; then it is known that no more comes. */
static void leaves(struct rank_context *r) {
    const struct hl_stream s = {1, 0, 1};
    const void *data;
    size_t bytes;
    struct hl_peer p;
    if (r->rank == 0) {
        for (int i = 0; i < 10; i++) ranks_check(r, wire_send_part(r->wire, s, "bye", 3) == HL_OK);
        return;
    }
    for (int i = 0; i < 10; i++) {
        ranks_check(r, wire_next_part(r->wire, s, &data, &bytes) == HL_OK && bytes == 3);
        (void)r->wire->ops->release(r->wire, s);
    }
    ranks_check(r, wire_next_part(r->wire, s, &data, &bytes) == HL_E_PEER);
    r->wire->ops->peer(r->wire, 0, &p);
    ranks_check(r, p.state == HL_PEER_LEFT && p.pid == ((struct job *)r->shared)->pids[0]);
}

static void test_leaving(void **state) {
    (void)state;
    for (int i = 0; i < 5; i++) run(2, leaves);
}

/* ---- who may come ---- */

static void barrier(struct rank_context *r) {
    struct hl_group *g = NULL;
    struct hl_collective op;
    struct hl_diag diag = {0};
    ranks_check(r, hl_group_new(hl_mem_default(), r->wire, kernels(), 60 * SECOND, &g, &diag) ==
                       HL_OK);
    hl_collective_start(g, &(struct hl_collective_args){.kind = HL_BARRIER}, &op);
    if (hl_collective_wait(g, &op, &diag) != HL_OK) ranks_fail(r, "%s", diag.text);
    hl_group_free(g);
}

static void test_another_token(void **state) {
    struct job *j = job_new(2, 12 * SECOND); /* for rank 0: several rejections take seconds */
    struct hl_wire_place place = place_of(j, 1);
    (void)state;
    place.token = "not the token of this test";
    place.timeout_ns = 60 * SECOND;
    start_rank(j, 0, NULL);
    start(j, 1, &place, NULL);
    expect_refused(j, 1, HL_E_USER, "its token is another one");
    expect_refused(j, 0, HL_E_TIMEOUT, "rank 1 of 2 did not come");
    assert_non_null(strstr(j->diags[0].text, "of a rank with another token"));
    job_free(j);
}

static void test_missing_ranks(void **state) {
    struct job *j = job_new(4, 5 * SECOND);
    (void)state;
    start_rank(j, 0, NULL);
    start_rank(j, 2, NULL);
    expect_refused(j, 0, HL_E_TIMEOUT, "rank 1, 3 of 4 did not come");
    expect_refused(j, 2, HL_E_USER, "rank 1, 3 of 4 did not come");
    job_free(j);
    j = job_new(2, SECOND);
    start_rank(j, 1, NULL);
    expect_refused(j, 1, HL_E_TIMEOUT, "rank 0 did not answer at 127.0.0.1");
    job_free(j);
}

static void test_a_rank_twice(void **state) {
    struct job *j = job_new(3, 20 * SECOND);
    const struct hl_wire_place place = place_of(j, 1);
    int status;
    (void)state;
    start_rank(j, 0, barrier);
    start(j, 1, &place, barrier);
    start(j, 5, &place, barrier);
    pid_t first = waitpid(-1, &status, 0); /* one of the two is sent away */
    int away = first == j->pids[1] ? 1 : 5;
    assert_int_equal(first, j->pids[away]);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == NOT_OPENED);
    assert_int_equal(j->diags[away].status, HL_E_USER);
    assert_non_null(strstr(j->diags[away].text, "rank 1 is taken by process"));
    start_rank(j, 2, barrier);
    for (int i = 0; i < 3; i++) expect_good_end(j, i == 1 ? 6 - away : i);
    job_free(j);
}

/* A rank that dies before all have come may come again. */
static void test_a_rank_comes_again(void **state) {
    struct job *j = job_new(3, 20 * SECOND);
    (void)state;
    start_rank(j, 0, barrier);
    start_rank(j, 1, barrier);
    hl_sleep_ns(300000000);
    kill_now(j, 1);
    (void)end_of(j, 1);
    start_rank(j, 2, barrier); /* all numbers have been there now, but not at once */
    hl_sleep_ns(300000000);
    start_rank(j, 1, barrier);
    for (int r = 0; r < 3; r++) expect_good_end(j, r);
    job_free(j);
}

static void test_other_settings(void **state) {
    struct job *j = job_new(2, 20 * SECOND);
    struct hl_wire_place place = place_of(j, 1);
    (void)state;
    place.part_bytes = 512;
    start_rank(j, 0, NULL);
    start(j, 1, &place, NULL);
    expect_refused(j, 0, HL_E_USER, "do not run the same configuration");
    expect_refused(j, 1, HL_E_USER, "parts of 512 bytes, rank 0 has 2 and 256");
    job_free(j);
}

static void test_bad_places(void **state) {
    static const struct {
        const char *address, *token, *interface, *says;
    } bad[] = {{NULL, token, NULL, "MASTER_ADDR"},
               {"127.0.0.1", token, NULL, "host:port"},
               {"127.0.0.1:1", NULL, NULL, "a token"},
               {"127.0.0.1:1", "short", NULL, "16 char"},
               {"192.0.2.1:1", token, "lo7", "are: lo"}};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct hl_wire *wire = NULL;
        struct hl_diag diag;
        const struct hl_wire_place place = {.n_ranks = 2,
                                            .n_lanes = 1,
                                            .part_bytes = PART_BYTES,
                                            .address = bad[i].address,
                                            .token = bad[i].token,
                                            .interface = bad[i].interface,
                                            .timeout_ns = 1000000};
        assert_int_equal(hl_wire_wan.open(hl_mem_default(), &place, &wire, &diag), HL_E_USER);
        if (!strstr(diag.text, bad[i].says)) fail_msg("%s", diag.text);
    }
}

static void test_one_rank(void **state) {
    (void)state;
    run(1, NULL);
}

/* Not over loopback: the way that packets for elsewhere would take. */
static void test_a_real_interface(void **state) {
    const struct hl_net_address elsewhere = {.ip = "192.0.2.1"};
    struct hl_net_address here;
    struct hl_diag diag;
    (void)state;
    if (hl_net_route(&elsewhere, &here, &diag) != HL_OK || here.loopback) {
        print_message("SKIP: no route to other machines\n");
        skip();
    }
    struct job *j = job_new(2, 20 * SECOND);
    char *port = strrchr(j->address, ':'), address[80];
    (void)snprintf(address, sizeof address, "%s%s", here.ip, port);
    (void)strcpy(j->address, address);
    for (int r = 0; r < 2; r++) start_rank(j, r, wire_every_stream);
    for (int r = 0; r < 2; r++) expect_good_end(j, r);
    job_free(j);
}

/* ---- strangers ---- */

static int stranger(const struct job *j) {
    struct sockaddr_in there = {.sin_family = AF_INET,
                                .sin_port = htons((uint16_t)atoi(strrchr(j->address, ':') + 1)),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int s = socket(AF_INET, SOCK_STREAM, 0);
    if (s >= 0 && connect(s, (struct sockaddr *)&there, sizeof there) == 0) return s;
    if (s >= 0) (void)close(s);
    return -1;
}

/* Thousands: most say random bytes, some nothing, some the beginning of what ZeroMQ would say. */
static void flood(const struct job *j, int rounds) {
    enum { AT_ONCE = 200 };
    static const unsigned char greeting[] = {0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, 3, 0, 'C', 'U'};
    int open_ones[AT_ONCE];
    unsigned char noise[300];
    uint32_t x = 12345;
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < AT_ONCE; i++) {
            open_ones[i] = stranger(j);
            for (size_t b = 0; b < sizeof noise; b++)
                noise[b] = (unsigned char)((x = x * 1664525u + 1013904223u) >> 24);
            if (i % 5 == 0) memcpy(noise, greeting, sizeof greeting);
            if (open_ones[i] >= 0 && i % 7)
                (void)send(open_ones[i], noise, i % 2 ? sizeof noise : 20, MSG_NOSIGNAL);
        }
        for (int i = 0; i < AT_ONCE; i++)
            if (open_ones[i] >= 0) (void)close(open_ones[i]);
    }
}

static void wait_until_it_listens(const struct job *j) {
    int s = -1;
    while ((s = stranger(j)) < 0) hl_sleep_ns(10000000);
    (void)close(s);
}

static void test_strangers(void **state) {
    struct job *j = job_new(3, 60 * SECOND);
    (void)state;
    start_rank(j, 0, wire_every_stream);
    wait_until_it_listens(j);
    flood(j, 5);
    start_rank(j, 1, wire_every_stream);
    flood(j, 10);
    start_rank(j, 2, wire_every_stream);
    flood(j, 1);
    for (int r = 0; r < 3; r++) expect_good_end(j, r);
    job_free(j);
}

/* Silent connections use up the files of rank 0; when they go it is as it was. */
static void test_silent_strangers(void **state) {
    enum { MANY = 150 };
    struct job *j = job_new(2, 60 * SECOND);
    int open_ones[MANY];
    struct rlimit before, few;
    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = before;
    few.rlim_cur = 64;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    start_rank(j, 0, wire_every_stream);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    wait_until_it_listens(j);
    for (int i = 0; i < MANY; i++) open_ones[i] = stranger(j);
    hl_sleep_ns(500000000);
    for (int i = 0; i < MANY; i++)
        if (open_ones[i] >= 0) (void)close(open_ones[i]);
    start_rank(j, 1, wire_every_stream);
    for (int r = 0; r < 2; r++) expect_good_end(j, r);
    job_free(j);
}

/* When all have come nobody can connect any more. */
static void holds_its_doors_shut(struct rank_context *r) {
    barrier(r);
    if (r->rank == 0) ranks_check(r, stranger(r->shared) < 0);
    barrier(r);
}

static void test_doors(void **state) {
    (void)state;
    run(2, holds_its_doors_shut);
}

static void test_memory_short(void **state) {
    struct job *j = job_new(2, 1000000);
    (void)state;
    for (long k = 1;; k++) {
        const struct hl_wire_place place = place_of(j, 0);
        struct hl_mem_probe probe;
        struct hl_wire *wire = NULL;
        struct hl_diag diag = {0};
        hl_mem_probe_init(&probe, k);
        enum hl_status status = hl_wire_wan.open(&probe.mem, &place, &wire, &diag);
        assert_int_equal(probe.n_live, 0);
        if (status == HL_E_TIMEOUT) break; /* nobody else is there */
        assert_int_equal(status, HL_E_MEMORY);
    }
    job_free(j);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts_arrive_in_order),
        cmocka_unit_test(test_credits_end),
        cmocka_unit_test(test_bits_of_threads),
        cmocka_unit_test(test_failures_are_named),
        cmocka_unit_test(test_leaving),
        cmocka_unit_test(test_another_token),
        cmocka_unit_test(test_missing_ranks),
        cmocka_unit_test(test_a_rank_twice),
        cmocka_unit_test(test_a_rank_comes_again),
        cmocka_unit_test(test_other_settings),
        cmocka_unit_test(test_bad_places),
        cmocka_unit_test(test_one_rank),
        cmocka_unit_test(test_a_real_interface),
        cmocka_unit_test(test_strangers),
        cmocka_unit_test(test_silent_strangers),
        cmocka_unit_test(test_doors),
        cmocka_unit_test(test_memory_short),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
