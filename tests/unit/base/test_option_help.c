/* What --help and the docs print from the table. */
#include "option_fixture.h"

#include <stdio.h>

static void test_help(void **state) {
    (void)state;
    struct fixture f;
    assert_int_equal(fixture_open(&f, 0), HL_OK);
    struct hl_buf text = {.mem = &f.probe.mem};
    hl_config_print_help(f.sets, 2, 80, &text);
    static const char *const want[] = {
        "training:\n",
        "\ndata:\n",
        "\noptions:\n",
        "\nacco:\n",
        "  --max_steps N               stop after this many updates (at least 1 steps;\n"
        "                              default -1; also --train_iters --iters)\n",
        "  --lr_scheduler_type WORD    how the rate changes (one of: constant linear\n"
        "                              cosine; default linear)\n",
        "  --bf16                      compute in bf16 (default false)\n",
        "  --acco.micro_batches_per_round N\n"
        "                              micro-batches in one round (from 1 to 64; default\n"
        "                              2; also --acco.rounds)\n",
    };
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        if (!strstr(text.data, want[i])) fail_msg("missing:\n%s\nin:\n%s", want[i], text.data);
    /* `output_dir` stands with its heading although `data` rows lie between. */
    assert_true(strstr(text.data, "--output_dir") < strstr(text.data, "\ndata:\n"));
    hl_buf_free(&text);
    fixture_close(&f);
}

static void test_wraps(void **state) {
    (void)state;
    struct fixture f;
    assert_int_equal(fixture_open(&f, 0), HL_OK);
    for (int columns = 1; columns < 200; columns += 13) {
        struct hl_buf text = {.mem = &f.probe.mem};
        hl_config_print_help(f.sets, 2, columns, &text);
        size_t widest = 0;
        for (char *line = text.data; *line; line += strcspn(line, "\n") + 1)
            if (strcspn(line, "\n") > widest) widest = strcspn(line, "\n");
        assert_true(widest <= (size_t)(columns > 120 ? 120 : columns < 40 ? 40 : columns));
        hl_buf_free(&text);
    }
    fixture_close(&f);
}

static void test_markdown(void **state) {
    (void)state;
    struct fixture f;
    assert_int_equal(fixture_open(&f, 0), HL_OK);
    struct hl_buf text = {.mem = &f.probe.mem};
    hl_config_print_markdown(f.sets, 2, &text);
    assert_non_null(strstr(text.data, "## training\n\n| option |"));
    assert_non_null(strstr(text.data, "| `max_steps` | -1 | at least 1 steps | train_iters iters | "
                                      "stop after this many updates |\n"));
    assert_non_null(strstr(text.data, "| `acco.fast` | false | true or false |  | be fast |\n"));
    hl_buf_free(&text);
    static const struct hl_option bar = {.name = "bar", .kind = HL_OPT_STRING, .help = "a|b"};
    const struct hl_option_set set = {NULL, &bar, 1, NULL};
    hl_config_print_markdown(&set, 1, &text);
    assert_non_null(strstr(text.data, "a\\|b"));
    hl_buf_free(&text);
    fixture_close(&f);
}

static void test_teach(void **state) {
    (void)state;
    struct fixture f;
    assert_int_equal(fixture_open(&f, 0), HL_OK);
    struct hl_buf text = {.mem = &f.probe.mem};
    hl_config_print_yaml(f.config, true, &text);
    assert_non_null(strstr(text.data, "\n# ---- training ----\n# stop after this many updates (at "
                                      "least 1 steps)\nmax_steps: -1\n"));
    assert_non_null(strstr(
        text.data,
        "acco:\n  # micro-batches in one round (from 1 to 64)\n  micro_batches_per_round: 2\n"));
    hl_buf_free(&text);
    fixture_close(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_help), cmocka_unit_test(test_wraps),
                                       cmocka_unit_test(test_markdown),
                                       cmocka_unit_test(test_teach)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
