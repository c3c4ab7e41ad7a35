/* Processors of made-up machines: files under a temporary root. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "os/cpu.h"
#include "os_fixture.h"

/* 4 cores with 2 threads each, numbered as Intel does: 0,4 1,5 2,6 3,7. */
static void make_eight(void) {
    for (int i = 0; i < 8; i++) {
        char path[128], text[32];
        (void)snprintf(path, sizeof path,
                       "sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", i);
        (void)snprintf(text, sizeof text, "%d,%d\n", i % 4, i % 4 + 4);
        put(path, text);
    }
}

static struct hl_cpu read_with(unsigned long allowed) {
    struct hl_cpu cpu;
    hl_cpu_read_at(root, &allowed, 1, &cpu);
    return cpu;
}

static void test_affinity(void **state) {
    (void)state;
    make_eight();
    assert_int_equal(read_with(0xff).n_cores, 4);
    assert_int_equal(read_with(0xff).n_allowed, 8);
    assert_int_equal(read_with(0xff).n_threads, 4);
    assert_int_equal(read_with(0xf0).n_cores, 4); /* only the second threads */
    assert_int_equal(read_with(0x11).n_cores, 1); /* both threads of one core */
    assert_int_equal(read_with(0x13).n_cores, 2);
    assert_int_equal(read_with(0x80).n_threads, 1);
    put("sys/devices/system/cpu/cpu1/topology/thread_siblings_list", "0-1\n");
    assert_int_equal(read_with(0x03).n_cores, 1);
}

/* Without /sys every processor counts as a core; without any processor there is still one thread.
 */
static void test_no_files(void **state) {
    (void)state;
    assert_int_equal(read_with(0xf).n_cores, 4);
    assert_int_equal(read_with(0).n_threads, 1);
    assert_true(read_with(1).quota == 0);
}

static void test_quota_v2(void **state) {
    (void)state;
    make_eight();
    put("proc/self/cgroup", "0::/user/job\n");
    put("sys/fs/cgroup/user/job/cpu.max", "max 100000\n");
    assert_true(read_with(0xff).quota == 0);
    put("sys/fs/cgroup/user/cpu.max", "250000 100000\n"); /* a limit of the parent holds too */
    assert_true(read_with(0xff).quota == 2.5);
    assert_int_equal(read_with(0xff).n_threads, 2);
    put("sys/fs/cgroup/user/job/cpu.max", "50000 100000\n");
    assert_int_equal(read_with(0xff).n_threads, 1);
    put("sys/fs/cgroup/user/job/cpu.max", "nonsense\n");
    assert_true(read_with(0xff).quota == 2.5);
}

/* In a container the group's path does not exist below the mount. */
static void test_quota_in_container(void **state) {
    (void)state;
    make_eight();
    put("proc/self/cgroup", "0::/../../host/docker/0123\n");
    put("sys/fs/cgroup/cpu.max", "300000 100000\n");
    assert_int_equal(read_with(0xff).n_threads, 3);
}

static void test_quota_v1(void **state) {
    (void)state;
    make_eight();
    put("proc/self/cgroup", "5:cpuset:/x\n4:cpu,cpuacct:/job\nbroken line\n3:memory:/job\n");
    put("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "-1\n");
    put("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
    assert_true(read_with(0xff).quota == 0);
    put("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "200000\n");
    assert_int_equal(read_with(0xff).n_threads, 2);
    put("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "100000\n"); /* the usual link */
    put("sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
    assert_int_equal(read_with(0xff).n_threads, 1);
}

static void test_this_machine(void **state) {
    (void)state;
    struct hl_cpu cpu;
    hl_cpu_read(&cpu);
    assert_true(cpu.n_threads >= 1 && cpu.n_cores >= cpu.n_threads && cpu.n_allowed >= cpu.n_cores);
    assert_true(cpu.n_online >= cpu.n_allowed);
    assert_true(strlen(cpu.name) > 3);
}

static void test_threads(void **state) {
    (void)state;
    char why[200];
    struct hl_cpu cpu = {.n_online = 8, .n_allowed = 8, .n_cores = 4, .n_threads = 4};
    assert_int_equal(unsetenv("OMP_NUM_THREADS"), 0);
    assert_int_equal(hl_cpu_threads(&cpu, 0, why, sizeof why), 4);
    assert_string_equal(why, "4 physical cores");
    cpu.n_allowed = 4;
    cpu.n_threads = 2;
    cpu.quota = 2.5;
    assert_int_equal(hl_cpu_threads(&cpu, -1, why, sizeof why), 2);
    assert_string_equal(why, "4 physical cores in the affinity mask (4 of 8 logical processors), "
                             "limited by the control group to "
                             "the time of 2");
    assert_int_equal(hl_cpu_threads(&cpu, 0, why, 5), 2);
    assert_string_equal(why, "4 ph");
    assert_int_equal(setenv("OMP_NUM_THREADS", "3", 1), 0);
    assert_int_equal(hl_cpu_threads(&cpu, 0, why, sizeof why), 3);
    assert_string_equal(why, "OMP_NUM_THREADS");
    assert_true(hl_cpu_threads_asked(0));
    assert_int_equal(hl_cpu_threads(&cpu, 7, why, sizeof why), 7);
    assert_int_equal(hl_cpu_threads(&cpu, INT64_MAX, why, sizeof why), 8192);
    assert_int_equal(setenv("OMP_NUM_THREADS", "junk", 1), 0);
    assert_true(hl_cpu_threads_asked(1) && !hl_cpu_threads_asked(0));
    assert_int_equal(hl_cpu_threads(&cpu, 0, why, sizeof why), 2);
    assert_int_equal(unsetenv("OMP_NUM_THREADS"), 0);
}

static void test_share(void **state) {
    (void)state;
    char why[200];
    struct hl_cpu cpu = {.n_online = 4, .n_allowed = 4, .n_cores = 4, .n_threads = 4};
    hl_cpu_share(&cpu, 1);
    assert_int_equal(hl_cpu_threads(&cpu, 0, why, sizeof why), 4);
    hl_cpu_share(&cpu, 2);
    assert_int_equal(hl_cpu_threads(&cpu, 0, why, sizeof why), 2);
    assert_string_equal(why, "4 physical cores, shared by 2 ranks");
    hl_cpu_share(&cpu, 8);
    assert_int_equal(hl_cpu_threads(&cpu, 0, why, sizeof why), 1);
    assert_true(hl_cpu_identity() == hl_cpu_identity());
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_affinity, make_root, drop_root),
        cmocka_unit_test_setup_teardown(test_no_files, make_root, drop_root),
        cmocka_unit_test_setup_teardown(test_quota_v2, make_root, drop_root),
        cmocka_unit_test_setup_teardown(test_quota_in_container, make_root, drop_root),
        cmocka_unit_test_setup_teardown(test_quota_v1, make_root, drop_root),
        cmocka_unit_test(test_this_machine),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_share),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
