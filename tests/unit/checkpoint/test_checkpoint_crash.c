/* A save is interrupted at every operation on the disk, in every way; what was committed before
 * stays, and the next save works. The disk is simulated: tests/support/fake_fs.h. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/run_folder.h"
#include "support/checkpoint_fixture.h"
#include "support/fake_fs.h"

enum { N_FIXTURES = 3 };
static struct fixture fixtures[N_FIXTURES]; /* the same model, other weights and steps */
static const char OUT[] = "/runs/one";

static int make_fixtures(void **state) {
    (void)state;
    for (int i = 0; i < N_FIXTURES; i++) {
        fixture_set_up(&fixtures[i], i == 2 ? "gpt2" : "llama", (uint64_t)i);
        fixtures[i].checkpoint.step = 10 * (i + 1);
    }
    return 0;
}

static int drop_fixtures(void **state) {
    (void)state;
    for (int i = 0; i < N_FIXTURES; i++) fixture_tear_down(&fixtures[i]);
    return 0;
}

static enum hl_status save(struct fake_fs *disk, const struct fixture *f, int64_t limit,
                           struct hl_diag *diag) {
    *diag = (struct hl_diag){0};
    return hl_checkpoint_save(hl_mem_default(), fake_fs_table(disk), OUT, &f->checkpoint, limit,
                              NULL, diag);
}

static void must_save(struct fake_fs *disk, const struct fixture *f, int64_t limit) {
    struct hl_diag diag;
    if (save(disk, f, limit, &diag)) fail_msg("%s", diag.text);
}

/* A disk on which fixtures 0 and 1 are committed. */
static struct fake_fs *prepared(void) {
    struct fake_fs *disk = fake_fs_new();
    must_save(disk, &fixtures[0], 2);
    must_save(disk, &fixtures[1], 2);
    return disk;
}

static void latest(struct fake_fs *disk, char path[128]) {
    struct hl_diag diag = {0};
    enum hl_status status =
        hl_checkpoint_latest(hl_mem_default(), fake_fs_table(disk), OUT, path, 128, NULL, &diag);
    if (status) fail_msg("%s %s", hl_status_name(status), diag.text);
}

/* Which of the two is the newest; its content is checked. */
static const struct fixture *newest_of(struct fake_fs *disk, const struct fixture *before,
                                       const struct fixture *after) {
    char path[128], want[64];
    latest(disk, path);
    (void)snprintf(want, sizeof want, "%s/checkpoint-%d", OUT, (int)after->checkpoint.step);
    const struct fixture *newest = strcmp(path, want) != 0 ? before : after;
    fixture_check(newest, fake_fs_table(disk), path);
    return newest;
}

static void check_tidy(struct fake_fs *disk, int n_wanted) {
    struct hl_run_folder folder;
    struct hl_diag diag = {0};
    assert_int_equal(
        hl_run_folder_scan(hl_mem_default(), fake_fs_table(disk), OUT, &folder, NULL, &diag),
        HL_OK);
    assert_int_equal(folder.n_entries, n_wanted);
    for (int i = 0; i < folder.n_entries; i++) assert_true(folder.entries[i].complete);
    hl_run_folder_free(&folder);
    assert_int_equal(fake_fs_open_handles(disk), 0);
}

static long operations_of_a_save(void) {
    struct fake_fs *disk = prepared();
    fake_fs_arm(disk, 0, FAKE_NONE, 0);
    must_save(disk, &fixtures[2], 2);
    long n = fake_fs_operations(disk);
    fake_fs_free(disk);
    assert_true(n > 50);
    return n;
}

static void test_crash_everywhere(void **state) {
    (void)state;
    long n = operations_of_a_save(), n_new = 0, n_old = 0;
    for (int survives = FAKE_ALL; survives <= FAKE_NAMES; survives++)
        for (int fault = FAKE_CRASH; fault <= FAKE_TORN; fault++)
            for (long k = 1; k <= n; k++) {
                struct fake_fs *disk = prepared();
                struct hl_diag diag;
                fake_fs_arm(disk, k, (enum fake_fault)fault, 0);
                enum hl_status status = save(disk, &fixtures[2], 2, &diag);
                fake_fs_reboot(disk, (enum fake_survives)survives);
                const struct fixture *newest = newest_of(disk, &fixtures[1], &fixtures[2]);
                if (!status) assert_ptr_equal(newest, &fixtures[2]);
                else assert_int_equal(status, HL_E_IO);
                newest == &fixtures[2] ? n_new++ : n_old++;
                must_save(disk, &fixtures[2], 2);
                assert_ptr_equal(newest_of(disk, &fixtures[1], &fixtures[2]), &fixtures[2]);
                check_tidy(disk, 2);
                fake_fs_free(disk);
            }
    assert_true(n_new > 0 && n_old > n_new);
}

/* The very first save: afterwards nothing or all of it. */
static void test_crash_in_the_first(void **state) {
    (void)state;
    for (int survives = FAKE_ALL; survives <= FAKE_NAMES; survives++)
        for (long k = 1;; k++) {
            struct fake_fs *disk = fake_fs_new();
            struct hl_diag diag = {0};
            fake_fs_arm(disk, k, FAKE_CRASH, 0);
            enum hl_status status = save(disk, &fixtures[0], 0, &diag);
            bool over = fake_fs_operations(disk) < k;
            fake_fs_reboot(disk, (enum fake_survives)survives);
            char path[128];
            enum hl_status found = hl_checkpoint_latest(hl_mem_default(), fake_fs_table(disk), OUT,
                                                        path, sizeof path, NULL, &diag);
            if (!status || found == HL_OK) {
                assert_int_equal(found, HL_OK);
                fixture_check(&fixtures[0], fake_fs_table(disk), path);
            } else {
                assert_int_equal(found, HL_END);
            }
            must_save(disk, &fixtures[1], 0);
            latest(disk, path);
            fixture_check(&fixtures[1], fake_fs_table(disk), path);
            fake_fs_free(disk);
            if (over) break;
        }
}

/* The same step again, and it is the only checkpoint there is: the old or the new one must be
 * found. */
static void test_crash_in_the_same_step(void **state) {
    (void)state;
    struct fixture again = fixtures[0];
    again.params = fixtures[1].params;
    again.checkpoint.params = again.params;
    for (int survives = FAKE_ALL; survives <= FAKE_NAMES; survives++)
        for (long k = 1;; k++) {
            struct fake_fs *disk = fake_fs_new();
            struct hl_diag diag;
            must_save(disk, &fixtures[0], 1);
            fake_fs_arm(disk, k, FAKE_CRASH, 0);
            enum hl_status status = save(disk, &again, 1, &diag);
            bool over = fake_fs_operations(disk) < k;
            fake_fs_reboot(disk, (enum fake_survives)survives);
            char path[128];
            latest(disk, path);
            size_t *n = NULL;
            char weights[160];
            (void)snprintf(weights, sizeof weights, "%s/model.safetensors", path);
            const char *content = fake_fs_content(disk, weights, &n);
            bool is_new = !memcmp(content + *n - 64,
                                  again.params + again.model->layout.n_parameters -
                                      again.model->padded_vocab * 24 + 70 * 24 - 16,
                                  64);
            if (!status) assert_true(is_new);
            fixture_check(is_new ? &again : &fixtures[0], fake_fs_table(disk), path);
            must_save(disk, &again, 1);
            latest(disk, path);
            assert_string_equal(path, "/runs/one/checkpoint-10");
            fixture_check(&again, fake_fs_table(disk), path);
            check_tidy(disk, 1);
            fake_fs_free(disk);
            if (over) break;
        }
}

/* One operation fails and the program lives on; or the disk stays refusing until a person acts. */
static void test_errors_everywhere(void **state) {
    (void)state;
    static const struct {
        enum fake_fault fault;
        int error;
        const char *hint;
    } cases[] = {
        {FAKE_ERROR, ENOSPC, "free some space"},
        {FAKE_ERROR, EIO, "system log"},
        {FAKE_STUCK, EROFS, "writable"},
        {FAKE_STUCK, EIO, "system log"},
    };
    long n = operations_of_a_save();
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++)
        for (long k = 1; k <= n; k++) {
            struct fake_fs *disk = prepared();
            struct hl_diag diag;
            fake_fs_arm(disk, k, cases[c].fault, cases[c].error);
            enum hl_status status = save(disk, &fixtures[2], 2, &diag);
            if (status) {
                assert_int_equal(status, HL_E_IO);
                if (!strstr(diag.text, cases[c].hint))
                    fail_msg("'%s' lacks '%s'", diag.text, cases[c].hint);
                assert_non_null(strstr(diag.text, OUT));
            }
            const struct fixture *newest = newest_of(disk, &fixtures[1], &fixtures[2]);
            if (!status) assert_ptr_equal(newest, &fixtures[2]);
            fake_fs_arm(disk, 0, FAKE_NONE, 0);
            must_save(disk, &fixtures[2], 2);
            assert_ptr_equal(newest_of(disk, &fixtures[1], &fixtures[2]), &fixtures[2]);
            check_tidy(disk, 2);
            fake_fs_free(disk);
        }
}

static void test_full_disk(void **state) {
    (void)state;
    for (int64_t room = 0; room < 400000; room = room * 2 + 1000) {
        struct fake_fs *disk = prepared();
        struct hl_diag diag;
        fake_fs_set_room(disk, room);
        if (save(disk, &fixtures[2], 2, &diag)) {
            assert_non_null(strstr(diag.text, "No space left"));
            assert_non_null(strstr(diag.text, "free there"));
            assert_ptr_equal(newest_of(disk, &fixtures[1], &fixtures[2]), &fixtures[1]);
            check_tidy(disk, 2); /* nothing of the attempt is left to fill the disk */
            fake_fs_set_room(disk, -1);
            must_save(disk, &fixtures[2], 2);
        }
        assert_ptr_equal(newest_of(disk, &fixtures[1], &fixtures[2]), &fixtures[2]);
        fake_fs_free(disk);
    }
}

static void test_short_transfers(void **state) {
    (void)state;
    struct fake_fs *disk = fake_fs_new();
    fake_fs_set_short(disk, 113);
    must_save(disk, &fixtures[2], 0);
    char path[128];
    latest(disk, path);
    fixture_check(&fixtures[2], fake_fs_table(disk), path);
    fake_fs_free(disk);
}

/* Any flipped byte of any file is noticed. */
static void test_damage_is_noticed(void **state) {
    (void)state;
    static const char *const names[] = {
        "model.safetensors", "state.safetensors",      "config.json",  "loop.json",
        "run.yaml",          "generation_config.json", "manifest.json"};
    struct fake_fs *disk = prepared();
    struct hl_checkpoint_reader *reader = NULL;
    struct hl_diag diag;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[128];
        size_t *n;
        (void)snprintf(path, sizeof path, "%s/checkpoint-20/%s", OUT, names[i]);
        char *content = fake_fs_content(disk, path, &n);
        assert_non_null(content);
        size_t length = *n, step = length / 40 + 1;
        for (size_t at = 0; at < length - 3;
             at += step) { /* -3: the manifest's last bytes are only its closing brace */
            content[at] ^= 4;
            enum hl_status status =
                hl_checkpoint_open(hl_mem_default(), fake_fs_table(disk), "/runs/one/checkpoint-20",
                                   &reader, NULL, &diag);
            content[at] ^= 4;
            if (status != HL_E_FORMAT && status != HL_E_UNSUPPORTED)
                fail_msg("%s byte %zu: %s", names[i], at, hl_status_name(status));
        }
        *n = length - 4;
        assert_int_equal(hl_checkpoint_open(hl_mem_default(), fake_fs_table(disk),
                                            "/runs/one/checkpoint-20", &reader, NULL, &diag),
                         HL_E_FORMAT);
        (void)latest(disk, path);
        assert_string_equal(path, "/runs/one/checkpoint-10"); /* the broken one is passed over */
        *n = length;
    }
    assert_int_equal(fake_fs_open_handles(disk), 0);
    fake_fs_free(disk);
}

static enum hl_status read_everything(struct hl_mem *mem, struct hl_fs *fs, struct hl_diag *diag) {
    char path[128];
    struct hl_checkpoint_reader *reader;
    enum hl_status status = hl_checkpoint_latest(mem, fs, OUT, path, sizeof path, NULL, diag);
    if (!status) status = hl_checkpoint_open(mem, fs, path, &reader, NULL, diag);
    if (status) return status;
    float *params =
        hl_alloc(hl_mem_default(), (size_t)fixtures[2].model->layout.n_parameters, sizeof *params);
    status = hl_checkpoint_read_params(reader, fixtures[2].model, params, diag);
    hl_free(hl_mem_default(), params);
    hl_checkpoint_close(reader);
    return status;
}

static void test_no_memory(void **state) {
    (void)state;
    struct fake_fs *disk = prepared();
    struct hl_diag diag = {0};
    enum hl_status status = HL_E_MEMORY;
    for (long k = 1; status; k++) {
        struct hl_mem_probe probe;
        hl_mem_probe_init(&probe, k);
        status = hl_checkpoint_save(&probe.mem, fake_fs_table(disk), OUT, &fixtures[2].checkpoint,
                                    0, NULL, &diag);
        assert_int_equal(probe.n_live, 0);
        if (status) assert_int_equal(status, HL_E_MEMORY);
        else if (probe.n_taken >= k)
            status = HL_E_MEMORY; /* it failed where only a warning was due */
        assert_int_equal(fake_fs_open_handles(disk), 0);
    }
    status = HL_E_MEMORY;
    for (long k = 1; status; k++) {
        struct hl_mem_probe probe;
        hl_mem_probe_init(&probe, k);
        status = read_everything(&probe.mem, fake_fs_table(disk), &diag);
        assert_int_equal(probe.n_live, 0);
        assert_int_equal(fake_fs_open_handles(disk), 0);
        if (status) assert_int_equal(status, HL_E_MEMORY);
    }
    fake_fs_free(disk);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_crash_everywhere),
        cmocka_unit_test(test_crash_in_the_first),
        cmocka_unit_test(test_crash_in_the_same_step),
        cmocka_unit_test(test_errors_everywhere),
        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_short_transfers),
        cmocka_unit_test(test_damage_is_noticed),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, make_fixtures, drop_fixtures);
}
