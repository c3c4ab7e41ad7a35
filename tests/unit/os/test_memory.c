/* Large blocks, and memory of made-up machines. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "os/memory.h"
#include "os_fixture.h"

static void test_blocks(void **state) {
    (void)state;
    struct hl_mem *mem = hl_mem_os();
    static const size_t sizes[] = {
        0, 1, 63, 4096, (1 << 20) - 65, (1 << 20) - 64, (1 << 20) - 63, (1 << 21) + 1, 5000001};
    enum { N = sizeof sizes / sizeof *sizes };
    unsigned char *blocks[N];
    for (size_t i = 0; i < N; i++) {
        blocks[i] = hl_alloc(mem, sizes[i], 1);
        assert_non_null(blocks[i]);
        assert_int_equal((uintptr_t)blocks[i] % 64, 0);
        for (size_t k = 0; k < sizes[i]; k++) assert_int_equal(blocks[i][k], 0);
        memset(blocks[i], (int)i + 1, sizes[i]);
    }
    for (size_t i = 0; i < N; i++) {
        size_t grown = 2 * sizes[i] + 3;
        blocks[i] = hl_realloc(mem, blocks[i], grown, 1);
        assert_non_null(blocks[i]);
        for (size_t k = 0; k < sizes[i]; k++) assert_int_equal(blocks[i][k], i + 1);
        hl_free(mem, blocks[i]);
    }
    assert_null(hl_alloc(mem, SIZE_MAX, 1));
    assert_null(hl_alloc(mem, SIZE_MAX - 64, 1));
    assert_null(hl_alloc(mem, SIZE_MAX / 2, 1));
}

static void test_resident(void **state) {
    (void)state;
    enum { N = 64 << 20 };
    uint64_t before = hl_memory_resident_bytes();
    assert_true(before > 0);
    char *block = hl_alloc(hl_mem_os(), N, 1);
    assert_non_null(block);
    assert_true(hl_memory_resident_bytes() < before + N / 2); /* zero without being touched */
    for (int64_t i = 0; i < N; i += 4096) {
        assert_int_equal(block[i], 0);
        block[i] = 1;
    }
    assert_true(hl_memory_resident_bytes() >= before + N - (4 << 20));
    hl_free(hl_mem_os(), block);
    assert_true(hl_memory_resident_bytes() < before + N / 2);
    assert_true(hl_memory_peak_resident_bytes() >= before + N - (4 << 20));
}

static struct hl_memory read_root(void) {
    struct hl_memory memory;
    hl_memory_read_at(root, &memory);
    return memory;
}

static void test_machine(void **state) {
    (void)state;
    struct hl_memory memory = read_root();
    assert_int_equal(memory.total_bytes, 0);
    assert_string_equal(memory.huge_pages, "none");
    put("proc/meminfo", "MemTotal:       1000 kB\nMemFree:        1 kB\nMemAvailable:    800 kB\n");
    put("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
    put("sys/kernel/mm/transparent_hugepage/hpage_pmd_size", "2097152\n");
    memory = read_root();
    assert_int_equal(memory.total_bytes, 1000 * 1024);
    assert_int_equal(memory.available_bytes, 800 * 1024);
    assert_int_equal(memory.limit_bytes, 0);
    assert_string_equal(memory.huge_pages, "madvise");
    assert_int_equal(memory.huge_page_bytes, 2097152);
}

static void test_limits(void **state) {
    (void)state;
    put("proc/meminfo", "MemTotal:       1000 kB\nMemAvailable:    800 kB\n");
    put("proc/self/cgroup", "0::/job\n");
    put("sys/fs/cgroup/job/memory.max", "max\n");
    put("sys/fs/cgroup/job/memory.current", "1000\n");
    assert_int_equal(read_root().limit_bytes, 0);
    put("sys/fs/cgroup/job/memory.max", "500000\n");
    assert_int_equal(read_root().limit_bytes, 500000);
    assert_int_equal(read_root().available_bytes, 499000);
    put("sys/fs/cgroup/job/memory.current", "600000\n");
    assert_int_equal(read_root().available_bytes, 1);
    put("proc/self/cgroup", "3:memory:/old\n");
    put("sys/fs/cgroup/memory/old/memory.limit_in_bytes", "9223372036854771712\n");
    put("sys/fs/cgroup/memory/old/memory.usage_in_bytes", "7\n");
    assert_int_equal(read_root().limit_bytes, 0);
    put("sys/fs/cgroup/memory/old/memory.limit_in_bytes", "400000\n");
    assert_int_equal(read_root().limit_bytes, 400000);
    assert_int_equal(read_root().available_bytes, 399993);
}

static void test_this_machine(void **state) {
    (void)state;
    struct hl_memory memory;
    hl_memory_read(&memory);
    assert_true(memory.total_bytes > 0 && memory.available_bytes > 0 &&
                memory.available_bytes <= memory.total_bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_resident),
        cmocka_unit_test_setup_teardown(test_machine, make_root, drop_root),
        cmocka_unit_test_setup_teardown(test_limits, make_root, drop_root),
        cmocka_unit_test(test_this_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
