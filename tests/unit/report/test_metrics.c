/* metrics.jsonl, samples.jsonl and event files: bytes, cuts, damage, a full disk, failing
 * allocations. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <float.h>
#include <locale.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "halley/report.h"
#include "base/crc32c.h"
#include "report/events.h"
#include "report/lines.h"
#include "report/utf8.h"

static char folder[64];

static int setup(void **state) {
    (void)state;
    strcpy(folder, "/tmp/halley-metrics-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int teardown(void **state) {
    (void)state;
    char command[128];
    (void)snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

static const char *in_folder(const char *name) {
    static char path[4][512];
    static int turn;
    turn = (turn + 1) % 4;
    (void)snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
    return path[turn];
}

static void put_file(const char *name, const char *text, size_t n) {
    FILE *file = fopen(in_folder(name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

static const char *get_file(const char *name) {
    static char text[1 << 16];
    FILE *file = fopen(in_folder(name), "rb");
    assert_non_null(file);
    size_t n = fread(text, 1, sizeof text - 1, file);
    text[n] = 0;
    fclose(file);
    return text;
}

static struct hl_metrics *open_at(int64_t keep, bool tensorboard) {
    struct hl_metrics *metrics = NULL;
    struct hl_diag diag = {0};
    if (hl_metrics_open(hl_mem_default(), folder, keep, tensorboard, &metrics, &diag))
        fail_msg("%s", diag.text);
    return metrics;
}

static void write_one(struct hl_metrics *metrics, int64_t step, double loss) {
    struct hl_metric values[] = {{"loss", loss, false}, {"tokens", 1234567890123.0, true}};
    assert_int_equal(hl_metrics_write(metrics, step, values, 2, NULL), HL_OK);
}

static void test_bytes(void **state) {
    (void)state;
    (void)setlocale(LC_ALL, "de_DE.UTF-8"); /* where it is installed */
    struct hl_metrics *metrics = open_at(-1, false);
    struct hl_metric values[] = {
        {"loss", 0.1, false},   {"grad_norm", NAN, false}, {"a\"b", INFINITY, false},
        {"z", -INFINITY, true}, {"tokens", 3.0, true},     {"tiny", 5e-324, false},
        {"big", DBL_MAX, true}, {"third", 1.0 / 3, false}, {"zero", -0.0, false}};
    assert_int_equal(hl_metrics_write(metrics, 12, values, 9, NULL), HL_OK);
    assert_int_equal(hl_metrics_write(metrics, 13, NULL, 0, NULL), HL_OK);
    assert_int_equal(hl_metrics_flush(metrics, NULL), HL_OK);
    hl_metrics_close(metrics);
    assert_string_equal(
        get_file("metrics.jsonl"),
        "{\"step\": 12, \"loss\": 0.1, \"grad_norm\": \"NaN\", \"a\\\"b\": \"Infinity\", \"z\": "
        "\"-Infinity\", "
        "\"tokens\": 3, \"tiny\": 4.94065645841247e-324, \"big\": 1.7976931348623157e+308, "
        "\"third\": 0.3333333333333333, \"zero\": -0}\n{\"step\": 13}\n");
    (void)setlocale(LC_ALL, "C");
}

static void test_cut(void **state) {
    (void)state;
    struct hl_metrics *metrics = open_at(-1, false);
    for (int i = 1; i <= 5; i++) write_one(metrics, i * 10, i);
    assert_int_equal(hl_metrics_text(metrics, 20, "sample", "two\xff\n\033", NULL), HL_OK);
    assert_int_equal(hl_metrics_text(metrics, 40, "sample", "four", NULL), HL_OK);
    hl_metrics_close(metrics);
    metrics = open_at(30, false);
    hl_metrics_close(metrics);
    assert_string_equal(get_file("metrics.jsonl"),
                        "{\"step\": 10, \"loss\": 1, \"tokens\": 1234567890123}\n"
                        "{\"step\": 20, \"loss\": 2, \"tokens\": 1234567890123}\n"
                        "{\"step\": 30, \"loss\": 3, \"tokens\": 1234567890123}\n");
    assert_string_equal(
        get_file("samples.jsonl"),
        "{\"step\": 20, \"tag\": \"sample\", \"text\": \"two\xEF\xBF\xBD\\n\\u001b\"}\n");
    metrics = open_at(29, false);
    write_one(metrics, 30, 0.5);
    hl_metrics_close(metrics);
    assert_non_null(strstr(get_file("metrics.jsonl"), "{\"step\": 30, \"loss\": 0.5"));
    metrics = open_at(0, false);
    hl_metrics_close(metrics);
    assert_string_equal(get_file("metrics.jsonl"), "");
}

/* Foreign spacing, damage in the middle (kept: not ours to delete) and half a last line (removed).
 */
static void test_damage(void **state) {
    (void)state;
    const char text[] = "{ \"loss\": 1, \"step\" : 1 }\nnonsense\n{\"step\": \"x\"}\n{\"step\": "
                        "2}\n{\"step\": 2, \"lo";
    put_file("metrics.jsonl", text, sizeof text - 1);
    hl_metrics_close(open_at(7, false));
    assert_string_equal(
        get_file("metrics.jsonl"),
        "{ \"loss\": 1, \"step\" : 1 }\nnonsense\n{\"step\": \"x\"}\n{\"step\": 2}\n");
    hl_metrics_close(open_at(1, false));
    assert_string_equal(get_file("metrics.jsonl"),
                        "{ \"loss\": 1, \"step\" : 1 }\nnonsense\n{\"step\": \"x\"}\n");
    hl_metrics_close(open_at(-1, false));
    assert_string_equal(get_file("metrics.jsonl"), "");
}

static void test_full_disk(void **state) {
    (void)state;
    struct rlimit before, small = {60, 60};
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small.rlim_max = before.rlim_max;
    (void)signal(SIGXFSZ, SIG_IGN);
    struct hl_metrics *metrics = open_at(-1, false);
    write_one(metrics, 1, 1);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    struct hl_metric value = {"loss", 2, false};
    struct hl_diag diag = {0};
    enum hl_status first = hl_metrics_write(metrics, 2, &value, 1, &diag);
    enum hl_status second = hl_metrics_write(metrics, 3, &value, 1, NULL);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(first, HL_E_IO);
    assert_non_null(strstr(diag.text, "metrics.jsonl"));
    assert_int_equal(second, HL_OK);
    assert_int_equal(hl_metrics_n_lost(metrics), 2);
    write_one(metrics, 4, 4);
    hl_metrics_close(metrics);
    assert_string_equal(get_file("metrics.jsonl"),
                        "{\"step\": 1, \"loss\": 1, \"tokens\": 1234567890123}\n"
                        "{\"step\": 4, \"loss\": 4, \"tokens\": 1234567890123}\n");
}

static void test_refusals(void **state) {
    (void)state;
    struct hl_metrics *metrics;
    struct hl_diag diag = {0};
    assert_int_equal(hl_metrics_open(hl_mem_default(), in_folder("a/b"), -1, true, &metrics, &diag),
                     HL_E_IO);
    assert_non_null(strstr(diag.text, "a/b"));
    assert_int_equal(mkdir(in_folder("metrics.jsonl"), 0777), 0);
    assert_int_equal(hl_metrics_open(hl_mem_default(), folder, -1, true, &metrics, &diag), HL_E_IO);
    assert_non_null(strstr(diag.text, "metrics.jsonl"));
}

static int count_events(void) {
    int n = 0;
    DIR *dir = opendir(in_folder("runs"));
    if (!dir) return 0;
    for (struct dirent *entry; (entry = readdir(dir));)
        n += strstr(entry->d_name, "tfevents") != NULL;
    closedir(dir);
    return n;
}

static void test_event_files(void **state) {
    (void)state;
    for (int i = 0; i < 3; i++) { /* within one second: three files nevertheless */
        struct hl_metrics *metrics = open_at(i * 10, true);
        write_one(metrics, i * 10 + 1, 1);
        assert_int_equal(hl_metrics_text(metrics, i, "sample", "", NULL), HL_OK);
        hl_metrics_close(metrics);
    }
    assert_int_equal(count_events(), 3);
}

static void test_crc(void **state) {
    (void)state;
    unsigned char bytes[32] = {0};
    assert_int_equal(hl_crc32c(bytes, 32), 0x8A9136AA); /* RFC 3720 B.4 */
    memset(bytes, 0xFF, 32);
    assert_int_equal(hl_crc32c(bytes, 32), 0x62A8AB43);
    for (int i = 0; i < 32; i++) bytes[i] = (unsigned char)i;
    assert_int_equal(hl_crc32c(bytes, 32), 0x46DD794E);
    assert_int_equal(hl_crc32c("123456789", 9), 0xE3069283);
    assert_int_equal(hl_crc32c("", 0), 0);
}

static void test_utf8(void **state) {
    (void)state;
    const struct {
        const char *from, *keep, *page, *terminal, *ascii;
    } cases[] = {
        {"", "", "", "", ""},
        {"a\tb\n", "a\tb\n", "a\tb\n", "a    b\n", "a    b\n"},
        {"\xC3\xA9", "\xC3\xA9", "\xC3\xA9", "\xC3\xA9", "?"},
        {"\xC0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD", "\xEF\xBF\xBD\xEF\xBF\xBD",
         "\xEF\xBF\xBD\xEF\xBF\xBD", "??"},
        {"\xED\xA0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD",
         "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD", "???"},
        {"\xF0\x9F\x98\x80", "\xF0\x9F\x98\x80", "\xF0\x9F\x98\x80", "\xF0\x9F\x98\x80", "?"},
        {"\xF0\x9F\x98", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD",
         "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD", "???"},
        {"\xF4\x90\x80\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD",
         "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD",
         "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD", "????"},
        {"\033\x7F", "\033\x7F", "\xEF\xBF\xBD\xEF\xBF\xBD", "\xEF\xBF\xBD\xEF\xBF\xBD", "??"},
        {"\xC2\x9B\xEF\xBF\xBF", "\xC2\x9B\xEF\xBF\xBF", "\xEF\xBF\xBD\xEF\xBF\xBD",
         "\xEF\xBF\xBD\xEF\xBF\xBD", "??"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *want[] = {cases[i].keep, cases[i].page, cases[i].terminal, cases[i].ascii};
        for (int how = 0; how < 4; how++) {
            struct hl_buf out = {.mem = hl_mem_default()};
            hl_utf8_clean(&out, cases[i].from, strlen(cases[i].from), (enum hl_clean)how);
            assert_string_equal(out.data ? out.data : "", want[how]);
            hl_buf_free(&out);
        }
    }
}

static void test_lines(void **state) {
    (void)state;
    size_t n = HL_LINE_MAX + 100000u;
    char *text = malloc(n + 16);
    assert_non_null(text);
    memset(text, 'x', n);
    memcpy(text, "a\n\n", 3);
    memcpy(text + n, "\nend", 4);
    put_file("lines", text, n + 4);
    free(text);
    struct hl_lines lines;
    struct hl_line line;
    assert_int_equal(hl_lines_open(&lines, hl_mem_default(), in_folder("lines"), NULL), HL_OK);
    assert_int_equal(hl_lines_next(&lines, &line, NULL), HL_OK);
    assert_string_equal(line.text, "a");
    assert_int_equal(hl_lines_next(&lines, &line, NULL), HL_OK);
    assert_true(line.n == 0 && line.number == 2 && line.offset == 2 && line.whole);
    assert_int_equal(hl_lines_next(&lines, &line, NULL), HL_OK);
    assert_true(line.too_long && line.n == 0 && line.whole && line.offset == 3);
    assert_int_equal(hl_lines_next(&lines, &line, NULL), HL_OK);
    assert_true(!line.too_long && !line.whole && line.offset == (int64_t)n + 1);
    assert_string_equal(line.text, "end");
    assert_int_equal(hl_lines_next(&lines, &line, NULL), HL_END);
    assert_int_equal(lines.offset, n + 4);
    hl_lines_close(&lines);
    assert_int_equal(hl_lines_open(&lines, hl_mem_default(), in_folder("none"), NULL), HL_E_IO);
}

static void test_allocations(void **state) {
    (void)state;
    long n_taken = 1000;
    for (long k = 0; k <= n_taken; k++) { /* k 0: none fails, and all are counted */
        struct hl_mem_probe probe;
        hl_mem_probe_init(&probe, k);
        struct hl_metrics *metrics = NULL;
        struct hl_diag diag = {0};
        enum hl_status status = hl_metrics_open(&probe.mem, folder, 5, true, &metrics, &diag);
        if (!status) {
            struct hl_metric value = {"loss", 2, false};
            status = hl_metrics_write(metrics, 1, &value, 1, &diag);
            enum hl_status second = hl_metrics_text(metrics, 1, "sample", "text\nmore", &diag);
            if (!status) status = second;
            hl_metrics_close(metrics);
        }
        if (k == 0) n_taken = probe.n_taken;
        assert_int_equal(status, k ? HL_E_MEMORY : HL_OK);
        if (k) assert_int_equal(diag.status, HL_E_MEMORY);
        assert_int_equal(probe.n_live, 0);
    }
    hl_metrics_close(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_bytes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cut, setup, teardown),
        cmocka_unit_test_setup_teardown(test_damage, setup, teardown),
        cmocka_unit_test_setup_teardown(test_full_disk, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refusals, setup, teardown),
        cmocka_unit_test_setup_teardown(test_event_files, setup, teardown),
        cmocka_unit_test_setup_teardown(test_lines, setup, teardown),
        cmocka_unit_test_setup_teardown(test_allocations, setup, teardown),
        cmocka_unit_test(test_crc),
        cmocka_unit_test(test_utf8),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
