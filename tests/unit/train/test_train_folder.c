/* The folder of a run: when it may be used, what making and overwriting change, and what they leave
 * alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "train/folder.h"

static char root[64];

static const char *at(const char *name) {
    static char path[2][256];
    static int turn;
    turn = !turn;
    (void)snprintf(path[turn], sizeof path[turn], "%s/%s", root, name);
    return path[turn];
}

static void shell(const char *commands) {
    char text[600];
    (void)snprintf(text, sizeof text, "cd '%s' && { %s; }", root, commands);
    assert_int_equal(system(text), 0);
}

static bool there(const char *name) {
    struct stat info;
    return lstat(at(name), &info) == 0;
}

static int begin(void **state) {
    (void)state;
    (void)snprintf(root, sizeof root, "/tmp/halley-test-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int end(void **state) {
    (void)state;
    char text[100];
    (void)snprintf(text, sizeof text, "chmod -R u+w '%s'; rm -rf '%s'", root, root);
    return system(text);
}

static enum hl_status prepare(const char *path, bool going_on, bool overwrite,
                              struct hl_diag *diag) {
    diag->text[0] = 0;
    return hl_run_folder_prepare(hl_fs_os(), path, going_on, overwrite, diag);
}

static void test_makes_what_is_missing(void **state) {
    (void)state;
    struct hl_diag diag;
    assert_int_equal(prepare(at("a/b//c/"), false, false, &diag), HL_OK);
    assert_true(hl_is_folder(hl_fs_os(), at("a/b/c")));
    assert_int_equal(prepare(at("a/b/c"), false, false, &diag),
                     HL_OK); /* empty: nothing to refuse */
    assert_int_equal(prepare(at("a"), false, true, &diag), HL_OK);
    assert_true(there("a/b/c"));
}

static void test_refusals(void **state) {
    (void)state;
    struct hl_diag diag;
    shell("touch file && mkdir run && touch run/metrics.jsonl");
    assert_int_equal(prepare("", false, false, &diag), HL_E_USER);
    assert_non_null(strstr(diag.text, "name a folder"));
    assert_int_equal(prepare(at("file"), false, true, &diag), HL_E_USER);
    assert_non_null(strstr(diag.text, "is a file"));
    assert_int_equal(prepare(at("file/below"), false, true, &diag), HL_E_IO);
    assert_non_null(strstr(diag.text, "choose another --output_dir"));
    char way_too_long[HL_PATH_CAPACITY + 10];
    memset(way_too_long, 'x', sizeof way_too_long - 1);
    way_too_long[sizeof way_too_long - 1] = 0;
    assert_int_equal(prepare(way_too_long, false, false, &diag), HL_E_USER);
    static const char *const marks[] = {"metrics.jsonl", "latest", "run.yaml"};
    for (int i = 0; i < 3; i++) {
        char commands[64];
        (void)snprintf(commands, sizeof commands, "rm -rf run; mkdir run; touch run/%s", marks[i]);
        shell(commands);
        assert_int_equal(prepare(at("run"), false, false, &diag), HL_E_USER);
        assert_non_null(strstr(diag.text, "--resume"));
        assert_non_null(strstr(diag.text, "--overwrite_output_dir"));
        assert_int_equal(prepare(at("run"), true, false, &diag), HL_OK);
        assert_true(there("run")); /* and going on removed nothing */
        char mark[64];
        (void)snprintf(mark, sizeof mark, "run/%s", marks[i]);
        assert_true(there(mark));
    }
}

static void test_overwrite_takes_only_its_own(void **state) {
    (void)state;
    struct hl_diag diag;
    shell("mkdir -p run/checkpoint-10 run/checkpoint-0 run/.checkpoint-20.partial run/runs "
          "keep/inside run/checkpoints run/notes");
    shell("cd run; touch metrics.jsonl samples.jsonl run.yaml run.json latest report.html "
          "runs/events.1 checkpoint-10/model.safetensors");
    shell("cd run; touch .checkpoint-20.partial/x checkpoint-notes.txt thesis.tex notes/a "
          "../keep/inside/precious; ln -s ../keep checkpoint-30");
    shell("cd run; for i in $(seq 300); do mkdir checkpoint-1000$i; done"); /* more than one look at
                                                                               the folder holds */
    assert_int_equal(prepare(at("run"), false, true, &diag), HL_OK);
    static const char *const gone[] = {"metrics.jsonl", "samples.jsonl",
                                       "run.yaml",      "run.json",
                                       "latest",        "report.html",
                                       "runs",          "checkpoint-10",
                                       "checkpoint-0",  ".checkpoint-20.partial",
                                       "checkpoint-30", "checkpoint-1000300"};
    for (size_t i = 0; i < sizeof gone / sizeof *gone; i++) {
        char name[64];
        (void)snprintf(name, sizeof name, "run/%s", gone[i]);
        if (there(name)) fail_msg("%s is still there", name);
    }
    assert_true(there("run/checkpoint-notes.txt") && there("run/thesis.tex") &&
                there("run/notes/a") && there("run/checkpoints"));
    assert_true(there("keep/inside/precious")); /* the link went, what it names stayed */
}

/* A folder in a checkpoint is none of ours: the user is told which. */
static void test_overwrite_stops_at_strange_folders(void **state) {
    (void)state;
    struct hl_diag diag;
    shell("mkdir -p run/checkpoint-1/strange && touch run/run.yaml run/checkpoint-1/strange/a");
    assert_int_equal(prepare(at("run"), false, true, &diag), HL_E_IO);
    assert_non_null(strstr(diag.text, "checkpoint-1"));
    assert_true(there("run/checkpoint-1/strange/a"));
}

static void test_inside(void **state) {
    (void)state;
    assert_true(hl_is_inside("run/checkpoint-1", "run") &&
                hl_is_inside("run/checkpoint-1", "run/") && hl_is_inside("/a/b/c", "/a"));
    assert_false(hl_is_inside("run2/checkpoint-1", "run") || hl_is_inside("", "run") ||
                 hl_is_inside("run", "run") || hl_is_inside("/a", ""));
}

static void test_write(void **state) {
    (void)state;
    struct hl_diag diag;
    assert_int_equal(hl_run_folder_write(hl_fs_os(), root, "run.json", "one", &diag), HL_OK);
    assert_int_equal(hl_run_folder_write(hl_fs_os(), root, "run.json", "three", &diag), HL_OK);
    shell("test \"$(cat run.json)\" = three && test \"$(ls -A)\" = run.json");
    assert_int_equal(hl_run_folder_write(hl_fs_os(), at("nowhere"), "run.json", "x", &diag),
                     HL_E_IO);
    assert_non_null(strstr(diag.text, "nowhere"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_makes_what_is_missing, begin, end),
        cmocka_unit_test_setup_teardown(test_refusals, begin, end),
        cmocka_unit_test_setup_teardown(test_overwrite_takes_only_its_own, begin, end),
        cmocka_unit_test_setup_teardown(test_overwrite_stops_at_strange_folders, begin, end),
        cmocka_unit_test(test_inside),
        cmocka_unit_test_setup_teardown(test_write, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
