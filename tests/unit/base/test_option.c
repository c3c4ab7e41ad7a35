/* Options from code and from the command line. */
#include "option_fixture.h"

#include <stdio.h>

static const char *words[32];
static size_t n_words;

static enum hl_status flags(struct fixture *f, int n, const char *const *args) {
    return hl_config_read_flags(f->config, n, (char *const *)args, words, &n_words, &f->diag);
}
#define FLAGS(f, ...)                                                                              \
    flags(f, (int)(sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *)),                        \
          (const char *const[]){__VA_ARGS__})

#define REFUSED(sentence, ...)                                                                     \
    do {                                                                                           \
        struct fixture f_;                                                                         \
        assert_int_equal(fixture_open(&f_, 0), HL_OK);                                             \
        assert_int_equal(FLAGS(&f_, __VA_ARGS__), HL_E_USER);                                      \
        assert_string_equal(f_.diag.text, sentence);                                               \
        fixture_close(&f_);                                                                        \
    } while (0)

static void test_defaults(void **state) {
    (void)state;
    struct fixture f;
    assert_int_equal(fixture_open(&f, 0), HL_OK);
    assert_int_equal(f.v.max_steps, -1);
    assert_true(f.v.learning_rate == 5e-5 && f.v.any == 0);
    assert_int_equal(f.v.curve, CURVE_LINEAR);
    assert_true(!f.v.bf16 && f.v.strict && !f.p.fast);
    assert_string_equal(f.v.output_dir, "out");
    assert_int_equal(f.v.data.n, 0);
    assert_int_equal(f.p.micro_batches, 2);
    assert_false(hl_config_given(f.config, "max_steps"));
    assert_false(hl_config_given(f.config, "no_such_thing"));
    fixture_close(&f);
    assert_null(f.v.output_dir);
}

static void test_flags(void **state) {
    (void)state;
    struct fixture f;
    assert_int_equal(fixture_open(&f, 0), HL_OK);
    assert_int_equal(FLAGS(&f, "run.yaml", "--max-steps", "20", "--lr=1e-3", "--bf16", "word",
                           "--no-strict", "--data", "a", "b c", "--output_dir", "-odd", "--any",
                           "-2.5", "--data", "d", "--acco.micro-batches-per-round", "3",
                           "--lr_scheduler_type=cosine", "--acco.fast", "yes", "-7", "-", "--",
                           "--lr"),
                     HL_OK);
    assert_int_equal(f.v.max_steps, 20);
    assert_true(f.v.learning_rate == 1e-3 && f.v.any == -2.5);
    assert_true(f.v.bf16 && !f.v.strict && f.p.fast);
    assert_int_equal(f.v.data.n, 3);
    assert_string_equal(f.v.data.items[1], "b c");
    assert_string_equal(f.v.data.items[2], "d");
    assert_string_equal(f.v.output_dir, "-odd");
    assert_int_equal(f.p.micro_batches, 3);
    assert_int_equal(f.v.curve, CURVE_COSINE);
    assert_int_equal(n_words, 5);
    assert_string_equal(words[0], "run.yaml");
    assert_string_equal(words[1], "word");
    assert_string_equal(words[2], "-7");
    assert_string_equal(words[3], "-");
    assert_string_equal(words[4], "--lr");
    assert_true(hl_config_given(f.config, "learning-rate") && hl_config_given(f.config, "lr"));
    assert_true(hl_config_given(f.config, "acco.fast") && !hl_config_given(f.config, "fast"));
    /* The last of two wins; a second command line starts a list anew. */
    assert_int_equal(FLAGS(&f, "--lr", "1", "--learning_rate", "2", "--bf16=false", "--data=x"),
                     HL_OK);
    assert_true(f.v.learning_rate == 2 && !f.v.bf16);
    assert_int_equal(f.v.data.n, 1);
    assert_int_equal(flags(&f, 0, NULL), HL_OK);
    assert_int_equal(n_words, 0);
    fixture_close(&f);
}

static void test_refused_flags(void **state) {
    (void)state;
    REFUSED("--learnin-rate: unknown option; did you mean '--learning-rate'?", "--learnin-rate",
            "1");
    REFUSED("--learnin_rate: unknown option; did you mean '--learning_rate'?", "--learnin_rate=1");
    REFUSED("--rl: unknown option; did you mean '--lr'?", "--rl=1");
    REFUSED("--acco.mcro-batches-per-round: unknown option; did you mean "
            "'--acco.micro-batches-per-round'?",
            "--acco.mcro-batches-per-round", "1");
    REFUSED("--model.learning_rate: unknown option; did you mean '--learning_rate'?",
            "--model.learning_rate", "1");
    REFUSED("--zzzzzzzz: unknown option; --help lists them all", "--zzzzzzzz");
    REFUSED("--no-zzzzzzzz: unknown option; --help lists them all", "--no-zzzzzzzz");
    REFUSED("-b: unknown option; options begin with two dashes", "-b", "4");
    REFUSED("--max-steps: needs a value, at least 1 steps", "--max-steps");
    REFUSED("--learning-rate: needs a value, from 0 to 10", "--learning-rate", "--bf16");
    REFUSED("--output-dir: needs a value", "--output-dir", "--bf16");
    REFUSED("--data: needs a value", "--data");
    REFUSED("--lr-scheduler-type: needs a value, one of: constant linear cosine",
            "--lr-scheduler-type");
    REFUSED("--no-max-steps: only a switch can be turned off so, and without a value",
            "--no-max-steps");
    REFUSED("--no-bf16: only a switch can be turned off so, and without a value", "--no-bf16=true");
    REFUSED("--bf16: 'maybe' is neither true nor false", "--bf16=maybe");
}

static void test_refused_values(void **state) {
    (void)state;
    REFUSED("--max-steps: 'abc' is not a whole number", "--max-steps", "abc");
    REFUSED("--max-steps: '' is not a whole number", "--max-steps=");
    REFUSED("--max-steps: '1_000' is not a whole number; write it without '_' and ','",
            "--max-steps", "1_000");
    REFUSED("--max-steps: 1e3 is not written as a whole number; write 1000", "--max-steps", "1e3");
    REFUSED("--max-steps: 2.5 is not a whole number", "--max-steps", "2.5");
    REFUSED("--max-steps: 1e300 is too large", "--max-steps", "1e300");
    REFUSED("--max-steps: 0 is out of range; allowed is at least 1 steps", "--max-steps", "0");
    REFUSED("--max-steps: 1000000000000001 is out of range; allowed is at most 1e+15 steps",
            "--max-steps", "1000000000000001");
    REFUSED("--max-steps: 99999999999999999999 is too large", "--max-steps",
            "99999999999999999999");
    REFUSED("--save-bytes: '5GiB' is not a whole number; write a plain number, without suffix",
            "--save-bytes", "5GiB");
    REFUSED("--lr: 11 is out of range; allowed is from 0 to 10", "--lr", "11");
    REFUSED("--lr: 'nan' is not a number", "--lr", "nan");
    REFUSED("--lr: '1_0' is not a number; write it without '_' and ','", "--lr", "1_0");
    REFUSED("--lr: '0x10' is not a number; write a plain number, without suffix", "--lr", "0x10");
    REFUSED("--acco.rounds: 65 is out of range; allowed is from 1 to 64", "--acco.rounds", "65");
    REFUSED("--lr-scheduler-type: 'cosin' is not one of: constant linear cosine; did you mean "
            "'cosine'?",
            "--lr-scheduler-type", "cosin");
    REFUSED("--lr-scheduler-type: 'q' is not one of: constant linear cosine", "--lr-scheduler-type",
            "q");
    REFUSED(
        "--output-dir: the text is not valid UTF-8 at byte 2; it could not be saved with the run",
        "--output-dir", "a\xff");
    REFUSED("--data: the text is not valid UTF-8 at byte 1; it could not be saved with the run",
            "--data", "ok", "\xed\xa0\x80");
    REFUSED("--data: the text is not valid UTF-8 at byte 1; it could not be saved with the run",
            "--data", "\xc0\x80");
    REFUSED("--data: the text is not valid UTF-8 at byte 1; it could not be saved with the run",
            "--data", "\xf5\x80\x80\x80");
    REFUSED("--data: the text is not valid UTF-8 at byte 1; it could not be saved with the run",
            "--data", "\xe2\x82");
}

/* A refused value leaves the old one in place. */
static void test_refusal_changes_nothing(void **state) {
    (void)state;
    struct fixture f;
    assert_int_equal(fixture_open(&f, 0), HL_OK);
    assert_int_equal(FLAGS(&f, "--data", "\xff"), HL_E_USER);
    assert_int_equal(FLAGS(&f, "--lr", "11"), HL_E_USER);
    assert_true(f.v.learning_rate == 5e-5);
    assert_int_equal(f.v.data.n, 0);
    assert_false(hl_config_given(f.config, "lr"));
    fixture_close(&f);
}

static void test_set(void **state) {
    (void)state;
    struct fixture f;
    assert_int_equal(fixture_open(&f, 0), HL_OK);
    const char *two[] = {"a", "b"};
    assert_int_equal(hl_config_set(f.config, "data", two, 2, "code", 0, &f.diag), HL_OK);
    assert_int_equal(hl_config_set(f.config, "data", two, 1, "code", 0, &f.diag), HL_OK);
    assert_int_equal(f.v.data.n, 1);
    assert_int_equal(hl_config_set(f.config, "lr", two, 2, "code", 0, &f.diag), HL_E_USER);
    assert_string_equal(f.diag.text, "code: learning_rate: takes one value, and 2 are given");
    assert_int_equal(hl_config_set(f.config, "lr", two, 1, "file", 7, NULL), HL_E_USER);
    assert_int_equal(hl_config_set(f.config, "learnin_rate", two, 1, "file", 7, &f.diag),
                     HL_E_USER);
    assert_string_equal(f.diag.text,
                        "file:7: unknown option 'learnin_rate'; did you mean 'learning_rate'?");
    fixture_close(&f);
}

/* Pain point 88: every known name misspelt by one letter is named back. */
static void test_every_name_misspelt(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof fixture_rows / sizeof *fixture_rows; i++) {
        char key[64], want[64];
        size_t n = strlen(fixture_rows[i].name);
        memcpy(key, fixture_rows[i].name, n - 1); /* the last letter is lost */
        key[n - 1] = 0;
        struct fixture f;
        const char *value = "1";
        assert_int_equal(fixture_open(&f, 0), HL_OK);
        assert_int_equal(hl_config_set(f.config, key, &value, 1, "run.yaml", 3, &f.diag),
                         HL_E_USER);
        (void)snprintf(want, sizeof want, "did you mean '%s'?", fixture_rows[i].name);
        if (n > 3) assert_non_null(strstr(f.diag.text, want));
        fixture_close(&f);
    }
}

static void test_nearest(void **state) {
    (void)state;
    const char *const names[] = {"adamw", "sgd", "lion", "muon"};
    assert_string_equal(hl_nearest_word("adam", names, 4), "adamw");
    assert_string_equal(hl_nearest_word("SGD", names, 4), "sgd");
    assert_string_equal(hl_nearest_word("moun", names, 4), "muon");
    assert_null(hl_nearest_word("completely", names, 4));
    assert_null(hl_nearest_word("", names, 4));
    assert_null(hl_nearest_word("adamw", names, 0));
    char longest[400];
    memset(longest, 'a', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    assert_null(hl_nearest_word(longest, names, 4));
}

static void test_long_flag(void **state) {
    (void)state;
    struct fixture f;
    char longest[600] = "--";
    memset(longest + 2, 'x', sizeof longest - 3);
    const char *args[] = {longest};
    assert_int_equal(fixture_open(&f, 0), HL_OK);
    assert_int_equal(flags(&f, 1, args), HL_E_USER);
    assert_true(strlen(f.diag.text) < 256);
    fixture_close(&f);
}

static void test_each_allocation_fails(void **state) {
    (void)state;
    enum hl_status status = HL_E_MEMORY;
    for (long k = 1; status == HL_E_MEMORY; k++) {
        struct fixture f;
        status = fixture_open(&f, k);
        if (!status) {
            status = FLAGS(&f, "--data", "a", "b", "--data", "c", "--output_dir", "o");
            hl_config_free(f.config);
        }
        assert_true(status == HL_OK || status == HL_E_MEMORY);
        assert_int_equal(f.probe.n_live, 0);
        assert_true(k < 100);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_flags),
        cmocka_unit_test(test_refused_flags),
        cmocka_unit_test(test_refused_values),
        cmocka_unit_test(test_refusal_changes_nothing),
        cmocka_unit_test(test_set),
        cmocka_unit_test(test_every_name_misspelt),
        cmocka_unit_test(test_nearest),
        cmocka_unit_test(test_long_flag),
        cmocka_unit_test(test_each_allocation_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
