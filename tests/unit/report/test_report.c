/* Reading runs back and writing the page: hostile text, damaged lines, several runs, failing
 * allocations. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "halley/report.h"
#include "report/run.h"
#include "well_formed.h"

static char folder[64];
static char warnings[4096];

static int setup(void **state) {
    (void)state;
    strcpy(folder, "/tmp/halley-report-XXXXXX");
    warnings[0] = 0;
    return mkdtemp(folder) ? 0 : -1;
}

static int teardown(void **state) {
    (void)state;
    char command[128];
    (void)snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

static void keep_line(struct hl_log *log, enum hl_log_level level, const char *text) {
    (void)log;
    (void)level;
    strncat(warnings, text, sizeof warnings - strlen(warnings) - 2);
    strcat(warnings, "\n");
}

static struct hl_log warning_log = {keep_line, HL_LOG_DEBUG, NULL};

static const char *in_folder(const char *name) {
    static char path[4][512];
    static int turn;
    turn = (turn + 1) % 4;
    (void)snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
    return path[turn];
}

static void put_file(const char *name, const char *text) {
    FILE *file = fopen(in_folder(name), "wb");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static char *get_file(const char *path) {
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    size_t n = (size_t)ftell(file);
    rewind(file);
    char *text = calloc(n + 1, 1);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, n, file), n);
    fclose(file);
    return text;
}

static void put_usual_run(void) {
    char text[16384] = "";
    for (int i = 1; i <= 60; i++) {
        char line[256];
        (void)snprintf(line, sizeof line,
                       "{\"step\": %d, \"loss\": %d.5, \"grad_norm\": 1, \"learning_rate\": 0.001, "
                       "\"tokens_per_second\": 2000, "
                       "\"tokens\": %d, \"seconds\": %d, \"bytes_out\": 5}\n%s",
                       i, 70 - i, i * 1000, i * 2,
                       i == 30 ? "{\"step\": 30, \"eval_loss\": 2.5}\n" : "");
        strcat(text, line);
    }
    put_file("metrics.jsonl", text);
    put_file("samples.jsonl",
             "{\"step\": 30, \"tag\": \"s\", \"text\": \"</pre><script>alert(1)</script><img src=x "
             "onerror=y>&\\u0000\"}\n");
    put_file("run.yaml", "model: gpt2\nnested:\n  list: [a, b]\n  \"<i>\": '\"x\"'\nempty:\n");
    put_file("run.json",
             "{\"machine\": {\"processor\": \"A & B\", \"threads\": 2}, \"deep\": [[1, 2], 3]}");
}

static struct hl_run run_read(void) {
    struct hl_run run;
    struct hl_diag diag = {0};
    if (hl_run_read(&run, hl_mem_default(), folder, &warning_log, &diag)) fail_msg("%s", diag.text);
    return run;
}

static void test_damaged_lines(void **state) {
    (void)state;
    put_file("metrics.jsonl", "\xEF\xBB\xBF{\"step\": 1}\n\n{\"step\": 1, \"loss\": \"NaN\", "
                              "\"x\": \"word\", \"y\": [1], \"z\": null}\r\n"
                              "{\"step\": 2.5, \"loss\": 3}\n[1]\n{\"step\": -1, \"loss\": "
                              "3}\n{\"step\": 2, \"loss\": \"Infinity\"}\n"
                              "{\"step\": 3, \"loss\": 3}\n{\"step\": 2, \"loss\": 2}\n{\"step\": "
                              "9, \"loss\": 1e999}\n{\"step\": 3, \"lo");
    struct hl_run run = run_read();
    assert_int_equal(run.n_bad, 5);
    assert_int_equal(run.first_bad, 1);
    assert_int_equal(run.n_series, 1);
    const struct hl_series *loss = hl_run_series(&run, "loss");
    assert_non_null(loss);
    assert_int_equal(loss->n, 2);
    assert_true(isnan(loss->y[0]) && loss->x[1] == 2 && loss->y[1] == 2);
    assert_null(hl_run_series(&run, "x"));
    assert_non_null(strstr(warnings, "metrics.jsonl:1: "));
    assert_non_null(strstr(warnings, "5 of 10 lines"));
    hl_run_free(&run);
}

static void test_tables(void **state) {
    (void)state;
    put_usual_run();
    struct hl_run run = run_read();
    const char *config[][2] = {
        {"model", "gpt2"}, {"nested.list", "a, b"}, {"nested.<i>", "\"x\""}, {"empty", ""}};
    const char *info[][2] = {
        {"machine.processor", "A & B"}, {"machine.threads", "2"}, {"deep", "1, 2"}, {"deep", "3"}};
    assert_int_equal(run.config.n, 4);
    assert_int_equal(run.info.n, 4);
    for (int i = 0; i < 4; i++) {
        assert_string_equal(run.config.at[i].key, config[i][0]);
        assert_string_equal(run.config.at[i].value, config[i][1]);
        assert_string_equal(run.info.at[i].key, info[i][0]);
        assert_string_equal(run.info.at[i].value, info[i][1]);
    }
    hl_run_free(&run);
    put_file("run.yaml", "a: 1\nb: [2\n");
    char deep[4096] = "";
    for (int i = 0; i < 500; i++) strcat(deep, "[{a: ");
    put_file("run.json", deep);
    run = run_read();
    assert_int_equal(run.config.n, 1);
    assert_non_null(strstr(warnings, "run.yaml:"));
    assert_non_null(strstr(warnings, "run.json:"));
    hl_run_free(&run);
}

static void test_samples_spread(void **state) {
    (void)state;
    put_file("metrics.jsonl", "");
    char text[8192] = "nonsense is skipped\n";
    for (int i = 0; i <= 70; i++) {
        char line[64];
        (void)snprintf(line, sizeof line, "{\"step\": %d, \"text\": \"%d\"}\n", i, i);
        strcat(text, line);
    }
    put_file("samples.jsonl", strchr(text, '\n') + 1);
    struct hl_run run = run_read();
    assert_int_equal(run.n_samples, HL_RUN_SAMPLES);
    for (int i = 0; i < HL_RUN_SAMPLES; i++) assert_int_equal(run.samples[i].step, i * 10);
    hl_run_free(&run);
    put_file("samples.jsonl", text);
    run = run_read();
    assert_int_equal(run.n_samples, HL_RUN_SAMPLES - 1);
    hl_run_free(&run);
}

static void test_page(void **state) {
    (void)state;
    put_usual_run();
    const char *runs[] = {folder, folder};
    char html_path[512], svg_path[512];
    strcpy(html_path, in_folder("r.html"));
    strcpy(svg_path, in_folder("r.svg"));
    struct hl_diag diag = {0};
    for (int n = 1; n <= 2; n++) {
        assert_int_equal(
            hl_report_write(hl_mem_default(), runs, n, html_path, svg_path, NULL, &diag), HL_OK);
        char *html = get_file(html_path), *svg = get_file(svg_path);
        const char *flaw = first_flaw(html);
        if (flaw) fail_msg("not well formed at: %.60s", flaw);
        assert_null(first_flaw(svg));
        assert_null(strstr(html, "<script"));
        assert_null(strstr(html, "<img"));
        assert_null(strstr(html, "<i>\""));
        assert_null(strstr(html, "http:"));
        assert_null(strstr(html, "https:"));
        assert_non_null(strstr(html, "&lt;script&gt;alert(1)"));
        assert_non_null(strstr(html, "2.5000"));
        assert_non_null(strstr(html, "10.500"));
        assert_non_null(strstr(html, "60.0k"));
        assert_non_null(strstr(html, "bytes_out"));
        assert_non_null(strstr(html, "A &amp; B"));
        assert_non_null(strstr(svg, "prefers-color-scheme:dark"));
        free(html);
        free(svg);
    }
}

static void test_empty_and_odd(void **state) {
    (void)state;
    const char *runs[] = {folder};
    const char *const odd[] = {"",
                               "\n\n",
                               "{\"step\": 1}\n",
                               "{\"step\": 0, \"loss\": 3}\n",
                               "{\"step\": 5, \"loss\": \"NaN\", \"learning_rate\": 0}\n",
                               "\xff\xfe\n"};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        put_file("metrics.jsonl", odd[i]);
        struct hl_diag diag = {0};
        assert_int_equal(hl_report_write(hl_mem_default(), runs, 1, in_folder("o.html"),
                                         in_folder("o.svg"), &warning_log, &diag),
                         HL_OK);
        char *html = get_file(in_folder("o.html"));
        assert_null(first_flaw(html));
        if (i < 2) assert_non_null(strstr(html, "logged nothing yet"));
        if (i == 4) assert_non_null(strstr(html, "loss is not finite (NaN) at step 5."));
        free(html);
    }
}

static void test_refusals(void **state) {
    (void)state;
    struct hl_diag diag = {0};
    const char *missing[] = {in_folder("none")}, *here[] = {folder};
    assert_int_equal(
        hl_report_write(hl_mem_default(), missing, 1, in_folder("x"), NULL, NULL, &diag), HL_E_IO);
    assert_non_null(strstr(diag.text, "no run at"));
    assert_int_equal(hl_report_write(hl_mem_default(), here, 1, in_folder("x"), NULL, NULL, &diag),
                     HL_E_IO);
    assert_non_null(strstr(diag.text, "metrics.jsonl"));
    assert_non_null(strstr(diag.text, "output_dir"));
    put_file("metrics.jsonl", "");
    assert_int_equal(
        hl_report_write(hl_mem_default(), here, 1, in_folder("no/x"), NULL, NULL, &diag), HL_E_IO);
    assert_int_equal(hl_report_write(hl_mem_default(), here, 1, "/dev/full", NULL, NULL, &diag),
                     HL_E_IO);
    const char *file[] = {in_folder("metrics.jsonl")};
    assert_int_equal(hl_report_write(hl_mem_default(), file, 1, in_folder("x"), NULL, NULL, &diag),
                     HL_E_IO);
    assert_non_null(strstr(diag.text, "not a folder"));
    assert_int_equal(hl_report_write(hl_mem_default(), file, 0, in_folder("x"), NULL, NULL, &diag),
                     HL_E_USER);
}

static void test_many_keys(void **state) {
    (void)state;
    char text[8192] = "{\"step\": 1";
    for (int i = 0; i < 100; i++) {
        char part[32];
        (void)snprintf(part, sizeof part, ", \"key%d\": %d", i, i);
        strcat(text, part);
    }
    put_file("metrics.jsonl", strcat(text, "}\n"));
    struct hl_run run = run_read();
    assert_int_equal(run.n_series, HL_RUN_SERIES);
    assert_int_equal(run.n_series_dropped, 100 - HL_RUN_SERIES);
    hl_run_free(&run);
}

static void test_allocations(void **state) {
    (void)state;
    put_usual_run();
    const char *runs[] = {folder};
    char path[512];
    strcpy(path, in_folder("a.html"));
    long n_taken = 1;
    for (long k = 0; k <= n_taken; k += k < 300 ? 1 : 37) {
        struct hl_mem_probe probe;
        hl_mem_probe_init(&probe, k);
        struct hl_diag diag = {0};
        enum hl_status status =
            hl_report_write(&probe.mem, runs, 1, path, in_folder("a.svg"), NULL, &diag);
        if (!k) n_taken = probe.n_taken;
        assert_int_equal(status, k ? HL_E_MEMORY : HL_OK);
        assert_int_equal(diag.status, k ? HL_E_MEMORY : HL_OK);
        assert_int_equal(probe.n_live, 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_damaged_lines, setup, teardown),
        cmocka_unit_test_setup_teardown(test_tables, setup, teardown),
        cmocka_unit_test_setup_teardown(test_samples_spread, setup, teardown),
        cmocka_unit_test_setup_teardown(test_page, setup, teardown),
        cmocka_unit_test_setup_teardown(test_empty_and_odd, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refusals, setup, teardown),
        cmocka_unit_test_setup_teardown(test_many_keys, setup, teardown),
        cmocka_unit_test_setup_teardown(test_allocations, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
