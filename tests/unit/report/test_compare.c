/* The page that compares strategies: curves over tokens, seconds and bytes, the table's numbers by
 * hand, runs without anything in them, hostile names, failing allocations. */
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
#include "report/compare.h"
#include "well_formed.h"

static char folder[64];

static int setup(void **state) {
    (void)state;
    strcpy(folder, "/tmp/halley-compare-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int teardown(void **state) {
    (void)state;
    char command[128];
    (void)snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

static const char *in_folder(const char *name) {
    static char path[8][512];
    static int turn;
    turn = (turn + 1) % 8;
    (void)snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
    return path[turn];
}

static void put_file(const char *run, const char *name, const char *text) {
    char path[256];
    (void)mkdir(in_folder(run), 0777);
    (void)snprintf(path, sizeof path, "%s/%s", in_folder(run), name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* Steps 10, 20, ...: the held-out loss falls from 4 by `fall` each time, a step takes `ms`. */
static void put_run(const char *name, int n, double fall, int ms, int bytes, int cost) {
    char text[16384] = "", line[512];
    for (int i = 1; i <= n; i++) {
        (void)snprintf(line, sizeof line,
                       "{\"step\": %d, \"loss\": %.3f, \"tokens\": %d, \"eval_loss\": %.3f, "
                       "\"train_runtime\": %.3f, \"step_ms\": %d, \"comm_bytes_out\": %d, "
                       "\"comm_wait_ms\": %d, \"busy\": 0.75}\n",
                       i * 10, 5 - fall * i, i * 10000, 4 - fall * (i - 1), 0.01 * ms * i, ms,
                       bytes, ms / 4);
        strcat(text, line);
    }
    put_file(name, "metrics.jsonl", text);
    (void)snprintf(line, sizeof line, "{\"strategy\": \"x\", \"sent_bytes_per_step\": %d}", cost);
    put_file(name, "run.json", line);
    put_file(name, "run.yaml", "data: '<script>'\n");
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

static void has(const char *text, const char *part) {
    if (!strstr(text, part)) fail_msg("no '%s' in %s", part, text);
}

/* slow: 4, 3.9, ... 3.1 at 10, 20, ... 100 s. fast: 4, 3.8, ... 2.2 at 1, 2, ... 10 s. Both reach
 * 3.1, the slow one at 100 s, the fast one between 5 s (3.2) and 6 s (3.0). */
static void test_table(void **state) {
    (void)state;
    put_run("slow", 10, 0.1, 1000, 2500000, 2000000);
    put_run("fast", 10, 0.2, 100, 500000, 500000);
    const char *runs[] = {in_folder("slow"), in_folder("fast")};
    char html_path[512], svg_path[512];
    strcpy(html_path, in_folder("c.html"));
    strcpy(svg_path, in_folder("c.svg"));
    struct hl_diag diag = {0};
    enum hl_status status = hl_report_compare(hl_mem_default(), runs, 2, "4 hosts <at> 100 Mbit/s",
                                              html_path, svg_path, NULL, &diag);
    if (status != HL_OK) fail_msg("%s", diag.text);
    char *html = get_file(html_path), *svg = get_file(svg_path);
    const char *flaw = first_flaw(html);
    if (flaw) fail_msg("not well formed at: %.60s", flaw);
    assert_null(first_flaw(svg));
    has(html, "4 hosts &lt;at&gt; 100 Mbit/s");
    has(html, "<th>Seconds to 3.1000</th>");
    has(html, "slow</td><td>3.1000</td><td>100</td><td>1.00</td><td>100</td><td>100</td>"
              "<td>100k</td><td>1000</td><td>250</td><td>75%</td><td>2.500</td><td>2.000</td>"
              "<td>1.25</td></tr>");
    has(html, "fast</td><td>2.2000</td><td>5.5</td><td>18.18</td><td>10.0</td>");
    has(html, "Held-out loss by tokens");
    has(html, "Held-out loss by seconds");
    has(html, "Held-out loss by bytes");
    has(html, "MB sent by rank 0");
    has(html, "Waiting for other ranks");
    has(html, "&lt;script&gt;");
    assert_null(strstr(html, "<script"));
    assert_null(strstr(html, "http:"));
    has(svg, "Held-out loss by seconds");
    free(html);
    free(svg);
}

/* One run that never evaluated: all are compared by their training loss. */
static void test_training_loss(void **state) {
    (void)state;
    char text[16384] = "", line[128];
    put_run("slow", 10, 0.1, 1000, 0, 0);
    for (int i = 1; i <= 60; i++) {
        (void)snprintf(line, sizeof line,
                       "{\"step\": %d, \"loss\": 2, \"tokens\": %d, \"train_runtime\": %d}\n", i, i,
                       i);
        strcat(text, line);
    }
    put_file("plain", "metrics.jsonl", text);
    const char *runs[] = {in_folder("slow"), in_folder("plain")};
    struct hl_diag diag = {0};
    assert_int_equal(
        hl_report_compare(hl_mem_default(), runs, 2, NULL, in_folder("c.html"), NULL, NULL, &diag),
        HL_OK);
    char *html = get_file(in_folder("c.html"));
    assert_null(first_flaw(html));
    has(html, "Training loss by seconds");
    has(html, "<th>Seconds to 4.0000</th>");
    has(html, "plain</td><td>2.0000</td><td>1.0</td><td>100.00</td><td>60.0</td><td>–</td>");
    free(html);
}

static void test_odd(void **state) {
    (void)state;
    static const char *const odd[] = {
        "",
        "{\"step\": 1}\n",
        "{\"step\": 0, \"loss\": 3, \"step_ms\": 1, \"comm_bytes_out\": 4}\n",
        "{\"step\": 5, \"loss\": \"NaN\"}\n{\"step\": 6, \"eval_loss\": \"Infinity\"}\n",
        "half\n{\"step\": 5, \"loss\": 3, \"eval_loss\": 1e308, \"train_runtime\": -5}\n",
    };
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        put_run("good", 3, 0.1, 10, 10, 10);
        put_file("<b>\"odd", "metrics.jsonl", odd[i]);
        const char *runs[] = {in_folder("good"), in_folder("<b>\"odd")};
        struct hl_diag diag = {0};
        assert_int_equal(hl_report_compare(hl_mem_default(), runs, 2, NULL, in_folder("o.html"),
                                           in_folder("o.svg"), NULL, &diag),
                         HL_OK);
        char *html = get_file(in_folder("o.html"));
        const char *flaw = first_flaw(html);
        if (flaw) fail_msg("%zu: not well formed at: %.60s", i, flaw);
        assert_null(strstr(html, "<b>"));
        if (i == 0) has(html, "odd: nothing logged yet");
        if (i == 4) has(html, "odd: 1 of 2 lines of metrics.jsonl could not be read.");
        free(html);
    }
}

static void test_refusals(void **state) {
    (void)state;
    struct hl_diag diag = {0};
    const char *missing[] = {in_folder("none")};
    assert_int_equal(
        hl_report_compare(hl_mem_default(), missing, 1, NULL, in_folder("x"), NULL, NULL, &diag),
        HL_E_IO);
    assert_int_equal(
        hl_report_compare(hl_mem_default(), missing, 0, NULL, in_folder("x"), NULL, NULL, &diag),
        HL_E_USER);
}

static void test_memory(void **state) {
    (void)state;
    put_run("slow", 10, 0.1, 1000, 2500000, 2000000);
    put_run("fast", 10, 0.2, 100, 500000, 500000);
    const char *runs[] = {in_folder("slow"), in_folder("fast")};
    char html_path[512], svg_path[512];
    strcpy(html_path, in_folder("m.html"));
    strcpy(svg_path, in_folder("m.svg"));
    long n_taken = 0;
    for (long k = 0; k <= n_taken; k++) { /* 0: count only */
        struct hl_mem_probe probe;
        struct hl_diag diag = {0};
        hl_mem_probe_init(&probe, k);
        enum hl_status status =
            hl_report_compare(&probe.mem, runs, 2, "about", html_path, svg_path, NULL, &diag);
        if (!k) n_taken = probe.n_taken;
        assert_int_equal(status, k ? HL_E_MEMORY : HL_OK);
        assert_int_equal(probe.n_live, 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_table, setup, teardown),
        cmocka_unit_test_setup_teardown(test_training_loss, setup, teardown),
        cmocka_unit_test_setup_teardown(test_odd, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refusals, setup, teardown),
        cmocka_unit_test_setup_teardown(test_memory, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
