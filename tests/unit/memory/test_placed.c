/* Blocks lie in a folder, are zero, outlive nothing, and leave nothing there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <dirent.h>
#include <unistd.h>

#include "memory/placed.h"

static int n_files(const char *folder) {
    DIR *dir = opendir(folder);
    int n = -2; /* . and .. */
    assert_non_null(dir);
    while (readdir(dir)) n++;
    (void)closedir(dir);
    return n;
}

static void test_blocks(void **state) {
    char folder[] = "/dev/shm/halley-test-XXXXXX";
    struct hl_placed *p = NULL;
    struct hl_diag diag = {0};
    (void)state;
    assert_non_null(mkdtemp(folder));
    assert_int_equal(hl_placed_new(hl_mem_default(), folder, NULL, &p, &diag), HL_OK);
    struct hl_mem *mem = hl_placed_mem(p);
    float *a = hl_alloc(mem, 100000, sizeof *a), *b = hl_alloc(mem, 3, sizeof *b);
    assert_true(a && b && (uintptr_t)a % 64 == 0 && (uintptr_t)b % 64 == 0);
    assert_int_equal(n_files(folder), 0);
    for (int i = 0; i < 100000; i++) assert_true(a[i] == 0);
    for (int i = 0; i < 100000; i++) a[i] = (float)i;
    b[2] = 7;
    hl_free(mem, a);
    assert_true(b[0] == 0 && b[2] == 7);
    float *c = hl_alloc(mem, 100000, sizeof *c);
    assert_true(c && c[99999] == 0);
    hl_free(mem, b);
    hl_free(mem, c);
    assert_null(hl_alloc(mem, (size_t)1 << 60, 1)); /* no room: told, and taken back */
    assert_int_equal(n_files(folder), 0);
    hl_placed_free(p);
    assert_int_equal(rmdir(folder), 0);
}

static void test_no_folder(void **state) {
    struct hl_placed *p = NULL;
    struct hl_diag diag = {0};
    (void)state;
    assert_int_equal(hl_placed_new(hl_mem_default(), "/nowhere/at/all", NULL, &p, &diag), HL_E_IO);
    assert_non_null(strstr(diag.text, "/nowhere/at/all"));
    hl_placed_free(NULL);
}

static void test_memory_short(void **state) {
    struct hl_mem_probe probe;
    struct hl_placed *p = NULL;
    struct hl_diag diag = {0};
    (void)state;
    for (long i = 1; i <= 2; i++) {
        hl_mem_probe_init(&probe, i);
        assert_int_equal(hl_placed_new(&probe.mem, "/dev/shm", NULL, &p, &diag), HL_E_MEMORY);
        assert_int_equal(probe.n_live, 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_blocks),
                                       cmocka_unit_test(test_no_folder),
                                       cmocka_unit_test(test_memory_short)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
