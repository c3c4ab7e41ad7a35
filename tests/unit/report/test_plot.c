/* Axes and plots: nice numbers, and whatever data a run may produce. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report/plot.h"
#include "report/smooth.h"
#include "report/ticks.h"
#include "well_formed.h"

static void check_labels(const struct hl_ticks *ticks, const char *want) {
    char all[1024] = "", label[HL_WORDS];
    for (int i = 0; i < ticks->n; i++) {
        hl_ticks_label(label, ticks, ticks->at[i]);
        strcat(strcat(all, i ? " " : ""), label);
    }
    assert_string_equal(all, want);
}

static void test_ticks(void **state) {
    (void)state;
    const struct {
        double lo, hi;
        int wanted;
        const char *want;
    } linear[] = {
        {0, 1, 5, "0 0.2 0.4 0.6 0.8 1.0"},
        {3.2, 5.7, 6, "3.5 4.0 4.5 5.0 5.5"},
        {0, 2000, 10, "0 200 400 600 800 1000 1200 1400 1600 1800 2000"},
        {0, 1e6, 5, "0 200k 400k 600k 800k 1M"},
        {0, 1.3e6, 5, "0 200k 400k 600k 800k 1M 1.2M"},
        {0, 1e-3, 5, "0 2e-4 4e-4 6e-4 8e-4 1e-3"},
        {-1, 1, 4, "-1.0 -0.5 0 0.5 1.0"},
        {0, 50000, 5, "0 10k 20k 30k 40k 50k"},
        {1e20, 2e20, 2, "1e20 1.5e20 2e20"},
        {0.68, 0.72, 4, "0.68 0.69 0.70 0.71 0.72"},
        {12000, 12900, 3, "12k 12.2k 12.4k 12.6k 12.8k"},
    };
    for (size_t i = 0; i < sizeof linear / sizeof *linear; i++) {
        struct hl_ticks ticks;
        hl_ticks_linear(&ticks, linear[i].lo, linear[i].hi, linear[i].wanted);
        check_labels(&ticks, linear[i].want);
    }
    const struct {
        double lo, hi;
        int wanted;
        const char *want;
    } logarithmic[] = {
        {1, 1000, 5, "1 10 100 1000"},
        {0.01, 1, 8, "0.01 0.02 0.05 0.1 0.2 0.5 1"},
        {1e-6, 1e6, 4, "1e-6 0.001 1 1000 1e6"},
        {2, 3, 4, "2.0 2.2 2.4 2.6 2.8 3.0"},
        {1e-100, 1e100, 4, "1e-100 1e-50 1 1e50 1e100"},
    };
    for (size_t i = 0; i < sizeof logarithmic / sizeof *logarithmic; i++) {
        struct hl_ticks ticks;
        hl_ticks_log(&ticks, logarithmic[i].lo, logarithmic[i].hi, logarithmic[i].wanted);
        check_labels(&ticks, logarithmic[i].want);
    }
}

static void test_ticks_extremes(void **state) {
    (void)state;
    const double ends[] = {-1e100, -1,        -1e-300, 0,        5e-324, 1e-100,
                           1,      1 + 1e-15, 1e15,    1e15 + 1, 1e100};
    enum { N = sizeof ends / sizeof *ends };
    for (int a = 0; a < N; a++)
        for (int b = a + 1; b < N; b++)
            for (int wanted = 0; wanted < 40; wanted += 13) {
                struct hl_ticks ticks;
                char label[HL_WORDS];
                hl_ticks_linear(&ticks, ends[a], ends[b], wanted);
                assert_in_range(ticks.n, 0, HL_TICKS_MAX);
                for (int i = 0; i < ticks.n; i++) hl_ticks_label(label, &ticks, ticks.at[i]);
                if (ends[a] <= 1e-300) continue;
                hl_ticks_log(&ticks, ends[a], ends[b], wanted);
                assert_in_range(ticks.n, 0, HL_TICKS_MAX);
                for (int i = 0; i < ticks.n; i++) hl_ticks_label(label, &ticks, ticks.at[i]);
            }
}

static void test_words(void **state) {
    (void)state;
    char out[HL_WORDS];
    const struct {
        double value;
        const char *rate, *count, *words, *duration;
    } cases[] = {
        {0, "0.0", "0", "0", "0:00"},
        {3e-4, "3.00e-04", "0", "3.0000e-04", "0:00"},
        {9.9999e-5, "1.00e-04", "0", "9.9999e-05", "0:00"},
        {999.5, "9.99e+02", "1.00k", "999.50", "16:40"},
        {12345, "1.23e+04", "12.3k", "12345", "3h25m"},
        {99999.7, "1.00e+05", "100k", "9.9999e+04", "1d03h"},
        {4.56e6, "4.56e+06", "4.56M", "4.5600e+06", "52d18h"},
        {-2.5, "-2.50e+00", "-2", "-2.5000", "n/a"},
        {1e300, "1.00e+300", "1.00e+300", "1.0000e+300", "n/a"},
        {INFINITY, "Infinity", "Infinity", "Infinity", "n/a"},
        {-INFINITY, "-Infinity", "-Infinity", "-Infinity", "n/a"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (i != 3 && i != 5) { /* ties */
            hl_words_rate(out, cases[i].value);
            assert_string_equal(out, cases[i].rate);
        }
        if (i < 8) {
            hl_words_count(out, cases[i].value);
            assert_string_equal(out, cases[i].count);
        }
        if (i != 5) {
            hl_words_value(out, cases[i].value);
            assert_string_equal(out, cases[i].words);
        }
        hl_words_duration(out, cases[i].value);
        assert_string_equal(out, cases[i].duration);
    }
    hl_words_integer(out, -1234567);
    assert_string_equal(out, "-1,234,567");
    hl_words_integer(out, INT64_MIN);
    assert_string_equal(out, "-9,223,372,036,854,775,808");
    hl_words_integer(out, 999);
    assert_string_equal(out, "999");
    hl_words_percent(out, 0.714);
    assert_string_equal(out, "71%");
    hl_words_percent(out, -1);
    assert_string_equal(out, "n/a");
}

static void test_smooth(void **state) {
    (void)state;
    double y[] = {2, 2, NAN, 2, INFINITY, 2, 2}, out[7], scratch[7];
    hl_smooth(out, y, 7, 3, scratch);
    for (int i = 0; i < 7; i++)
        if (isfinite(y[i])) assert_true(fabs(out[i] - 2) < 1e-12);
        else assert_true(!isfinite(out[i]));
    double z[] = {0, 0, 0, 8, 0, 0, 0};
    hl_smooth(out, z, 7, 2, scratch);
    assert_true(out[3] > out[2] && out[3] > out[4] && fabs(out[2] - out[4]) < 1e-12 &&
                fabs(out[0] - out[6]) < 1e-12);
    hl_smooth(out, z, 7, 0, scratch);
    assert_true(out[3] == 8 && out[2] == 0);
    hl_smooth(out, z, 0, 2, scratch);
}

static const char *draw(struct hl_buf *out, const struct hl_plot *plot) {
    out->n = 0;
    hl_plot_svg(out, plot);
    assert_false(out->failed);
    const char *flaw = first_flaw(out->data);
    if (flaw) fail_msg("not well formed at: %.60s", flaw);
    assert_null(strstr(out->data, "nan"));
    assert_null(strstr(out->data, "inf"));
    return out->data;
}

/* Every shape of data in every style and scale: well formed, no NaN in a coordinate. */
static void test_shapes(void **state) {
    (void)state;
    double up[] = {0, 1, 2, 3, 4}, x1[] = {7};
    double rows[][5] = {{1, 2, 3, 2, 1},
                        {5, 5, 5, 5, 5},
                        {0, 0, 0, 0, 0},
                        {NAN, NAN, NAN, NAN, NAN},
                        {1, NAN, 3, INFINITY, -INFINITY},
                        {1e300, 1, -1e300, 0, 1e-300},
                        {-1, -2, -3, -4, -5},
                        {NAN, 1, NAN, NAN, 2},
                        {1e-9, 1e9, 1, 2, 3}};
    struct hl_buf out = {.mem = hl_mem_default()};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
        for (int style = HL_PLOT_LINE; style <= HL_PLOT_POINTS; style++)
            for (int flags = 0; flags < 32; flags++) {
                struct hl_plot_series series[] = {
                    {"a", up, rows[r], 5, 0, (enum hl_plot_style)style},
                    {NULL, x1, rows[r], 1, 1, (enum hl_plot_style)style},
                    {"empty", up, rows[r], 0, 2, HL_PLOT_LINE}};
                struct hl_plot plot = {.title = "T",
                                       .unit = "u",
                                       .x_label = "step",
                                       .width = 300,
                                       .height = 200,
                                       .series = series,
                                       .n_series = 3,
                                       .log_x = flags & 1,
                                       .log_y = flags & 2,
                                       .from_zero = flags & 4,
                                       .standalone = flags & 8,
                                       .whole_x = flags & 16};
                (void)draw(&out, &plot);
            }
    struct hl_plot empty = {.title = "T", .x_label = "step", .width = 300, .height = 200};
    assert_non_null(strstr(draw(&out, &empty), "no values yet"));
    hl_buf_free(&out);
}

static void test_details(void **state) {
    (void)state;
    double x[] = {10, 20, 30, 40}, y[] = {4, NAN, 3, 2};
    struct hl_plot_series series = {
        "<b>\"&\xff and a name that is much longer than any legend has room for",
        x,
        y,
        4,
        0,
        HL_PLOT_LINE};
    struct hl_plot plot = {.title = "Loss <of> \"x\"",
                           .x_label = "step",
                           .width = 600,
                           .height = 300,
                           .series = &series,
                           .n_series = 1};
    struct hl_buf out = {.mem = hl_mem_default()};
    const char *svg = draw(&out, &plot);
    assert_non_null(strstr(svg, "Loss &lt;of&gt; &quot;x&quot;"));
    assert_non_null(strstr(svg, "&lt;b&gt;&quot;&amp;\xEF\xBF\xBD"));
    assert_non_null(strstr(svg, "…"));
    assert_null(strstr(svg, "<b>"));
    assert_non_null(strstr(svg, "<title>step 20: NaN</title>"));
    assert_non_null(strstr(svg, "<title>step 30  "));
    hl_buf_free(&out);
}

/* A million points cost the size of some thousand, and no spike is lost. */
static void test_many(void **state) {
    (void)state;
    enum { N = 1000000 };
    double *x = malloc(2 * N * sizeof *x), *y = x + N;
    assert_non_null(x);
    for (int i = 0; i < N; i++) x[i] = i, y[i] = 2 + 0.1 * sin(i * 12.9898);
    y[333333] = 9;
    struct hl_plot_series series = {"a", x, y, N, 0, HL_PLOT_LINE};
    struct hl_plot plot = {.title = "T",
                           .x_label = "step",
                           .width = 1000,
                           .height = 400,
                           .series = &series,
                           .n_series = 1,
                           .standalone = true};
    struct hl_buf out = {.mem = hl_mem_default()};
    (void)draw(&out, &plot);
    assert_in_range(out.n, 10000, 100000);
    plot.n_series = 0;
    plot.series = NULL;
    double sx[] = {0, 333333, 999999}, sy[] = {2, 9, 2};
    struct hl_plot_series few = {"a", sx, sy, 3, 0, HL_PLOT_LINE};
    struct hl_buf same = {.mem = hl_mem_default()};
    plot.series = &few;
    plot.n_series = 1;
    (void)draw(&same, &plot);
    char *peak = strstr(strstr(same.data, "d=\"M"),
                        "L"); /* the spike's place in a plot of it alone, to its height */
    assert_non_null(peak);
    char place[32] = "";
    memcpy(place, peak, strcspn(peak + 1, "L") + 1);
    char *there = strstr(out.data, strchr(place, ' '));
    assert_non_null(there);
    hl_buf_free(&same);
    hl_buf_free(&out);
    free(x);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ticks),  cmocka_unit_test(test_ticks_extremes),
        cmocka_unit_test(test_words),  cmocka_unit_test(test_smooth),
        cmocka_unit_test(test_shapes), cmocka_unit_test(test_details),
        cmocka_unit_test(test_many)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
