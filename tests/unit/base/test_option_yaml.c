/* Options from YAML, and back: what is printed reads back to the same values. */
#include "option_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void test_read(void **state) {
    (void)state;
    struct fixture f;
    assert_int_equal(fixture_open(&f, 0), HL_OK);
    assert_int_equal(fixture_yaml(&f, "# a run\n"
                                      "max-steps: 20\n"
                                      "lr: 1.0e-3\r\n"
                                      "bf16: yes\n"
                                      "strict: \"off\"\n"
                                      "lr_scheduler_type: cosine\n"
                                      "data:\n  - a.txt\n  - 'b c.txt'\n"
                                      "output_dir: ~\n"
                                      "acco:\n  rounds: 5\n  fast: true\n"),
                     HL_OK);
    assert_int_equal(f.v.max_steps, 20);
    assert_true(f.v.learning_rate == 1e-3 && f.v.bf16 && !f.v.strict && f.p.fast);
    assert_int_equal(f.v.curve, CURVE_COSINE);
    assert_int_equal(f.v.data.n, 2);
    assert_string_equal(f.v.data.items[1], "b c.txt");
    assert_string_equal(f.v.output_dir, "out");
    assert_false(hl_config_given(f.config, "output_dir"));
    assert_int_equal(f.p.micro_batches, 5);
    /* A second file overrides the first; dotted keys, one word as a list, an empty list. */
    assert_int_equal(fixture_yaml(&f, "acco.rounds: 6\ndata: one.txt\n"), HL_OK);
    assert_int_equal(f.p.micro_batches, 6);
    assert_int_equal(f.v.data.n, 1);
    assert_int_equal(fixture_yaml(&f, "{data: [], max_steps: 7}"), HL_OK);
    assert_int_equal(f.v.data.n, 0);
    fixture_close(&f);
}

static void test_empty_documents(void **state) {
    (void)state;
    static const char *const texts[] = {
        "", "\n", "# nothing\n", "---\n", "{}\n", "\xef\xbb\xbf", "\xef\xbb\xbfmax_steps: 3\n"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct fixture f;
        assert_int_equal(fixture_open(&f, 0), HL_OK);
        assert_int_equal(fixture_yaml(&f, texts[i]), HL_OK);
        fixture_close(&f);
    }
}

static void test_refused(void **state) {
    (void)state;
    yaml_refused("\n\n\n\n\n\nlearnin_rate: 1\n",
                 "run.yaml:7: unknown option 'learnin_rate'; did you mean 'learning_rate'?");
    yaml_refused("max_steps: 1\nacco:\n  rnds: 1\n",
                 "run.yaml:3: unknown option 'acco.rnds'; did you mean 'acco.rounds'?");
    yaml_refused("lr: 1\nany: 2\nlr: 3\n",
                 "run.yaml:3: 'lr' is another name for 'learning_rate': line 1 has it already");
    yaml_refused("max_steps: 1\nmax-steps: 3\n",
                 "run.yaml:2: 'max-steps' is given twice: line 1 has it already");
    yaml_refused("learning_rate: null\n\nlr: 3\n",
                 "run.yaml:3: 'lr' is another name for 'learning_rate': line 1 has it already");
    yaml_refused("acco: {rounds: 1}\nacco.rounds: 2\n",
                 "run.yaml:2: 'acco.rounds' is another name for 'acco.micro_batches_per_round': "
                 "line 1 has it already");
    yaml_refused("max_steps: [1, 2]\n", "run.yaml:1: max_steps: takes one value, and 2 are given");
    yaml_refused("max_steps: []\n", "run.yaml:1: max_steps: takes one value, and 0 are given");
    yaml_refused("max_steps: {a: 1}\n", "run.yaml:1: max_steps: takes a value, not a mapping; "
                                        "options inside it stand on their own lines");
    yaml_refused("modle: {a: 1}\n", "run.yaml:1: unknown option 'modle'; --help lists them all");
    yaml_refused("max_stepz: {}\n",
                 "run.yaml:1: unknown option 'max_stepz'; did you mean 'max_steps'?");
    yaml_refused("data: [[a]]\n", "run.yaml:1: data: a list holds plain values only");
    yaml_refused("data: [*a]\n", "run.yaml:1: data: a list holds plain values only");
    yaml_refused("max_steps:\n",
                 "run.yaml:1: max_steps: has no value; remove the line to use the default");
    yaml_refused("max_stepz:\n",
                 "run.yaml:1: unknown option 'max_stepz'; did you mean 'max_steps'?");
    yaml_refused("max_steps: 1.5\n", "run.yaml:1: max_steps: 1.5 is not a whole number");
    yaml_refused("max_steps: 0\n",
                 "run.yaml:1: max_steps: 0 is out of range; allowed is at least 1 steps");
    yaml_refused("max_steps: &a 3\n",
                 "run.yaml:1: anchors (&a) are not understood; repeat the value");
    yaml_refused("max_steps: *a\n",
                 "run.yaml:1: aliases (*a) are not understood; repeat the value");
    yaml_refused(
        "max_steps: !!int 3\n",
        "run.yaml:1: tags (tag:yaml.org,2002:int) are not understood; write the plain value");
    yaml_refused("<<: {lr: 1}\n", "run.yaml:1: unknown option '<<'; --help lists them all");
    yaml_refused("lr: 1\n---\nlr: 2\n",
                 "run.yaml:2: a second document begins here; one run, one document");
    yaml_refused("just words\n", "run.yaml:1: lines of the form 'key: value' were expected");
    yaml_refused("- lr\n", "run.yaml:1: lines of the form 'key: value' were expected");
    yaml_refused("? [a, b]\n: 1\n", "run.yaml:1: a key must be a plain word");
    yaml_refused("acco: {acco: {acco: {}}}\n",
                 "run.yaml:1: unknown option 'acco.acco'; --help lists them all");
    yaml_refused("output_dir: \"a\\0b\"\n", "run.yaml:1: output_dir: the value holds a NUL byte");
    yaml_refused("lr: 1\n\tany: 2\n", "run.yaml:2:1: not YAML: while scanning a plain scalar, "
                                      "found a tab character that violates indentation");
    yaml_refused("lr: \xff\n", "run.yaml: not YAML: invalid leading UTF-8 octet at byte 5");
}

static void test_long_key(void **state) {
    (void)state;
    char text[1000];
    memset(text, 'k', sizeof text);
    memcpy(text + 900, ": 1\n", 5);
    struct fixture f;
    assert_int_equal(fixture_open(&f, 0), HL_OK);
    assert_int_equal(fixture_yaml(&f, text), HL_E_USER);
    assert_non_null(strstr(f.diag.text, "no option has so long a name"));
    fixture_close(&f);
}

static void test_deep_nesting(void **state) {
    (void)state;
    enum { DEPTH = 20000 };
    char *text = malloc(DEPTH + 1);
    memset(text, '[', DEPTH);
    text[DEPTH] = 0;
    struct fixture f;
    assert_int_equal(fixture_open(&f, 0), HL_OK);
    assert_int_equal(fixture_yaml(&f, text), HL_E_USER);
    memset(text, '{', DEPTH);
    assert_int_equal(fixture_yaml(&f, text), HL_E_USER);
    fixture_close(&f);
    free(text);
}

static void assert_same(const struct fixture *a, const struct fixture *b) {
    assert_int_equal(a->v.max_steps, b->v.max_steps);
    assert_int_equal(a->v.save_bytes, b->v.save_bytes);
    assert_true(a->v.learning_rate == b->v.learning_rate && a->v.any == b->v.any);
    assert_true(a->v.bf16 == b->v.bf16 && a->v.strict == b->v.strict && a->p.fast == b->p.fast);
    assert_int_equal(a->v.curve, b->v.curve);
    assert_int_equal(a->p.micro_batches, b->p.micro_batches);
    assert_string_equal(a->v.output_dir, b->v.output_dir);
    assert_int_equal(a->v.data.n, b->v.data.n);
    for (size_t i = 0; i < a->v.data.n; i++)
        assert_string_equal(a->v.data.items[i], b->v.data.items[i]);
}

static void test_round_trip(void **state) {
    (void)state;
    static const char *const texts[] = {"null",
                                        "~",
                                        "",
                                        "a: b # c",
                                        "tab\t\"quote\" \\ back\n\r line",
                                        "\x01\x7f",
                                        "gr\xc3\xbc\xc3\x9f",
                                        "\xc2\x85\xe2\x80\xa8\xef\xbb\xbf\xef\xbf\xbe",
                                        "\xf0\x9f\x98\x80",
                                        " edge "};
    enum { N = sizeof texts / sizeof *texts };
    for (int teach = 0; teach < 2; teach++)
        for (size_t i = 0; i < N; i++) {
            struct fixture f, g;
            assert_int_equal(fixture_open(&f, 0), HL_OK);
            assert_int_equal(fixture_open(&g, 0), HL_OK);
            const char *lr = "0.1", *any = "-1e-300", *yes = "yes", *curve = "cosine",
                       *steps = "999999999999999", *out = texts[i];
            assert_int_equal(hl_config_set(f.config, "data", texts, N, "code", 0, &f.diag), HL_OK);
            assert_int_equal(hl_config_set(f.config, "output_dir", &out, 1, "code", 0, &f.diag),
                             HL_OK);
            if (i % 2) {
                assert_int_equal(hl_config_set(f.config, "lr", &lr, 1, "code", 0, &f.diag), HL_OK);
                assert_int_equal(hl_config_set(f.config, "any", &any, 1, "code", 0, &f.diag),
                                 HL_OK);
                assert_int_equal(hl_config_set(f.config, "acco.fast", &yes, 1, "code", 0, &f.diag),
                                 HL_OK);
                assert_int_equal(
                    hl_config_set(f.config, "lr_scheduler_type", &curve, 1, "code", 0, &f.diag),
                    HL_OK);
            }
            assert_int_equal(hl_config_set(f.config, "max_steps", &steps, 1, "code", 0, &f.diag),
                             HL_OK);
            struct hl_buf text = {.mem = &f.probe.mem};
            hl_config_print_yaml(f.config, teach, &text);
            assert_false(text.failed);
            if (hl_config_parse_yaml(g.config, text.data, text.n, "saved.yaml", &g.diag))
                fail_msg("%s\n%s", g.diag.text, text.data);
            assert_same(&f, &g);
            hl_buf_free(&text);
            fixture_close(&f);
            fixture_close(&g);
        }
}

/* The defaults read back too, though -1 steps is outside the range that a person may give. */
static void test_defaults_round_trip(void **state) {
    (void)state;
    struct fixture f, g;
    assert_int_equal(fixture_open(&f, 0), HL_OK);
    assert_int_equal(fixture_open(&g, 0), HL_OK);
    struct hl_buf text = {.mem = &f.probe.mem};
    hl_config_print_yaml(f.config, false, &text);
    assert_int_equal(hl_config_parse_yaml(g.config, text.data, text.n, "saved.yaml", &g.diag),
                     HL_OK);
    assert_same(&f, &g);
    hl_buf_free(&text);
    fixture_close(&f);
    fixture_close(&g);
}

static void test_files(void **state) {
    (void)state;
    struct fixture f;
    assert_int_equal(fixture_open(&f, 0), HL_OK);
    assert_int_equal(hl_config_read_yaml(f.config, "no/such/run.yaml", &f.diag), HL_E_USER);
    assert_string_equal(f.diag.text,
                        "no/such/run.yaml: cannot be opened: No such file or directory");
    assert_int_equal(hl_config_read_yaml(f.config, ".", &f.diag), HL_E_IO);
    assert_string_equal(f.diag.text, ".: cannot be read: Is a directory");
    char path[] = "/tmp/halley-option-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "max_steps: 11\n", 14), 14);
    assert_int_equal(hl_config_read_yaml(f.config, path, &f.diag), HL_OK);
    assert_int_equal(f.v.max_steps, 11);
    assert_int_equal(ftruncate(fd, 1 << 25), 0);
    assert_int_equal(hl_config_read_yaml(f.config, path, &f.diag), HL_E_USER);
    assert_non_null(strstr(f.diag.text, "is too large for a configuration"));
    close(fd);
    unlink(path);
    fixture_close(&f);
}

static void test_each_allocation_fails(void **state) {
    (void)state;
    enum hl_status status = HL_E_MEMORY;
    for (long k = 1; status == HL_E_MEMORY; k++) {
        struct fixture f;
        status = fixture_open(&f, k);
        if (!status) {
            status = fixture_yaml(
                &f, "data: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]\noutput_dir: x\nacco: {rounds: 3}\n");
            hl_config_free(f.config);
        }
        assert_true(status == HL_OK || status == HL_E_MEMORY);
        assert_int_equal(f.probe.n_live, 0);
        assert_true(k < 100);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read),
        cmocka_unit_test(test_empty_documents),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_long_key),
        cmocka_unit_test(test_deep_nesting),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_defaults_round_trip),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_each_allocation_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
