/* Pools come and go: what is made, what is refused before anything is written, who may remove
 * what. Those that a killed owner left are swept, and no others. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "memory/pool.h"

enum { MIB = 1 << 20 };
static char parent[] = "/dev/shm/test-pools-XXXXXX"; /* a folder of one's own to sweep */

static const char *in_parent(char out[200], const char *name) {
    (void)snprintf(out, 200, "%s/%s", parent, name);
    return out;
}

static struct hl_pool *made(const char *address, bool kept) {
    const struct hl_pool_spec spec = {
        .address = address, .n_devices = 2, .device_bytes = 4 * MIB, .kept = kept};
    struct hl_pool *pool = NULL;
    struct hl_diag diag = {0};
    if (hl_pool_make(hl_mem_default(), &spec, &pool, &diag) != HL_OK) fail_msg("%s", diag.text);
    return pool;
}

static void not_attached(const char *address, enum hl_status want, const char *words) {
    struct hl_pool *pool;
    struct hl_diag diag = {0};
    assert_int_equal(hl_pool_attach(hl_mem_default(), address, false, 0, &pool, &diag), want);
    if (!strstr(diag.text, words)) fail_msg("'%s' is not in: %s", words, diag.text);
}

static void not_made(const struct hl_pool_spec *spec, enum hl_status want, const char *words) {
    struct hl_pool *pool;
    struct hl_diag diag = {0};
    assert_int_equal(hl_pool_make(hl_mem_default(), spec, &pool, &diag), want);
    if (!strstr(diag.text, words)) fail_msg("'%s' is not in: %s", words, diag.text);
}

static bool exists(const char *address) { return access(address, F_OK) == 0; }

static void write_file(const char *path, size_t offset, const void *data, size_t n) {
    FILE *file = fopen(path, "r+");
    assert_non_null(file);
    assert_int_equal(fseek(file, (long)offset, SEEK_SET), 0);
    assert_int_equal(fwrite(data, 1, n, file), n);
    (void)fclose(file);
}

static void new_file(const char *path, size_t bytes) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(ftruncate(fileno(file), (off_t)bytes), 0);
    (void)fclose(file);
}

static void test_two_mappings(void **state) {
    char address[200], device[220];
    struct hl_pool *a = made(in_parent(address, "halley-a"), false), *b = NULL;
    struct hl_diag diag = {0};
    struct stat info;
    char word[6] = "";
    (void)state;
    assert_int_equal(hl_pool_attach(hl_mem_default(), address, false, 0, &b, &diag), HL_OK);
    assert_true(a->devices[0].write != b->devices[0].write);
    assert_memory_equal(&a->head, &b->head, offsetof(struct hl_pool_head, device));
    hl_pool_put(a, 1, 3 * MIB, "there", 6);
    hl_pool_get(b, 1, 3 * MIB, word, sizeof word);
    assert_string_equal(word, "there");
    hl_pool_close(b);
    assert_true(exists(address)); /* b is not its owner */
    (void)snprintf(device, sizeof device, "%s/dev1", address);
    assert_int_equal(stat(device, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    assert_int_equal(info.st_blocks * 512, info.st_size); /* all of it reserved */
    hl_pool_close(a);
    assert_false(exists(address));
}

static void test_what_is_no_pool(void **state) {
    char address[200], path[220];
    struct hl_pool_head head;
    (void)state;
    not_attached(in_parent(address, "halley-none"), HL_E_USER, "does not exist");
    hl_pool_close(made(in_parent(address, "halley-kept"), true));
    not_attached(in_parent(path, "halley-kept/lock"), HL_E_USER, "is empty");
    (void)snprintf(path, sizeof path, "%s/dev0", address);
    FILE *file = fopen(path, "r");
    assert_int_equal(fread(&head, 1, sizeof head, file), sizeof head);
    (void)fclose(file);
    static const uint32_t version = 9;
    write_file(path, 8, &version, sizeof version);
    not_attached(address, HL_E_UNSUPPORTED, "format version 9");
    write_file(path, 0, &head, sizeof head);
    write_file(path, 100, "x", 1);
    not_attached(address, HL_E_FORMAT, "damaged");
    write_file(path, 0, "JPEG", 4);
    not_attached(address, HL_E_FORMAT, "holds no pool");
    write_file(path, 0, &head, sizeof head);
    assert_int_equal(truncate(path, 3 * MIB), 0);
    not_attached(address, HL_E_USER, "has 3145728 bytes, and the pool needs 4194304");
    assert_int_equal(truncate(path, 100), 0);
    not_attached(address, HL_E_FORMAT, "100 bytes are too few");
    struct hl_diag diag = {0};
    assert_int_equal(hl_pool_remove(hl_mem_default(), address, false, &diag), HL_E_FORMAT);
    assert_int_equal(hl_pool_remove(hl_mem_default(), address, true, &diag), HL_OK);
    assert_false(exists(address));
}

static void test_devices_of_two_pools(void **state) {
    char a[200], b[200], list[600];
    (void)state;
    hl_pool_close(made(in_parent(a, "halley-a"), true));
    hl_pool_close(made(in_parent(b, "halley-b"), true));
    (void)snprintf(list, sizeof list, "%s/dev0,%s/dev1", a, b);
    not_attached(list, HL_E_USER, "belongs to another pool");
    (void)snprintf(list, sizeof list, "%s/dev1,%s/dev0", a, a);
    not_attached(list, HL_E_USER, "is device 1 of the pool, not 0");
    (void)snprintf(list, sizeof list, "%s/dev0", a);
    not_attached(list, HL_E_USER, "has 2 devices");
    struct hl_diag diag;
    assert_int_equal(hl_pool_remove(hl_mem_default(), a, false, &diag), HL_OK);
    assert_int_equal(hl_pool_remove(hl_mem_default(), b, false, &diag), HL_OK);
}

static void test_not_over_what_is_there(void **state) {
    char address[200], file[200];
    struct hl_pool *pool;
    struct hl_diag diag = {0};
    struct hl_pool_spec spec = {
        .address = in_parent(address, "halley-a"), .n_devices = 1, .device_bytes = 2 * MIB};
    (void)state;
    pool = made(address, false);
    not_made(&spec, HL_E_USER, "exists already");
    hl_pool_close(pool);
    new_file(in_parent(file, "device"), 8 * MIB);
    write_file(file, 10, "precious", 8);
    spec = (struct hl_pool_spec){.address = file, .kept = true};
    not_made(&spec, HL_E_USER, "holds data that is no pool");
    spec.device_bytes = 16 * MIB;
    not_made(&spec, HL_E_USER, "has 8388608 bytes, and each device of the pool needs 16777216");
    spec.device_bytes = 0;
    spec.force = true;
    assert_int_equal(hl_pool_make(hl_mem_default(), &spec, &pool, &diag), HL_OK);
    assert_int_equal(pool->head.device_bytes, 8 * MIB);
    hl_pool_close(pool);
    spec.force = false;
    not_made(&spec, HL_E_USER, "holds a pool already");
    assert_int_equal(hl_pool_remove(hl_mem_default(), file, false, &diag), HL_OK);
    assert_int_equal(hl_pool_make(hl_mem_default(), &spec, &pool, &diag), HL_OK); /* it is blank */
    hl_pool_close(pool);
    assert_int_equal(unlink(file), 0);
    spec.address = in_parent(file, "nowhere/halley-a");
    not_made(&spec, HL_E_IO, "nowhere");
    spec.address = "/dev/null";
    not_made(&spec, HL_E_USER, "no memory device");
}

static const struct hl_pool_job job = {.n_ranks = 3, .n_lanes = 1, .n_slots = 1, .part_bytes = 64};

static void begin(struct hl_pool *pool) {
    struct hl_diag diag = {0};
    if (hl_pool_begin(pool, &job, true, 4096, 0, false, &diag) != HL_OK) fail_msg("%s", diag.text);
}

/* A process makes a pool, begins a job, says so, and dies. */
static void leave_a_pool(const char *address, bool kept) {
    int status;
    (void)fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        begin(made(address, kept));
        (void)raise(SIGKILL);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
}

static void test_sweeping(void **state) {
    char stale[200], kept[200], live[200], half[200], other[200], full[200], inner[200];
    struct hl_pool *pool;
    struct hl_diag diag = {0};
    int n = -1;
    (void)state;
    leave_a_pool(in_parent(stale, "halley-stale"), false);
    leave_a_pool(in_parent(kept, "halley-kept"), true);
    pool = made(in_parent(live, "halley-live"), false);
    assert_int_equal(mkdir(in_parent(half, "halley-x.new-1"), 0700), 0); /* being made, it seems */
    assert_int_equal(mkdir(in_parent(other, "somebody's"), 0700), 0);
    /* an old folder with other things in it is not removed, and not counted */
    const struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    assert_int_equal(mkdir(in_parent(full, "halley-full"), 0700), 0);
    assert_int_equal(mkdir(in_parent(inner, "halley-full/inner"), 0700), 0);
    assert_int_equal(utimensat(AT_FDCWD, full, old, 0), 0);

    struct hl_pool *dead;
    assert_int_equal(hl_pool_attach(hl_mem_default(), stale, true, 0, &dead, &diag), HL_OK);
    assert_false(hl_pool_owner_lives(dead));
    assert_int_equal(hl_pool_join(dead, 0, &diag), HL_E_USER);
    assert_non_null(strstr(diag.text, "is stale: its owner, pid"));
    hl_pool_close(dead);

    assert_int_equal(hl_pool_sweep(hl_mem_default(), parent, &n, &diag), HL_OK);
    assert_int_equal(n, 1);
    assert_false(exists(stale));
    assert_true(exists(kept) && exists(live) && exists(half) && exists(other) && exists(inner));
    assert_int_equal(rmdir(inner), 0);
    assert_int_equal(rmdir(full), 0);
    assert_int_equal(hl_pool_remove(hl_mem_default(), live, false, &diag), HL_E_USER);
    assert_non_null(strstr(diag.text, "in use"));
    hl_pool_close(pool);

    /* the kept one serves again: whoever had it is seen to be gone */
    assert_int_equal(hl_pool_attach(hl_mem_default(), kept, false, 0, &pool, &diag), HL_OK);
    begin(pool);
    hl_pool_close(pool);
    assert_int_equal(hl_pool_remove(hl_mem_default(), kept, false, &diag), HL_OK);
    assert_int_equal(rmdir(half), 0);
    assert_int_equal(rmdir(other), 0);
}

/* A rank that another kernel runs: its process cannot be seen, its heart can. */
static void test_ranks_out_of_sight(void **state) {
    char address[200];
    struct hl_pool *pool = made(in_parent(address, "halley-far"), true), *again;
    struct hl_diag diag = {0};
    struct hl_pool_record record = {.attached = 1, .incarnation = 5, .who = {.pid = 1}};
    (void)state;
    record.who.boot[0] = 77; /* not ours */
    hl_pool_put(pool, 0, pool->head.records.offset + 2 * 256, &record, sizeof record);
    assert_int_equal(hl_pool_check_idle(pool, false, &diag), HL_E_USER);
    assert_non_null(strstr(diag.text, "rank 2 of an earlier job"));
    assert_non_null(strstr(diag.text, "--force"));
    assert_int_equal(hl_pool_check_idle(pool, true, &diag), HL_OK);
    (void)fflush(NULL);
    pid_t pid = fork(); /* that heart beats */
    if (pid == 0)
        for (uint64_t beat = 1;; beat++) {
            hl_pool_beat(pool, 2, beat);
            usleep(20000);
        }
    assert_int_equal(hl_pool_check_idle(pool, true, &diag), HL_E_USER);
    assert_non_null(strstr(diag.text, "is still used by rank 2"));
    (void)kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    hl_pool_close(pool);
    assert_int_equal(hl_pool_attach(hl_mem_default(), address, false, 0, &again, &diag), HL_OK);
    assert_int_equal(hl_pool_begin(again, &job, true, 4096, 0, false, &diag), HL_E_USER);
    assert_int_equal(hl_pool_begin(again, &job, true, 4096, 0, true, &diag), HL_OK);
    hl_pool_close(again);
    assert_int_equal(hl_pool_remove(hl_mem_default(), address, false, &diag), HL_OK);
}

static bool attached(const struct hl_pool *pool, int rank) {
    struct hl_pool_user user;
    hl_pool_look(pool, rank, &user);
    return user.attached;
}

/* Rank 1's process is killed; rank 0 leaves after its job has ended; rank 2 is another machine's.
 */
static void test_what_ranks_leave_behind(void **state) {
    char address[200];
    struct hl_pool *pool = made(in_parent(address, "halley-left"), true), *rank;
    struct hl_diag diag = {0};
    struct hl_pool_record record = {.attached = 1, .who = {.pid = 1, .boot = {77}}};
    (void)state;
    begin(pool);
    assert_int_equal(hl_pool_attach(hl_mem_default(), address, true, 0, &rank, &diag), HL_OK);
    assert_int_equal(hl_pool_join(rank, 0, &diag), HL_OK);
    (void)fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        if (hl_pool_join(rank, 1, &diag) == HL_OK) (void)raise(SIGKILL);
        _exit(1);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    hl_pool_put(pool, 0, pool->head.records.offset + 2 * 256, &record, sizeof record);
    assert_true(attached(pool, 0) && attached(pool, 1) && attached(pool, 2));
    hl_pool_forget_gone(rank);
    assert_true(attached(pool, 0) && !attached(pool, 1) && attached(pool, 2));
    hl_pool_close(pool); /* the job is over */
    hl_pool_leave(rank, 2);
    assert_true(attached(rank, 2)); /* not its own */
    hl_pool_leave(rank, 0);
    assert_false(attached(rank, 0));
    hl_pool_close(rank);
    assert_int_equal(hl_pool_remove(hl_mem_default(), address, true, &diag), HL_OK);
}

static void test_memory_short(void **state) {
    char address[200];
    (void)state;
    for (long k = 1;; k++) {
        struct hl_mem_probe probe;
        struct hl_pool *pool = NULL;
        struct hl_diag diag = {0};
        const struct hl_pool_spec spec = {.address = in_parent(address, "halley-probe"),
                                          .device_bytes = 2 * MIB};
        hl_mem_probe_init(&probe, k);
        enum hl_status status = hl_pool_make(&probe.mem, &spec, &pool, &diag);
        hl_pool_close(pool);
        assert_int_equal(probe.n_live, 0);
        assert_false(exists(address));
        if (status == HL_OK) break;
        assert_int_equal(status, HL_E_MEMORY);
    }
}

static int make_parent(void **state) {
    (void)state;
    return mkdtemp(parent) ? 0 : -1;
}
static int remove_parent(void **state) {
    (void)state;
    return rmdir(parent); /* nothing was left in it */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_mappings),
        cmocka_unit_test(test_what_is_no_pool),
        cmocka_unit_test(test_devices_of_two_pools),
        cmocka_unit_test(test_not_over_what_is_there),
        cmocka_unit_test(test_sweeping),
        cmocka_unit_test(test_ranks_out_of_sight),
        cmocka_unit_test(test_what_ranks_leave_behind),
        cmocka_unit_test(test_memory_short),
    };
    return cmocka_run_group_tests(tests, make_parent, remove_parent);
}
