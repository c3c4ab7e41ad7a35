/* Nice numbers for axes. Source: P. Heckbert, "Nice numbers for graph labels", Graphics Gems, 1990
 * (with 1-2-5 only). */
#include "report/ticks.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "halley/text_number.h"

static double nice_step(double span, int wanted) {
    double raw = span / (wanted > 0 ? wanted : 1), power = pow(10, floor(log10(raw))),
           share = raw / power;
    return power * (share < 1.5 ? 1 : share < 3.5 ? 2 : share < 7.5 ? 5 : 10);
}

void hl_ticks_linear(struct hl_ticks *out, double lo, double hi, int wanted) {
    *out = (struct hl_ticks){.step = nice_step(hi - lo, wanted), .scale = fmax(fabs(lo), fabs(hi))};
    double first = ceil(lo / out->step - 1e-9), last = floor(hi / out->step + 1e-9);
    for (int i = 0; i < HL_TICKS_MAX && first + i <= last; i++)
        out->at[out->n++] = (first + i) * out->step + 0.0;
}

void hl_ticks_log(struct hl_ticks *out, double lo, double hi, int wanted) {
    double decades = log10(hi / lo);
    if (decades < 0.8) {
        hl_ticks_linear(out, lo, hi, wanted);
        return;
    }
    static const double few[] = {1, 2, 5};
    *out = (struct hl_ticks){.scale = hi};
    int stride = (int)ceil(decades / (wanted > 0 ? wanted : 1)),
        n_per_decade = decades * 3 <= wanted + 1 ? 3 : 1;
    for (int e = (int)floor(log10(lo)); e <= (int)ceil(log10(hi)); e++) {
        if (e % (stride > 0 ? stride : 1)) continue;
        for (int i = 0; i < n_per_decade; i++) {
            double value = few[i] * pow(10, e);
            if (value >= lo * (1 - 1e-9) && value <= hi * (1 + 1e-9) && out->n < HL_TICKS_MAX)
                out->at[out->n++] = value;
        }
    }
}

/* How many decimals show each multiple of the step. */
static int decimals_of(double step) {
    int decimals = (int)ceil(-log10(step) - 1e-9);
    return decimals < 0 ? 0 : decimals > 15 ? 15 : decimals;
}

static void trim_zeros(char *digits) {
    size_t n = strlen(digits);
    if (!strchr(digits, '.')) return;
    while (digits[n - 1] == '0') digits[--n] = 0;
    if (digits[n - 1] == '.') digits[n - 1] = 0;
}

/* 5e-4, 1.2e-3: each value with its own exponent, and as many digits as tell it from its
 * neighbours. */
static void label_exponent(char out[HL_WORDS], double value, double step) {
    char digits[HL_WORDS - 8];
    int exponent = (int)floor(log10(fabs(value)) + 1e-9);
    double unit = pow(10, exponent);
    hl_print_fixed(digits, sizeof digits, value / unit, step > 0 ? decimals_of(step / unit) : 0);
    trim_zeros(digits);
    (void)snprintf(out, HL_WORDS, "%se%d", digits, exponent);
}

/* 800k, 1M, 1.2M */
static void label_unit(char out[HL_WORDS], double value, double step) {
    static const char *const units[] = {"", "k", "M", "G", "T"};
    int unit = 0;
    while (unit < 4 && fabs(value) >= 999.999999) value /= 1e3, step /= 1e3, unit++;
    hl_print_fixed(out, HL_WORDS - 2, value, decimals_of(step));
    trim_zeros(out);
    (void)strcat(out, units[unit]);
}

static void label_log(char out[HL_WORDS], double value) {
    int exponent = (int)floor(log10(value) + 1e-9);
    if (exponent >= -3 && exponent < 4)
        hl_print_fixed(out, HL_WORDS, value, exponent < 0 ? -exponent : 0);
    else label_exponent(out, value, 0);
}

void hl_ticks_label(char out[HL_WORDS], const struct hl_ticks *ticks, double value) {
    double step = ticks->step, scale = ticks->scale;
    if (value == 0) (void)strcpy(out, "0");
    else if (step == 0) label_log(out, value);
    else if (scale < 1e-2 || scale >= 1e15) label_exponent(out, value, step);
    else if (scale >= 1e4) label_unit(out, value, step);
    else hl_print_fixed(out, HL_WORDS, value, decimals_of(step));
}
