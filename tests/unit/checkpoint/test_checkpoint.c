/* Save, find, open and read back, on the real disk. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "checkpoint/run_folder.h"
#include "halley/checkpoint.h"
#include "os/fs.h"
#include "support/checkpoint_fixture.h"

static char root[] = "/tmp/halley-checkpoint-XXXXXX";

static int make_root(void **state) {
    (void)state;
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state) {
    (void)state;
    char command[128];
    (void)snprintf(command, sizeof command, "rm -rf %s", root);
    return getenv("HALLEY_KEEP") ? 0 : system(command);
}

static const char *under_root(const char *name) {
    static char path[4][256];
    static int turn;
    turn = (turn + 1) % 4;
    (void)snprintf(path[turn], sizeof path[turn], "%s/%s", root, name);
    return path[turn];
}

static void save(const struct fixture *f, const char *folder, int64_t limit) {
    struct hl_diag diag = {0};
    if (hl_checkpoint_save(hl_mem_default(), hl_fs_os(), folder, &f->checkpoint, limit, NULL,
                           &diag))
        fail_msg("%s", diag.text);
}

static void assert_latest(const char *folder, const char *name) {
    char path[300] = "";
    struct hl_diag diag = {0};
    if (hl_checkpoint_latest(hl_mem_default(), hl_fs_os(), folder, path, sizeof path, NULL, &diag))
        fail_msg("%s", diag.text);
    assert_string_equal(strrchr(path, '/') + 1, name);
}

static void test_round_trip(void **state) {
    (void)state;
    static const char *const kinds[] = {"gpt2",       "llama", "llama-tied", "qwen2",
                                        "qwen2-tied", "qwen3", "qwen3-tied", "llama-scaled"};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        struct fixture f;
        fixture_set_up(&f, kinds[i], i);
        char folder[300], path[400];
        (void)snprintf(folder, sizeof folder, "%s/deep/%s", root, kinds[i]);
        save(&f, folder, 0);
        assert_latest(folder, "checkpoint-100");
        (void)snprintf(path, sizeof path, "%s/checkpoint-100", folder);
        fixture_check(&f, hl_fs_os(), path);
        fixture_tear_down(&f);
    }
}

static int n_checkpoints(const char *folder) {
    struct hl_run_folder scan;
    struct hl_diag diag = {0};
    assert_int_equal(hl_run_folder_scan(hl_mem_default(), hl_fs_os(), folder, &scan, NULL, &diag),
                     HL_OK);
    int n = scan.n_entries;
    hl_run_folder_free(&scan);
    return n;
}

static void test_limit_and_order(void **state) {
    (void)state;
    struct fixture f;
    fixture_set_up(&f, "llama", 1);
    const char *folder = under_root("limited");
    const int64_t steps[] = {10, 20, 30,
                             40, 25, 25}; /* after 40 the run was resumed from an older one */
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        f.checkpoint.step = steps[i];
        f.params[0] = (float)i;
        save(&f, folder, 3);
        char name[64], path[400];
        (void)snprintf(name, sizeof name, "checkpoint-%d", (int)steps[i]);
        assert_latest(folder, name);
        (void)snprintf(path, sizeof path, "%s/%s", folder, name);
        fixture_check(&f, hl_fs_os(), path);
        assert_int_equal(n_checkpoints(folder), i < 2 ? (int)i + 1 : 3);
    }
    assert_int_equal(access(under_root("limited/checkpoint-30"), F_OK), 0);
    assert_int_equal(access(under_root("limited/checkpoint-20"), F_OK), -1);
    char text[64] = "";
    FILE *latest = fopen(under_root("limited/latest"), "r");
    assert_non_null(latest);
    assert_non_null(fgets(text, sizeof text, latest));
    (void)fclose(latest);
    assert_string_equal(text, "checkpoint-25\n");
    fixture_tear_down(&f);
}

static void test_nothing_there(void **state) {
    (void)state;
    char path[300];
    struct hl_diag diag = {0};
    assert_int_equal(hl_checkpoint_latest(hl_mem_default(), hl_fs_os(), under_root("none"), path,
                                          sizeof path, NULL, &diag),
                     HL_END);
    struct hl_checkpoint_reader *reader = NULL;
    assert_int_equal(
        hl_checkpoint_open(hl_mem_default(), hl_fs_os(), under_root("none"), &reader, NULL, &diag),
        HL_E_USER);
    assert_non_null(strstr(diag.text, "config.json"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_limit_and_order),
        cmocka_unit_test(test_nothing_there),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
