/* The variables of each launcher become a place; halves, contradictions and nonsense are refused by
 * name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "halley/cluster.h"

/* "A=1 B=2": the whole environment. */
static void environment(const char *text) {
    char pair[200];
    assert_int_equal(clearenv(), 0);
    while (*text) {
        size_t n = strcspn(text, " ");
        assert_true(n < sizeof pair);
        memcpy(pair, text, n);
        pair[n] = 0;
        char *value = strchr(pair, '=');
        assert_non_null(value);
        *value++ = 0;
        assert_int_equal(setenv(pair, value, 1), 0);
        text += n + strspn(text + n, " ");
    }
}

static struct hl_cluster_place read_place(const char *text, enum hl_status want) {
    struct hl_cluster_place place = {.rank = -1};
    struct hl_diag diag = {0};
    environment(text);
    enum hl_status status = hl_cluster_from_environment(&place, &diag);
    if (status != want) fail_msg("%s: %s %s", text, hl_status_name(status), diag.text);
    return place;
}

static void refused(const char *text, const char *why) {
    struct hl_cluster_place place;
    struct hl_diag diag = {0};
    environment(text);
    assert_int_equal(hl_cluster_from_environment(&place, &diag), HL_E_USER);
    if (!strstr(diag.text, why)) fail_msg("%s: %s", text, diag.text);
}

static void check(const struct hl_cluster_place *p, const char *source, int rank, int n_ranks,
                  int local_rank, int n_local, const char *wire) {
    assert_string_equal(p->source, source);
    assert_int_equal(p->rank, rank);
    assert_int_equal(p->n_ranks, n_ranks);
    assert_int_equal(p->local_rank, local_rank);
    assert_int_equal(p->n_local, n_local);
    assert_string_equal(p->wire, wire);
}

static void test_alone(void **state) {
    (void)state;
    struct hl_cluster_place p = read_place("", HL_END);
    check(&p, "one process", 0, 1, 0, 0, "");
    assert_int_equal(p.timeout_ns, 300000000000);
    /* a batch script, a shell of salloc, a rank that is set to nothing */
    (void)read_place("SLURM_JOB_ID=7 SLURM_PROCID=0 SLURM_NTASKS=8", HL_END);
    (void)read_place("SLURM_JOB_ID=7 SLURM_NTASKS=8", HL_END);
    (void)read_place("MASTER_ADDR=a MASTER_PORT=1", HL_END);
    (void)read_place("RANK= WORLD_SIZE=", HL_END);
    p = read_place("HALLEY_WIRE=pool HALLEY_TIMEOUT=5", HL_END);
    assert_string_equal(p.wire, "pool");
    assert_int_equal(p.timeout_ns, 5000000000);
}

static void test_launchers(void **state) {
    (void)state;
    struct hl_cluster_place p = read_place(
        "HALLEY_RANK=1 HALLEY_N_RANKS=4 HALLEY_LOCAL_RANK=1 HALLEY_N_LOCAL=2 HALLEY_WIRE=pool "
        "HALLEY_ADDRESS=/dev/shm/x HALLEY_TOKEN=abc HALLEY_TIMEOUT=7 HALLEY_INTERFACE=eth1",
        HL_OK);
    check(&p, "halley launch", 1, 4, 1, 2, "pool");
    assert_string_equal(p.address, "/dev/shm/x");
    assert_string_equal(p.token, "abc");
    assert_string_equal(p.interface, "eth1");
    assert_int_equal(p.timeout_ns, 7000000000);
    p = read_place("RANK=3 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 MASTER_ADDR=n0 "
                   "MASTER_PORT=29500 GLOO_SOCKET_IFNAME=eth0",
                   HL_OK);
    check(&p, "torchrun", 3, 4, 1, 2, "wan");
    assert_string_equal(p.address, "n0:29500");
    assert_string_equal(p.interface, "eth0");
    p = read_place("RANK=0 WORLD_SIZE=2 MASTER_ADDR=fe80::1 MASTER_PORT=1", HL_OK);
    check(&p, "torchrun", 0, 2, 0, 0, "wan");
    assert_string_equal(p.address, "[fe80::1]:1");
    p = read_place("OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=3 OMPI_COMM_WORLD_LOCAL_RANK=0 "
                   "OMPI_COMM_WORLD_LOCAL_SIZE=1 PMIX_RANK=2",
                   HL_OK);
    check(&p, "Open MPI", 2, 3, 0, 1, "mpi");
    p = read_place("PMI_RANK=1 PMI_SIZE=2 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2", HL_OK);
    check(&p, "MPICH", 1, 2, 1, 2, "mpi");
    p = read_place("PMI_RANK=0 PMI_SIZE=1", HL_OK);
    check(&p, "MPICH", 0, 1, 0, 0, "mpi");
}

static void test_slurm(void **state) {
    (void)state;
#define STEP "SLURM_JOB_ID=12 SLURM_STEP_ID=1 SLURM_STEP_NODELIST=node[07-08,11],z "
    struct hl_cluster_place p =
        read_place(STEP "SLURM_PROCID=5 SLURM_NTASKS=7 SLURM_LOCALID=1 SLURM_NODEID=2 "
                        "SLURM_STEP_TASKS_PER_NODE=2(x2),3",
                   HL_OK);
    check(&p, "Slurm", 5, 7, 1, 3, "wan");
    assert_string_equal(p.address, "node07:20085");
    p = read_place(STEP "SLURM_PROCID=0 SLURM_NTASKS=8 SLURM_STEP_NUM_TASKS=1", HL_OK);
    check(&p, "Slurm", 0, 1, 0, 0, "wan");
    p = read_place(STEP "SLURM_PROCID=1 SLURM_NTASKS=2 PMIX_RANK=1 SLURM_LOCALID=0", HL_OK);
    check(&p, "PMIx", 1, 2, 0, 0, "mpi");
    /* mpirun within an allocation: the daemon's SLURM_PROCID counts machines */
    p = read_place(STEP "SLURM_PROCID=0 SLURM_NTASKS=1 OMPI_COMM_WORLD_RANK=3 "
                        "OMPI_COMM_WORLD_SIZE=4",
                   HL_OK);
    check(&p, "Open MPI", 3, 4, 0, 0, "mpi");
    p = read_place("SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_NTASKS=2 MASTER_ADDR=h MASTER_PORT=80",
                   HL_OK);
    assert_string_equal(p.address, "h:80");
    refused("SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_NTASKS=2", "set MASTER_ADDR");
    refused("SLURM_STEP_ID=0 SLURM_PROCID=2", "SLURM_PROCID=2 is set and SLURM_STEP_NUM_TASKS");
}

static void test_refused(void **state) {
    (void)state;
    refused("RANK=1", "RANK=1 is set and WORLD_SIZE is not");
    refused("WORLD_SIZE=2", "WORLD_SIZE=2 is set and RANK is not");
    refused("HALLEY_RANK=0", "HALLEY_RANK=0 is set and HALLEY_N_RANKS is not");
    refused("PMI_SIZE=2", "PMI_SIZE=2 is set and PMI_RANK is not");
    refused("PMIX_RANK=0", "PMIX_RANK=0 is set and SLURM_STEP_NUM_TASKS");
    refused("RANK=2 WORLD_SIZE=2", "RANK=2 is no number from 0 to 1");
    refused("RANK=-1 WORLD_SIZE=2", "RANK=-1 is no number");
    refused("RANK=0 WORLD_SIZE=two", "WORLD_SIZE=two is no number");
    refused("RANK=0 WORLD_SIZE=99999999999999999999", "WORLD_SIZE=9");
    refused("RANK=0 WORLD_SIZE=4 LOCAL_RANK=2 LOCAL_WORLD_SIZE=2", "LOCAL_RANK=2 is no number");
    refused("RANK=0 WORLD_SIZE=4 LOCAL_WORLD_SIZE=2", "LOCAL_RANK is not");
    refused("RANK=0 WORLD_SIZE=4 LOCAL_RANK=0 LOCAL_WORLD_SIZE=5", "LOCAL_WORLD_SIZE=5");
    refused("RANK=0 WORLD_SIZE=2", "set MASTER_ADDR");
    refused("RANK=0 WORLD_SIZE=2 MASTER_ADDR=a", "MASTER_PORT is not");
    refused("RANK=0 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=70000", "MASTER_PORT=70000");
    refused("HALLEY_TIMEOUT=soon", "HALLEY_TIMEOUT=soon");
    refused("HALLEY_WIRE=a-wire-with-a-long-name", "HALLEY_WIRE has more than 15");
    refused("RANK=1 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=1 PMI_RANK=0 PMI_SIZE=2",
            "RANK=1 of torchrun and PMI_RANK=0 of MPICH contradict");
    refused("OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 PMI_RANK=1 PMI_SIZE=3",
            "OMPI_COMM_WORLD_SIZE=2 of Open MPI and PMI_SIZE=3 of MPICH contradict");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alone), cmocka_unit_test(test_launchers),
        cmocka_unit_test(test_slurm), cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
