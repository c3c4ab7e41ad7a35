/* Numbers as text under any locale: the C library's conversions, with the locale's decimal
 * separator put right. */
#include "halley/text_number.h"

#include <errno.h>
#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Replace the locale's decimal separator (which may be several bytes) by a point. */
static void point(char *text) {
    const char *mark = localeconv()->decimal_point;
    if (mark[0] == '.' && !mark[1]) return;
    char *at = strstr(text, mark);
    if (!at) return;
    size_t n = strlen(mark);
    *at = '.';
    memmove(at + 1, at + n, strlen(at + n) + 1);
}

static bool special(char *out, size_t capacity, double value) {
    if (isfinite(value)) return false;
    (void)snprintf(out, capacity, "%s",
                   isnan(value) ? "NaN"
                   : value > 0  ? "Infinity"
                                : "-Infinity");
    return true;
}

void hl_print_f64(char *out, size_t capacity, double value) {
    if (special(out, capacity, value)) return;
    for (int digits = 15; digits <= 17; digits++) {
        (void)snprintf(out, capacity, "%.*g", digits, value);
        if (strtod(out, NULL) == value) break;
    }
    point(out);
}

void hl_print_f32(char *out, size_t capacity, float value) {
    if (special(out, capacity, (double)value)) return;
    for (int digits = 6; digits <= 9; digits++) {
        (void)snprintf(out, capacity, "%.*g", digits, (double)value);
        if (strtof(out, NULL) == value) break;
    }
    point(out);
}

void hl_print_fixed(char *out, size_t capacity, double value, int decimals) {
    if (special(out, capacity, value)) return;
    (void)snprintf(out, capacity, "%.*f", decimals, value);
    point(out);
}

bool hl_parse_f64(const char *text, double *out) {
    char copy[128];
    size_t n = strlen(text);
    if (!n || n >= sizeof copy || strspn(text, "0123456789+-.eE") != n) return false;
    const char *mark = localeconv()->decimal_point;
    const char *at = strchr(text, '.');
    if (!at || (mark[0] == '.' && !mark[1])) (void)snprintf(copy, sizeof copy, "%s", text);
    else (void)snprintf(copy, sizeof copy, "%.*s%s%s", (int)(at - text), text, mark, at + 1);
    char *end;
    errno = 0;
    double value = strtod(copy, &end);
    if (end == copy || *end || !isfinite(value)) return false;
    *out = value;
    return true;
}

bool hl_parse_i64(const char *text, int64_t *out) {
    size_t n = strlen(text);
    if (!n || strspn(text, "0123456789+-") != n) return false;
    char *end;
    errno = 0;
    intmax_t value = strtoimax(text, &end, 10);
    if (end == text || *end || errno) return false;
    *out = value;
    return true;
}

void hl_print_bytes(char *out, size_t capacity, uint64_t bytes) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    double value = (double)bytes;
    int unit = 0;
    while (value >= 1024 && unit < 5) value /= 1024, unit++;
    char number[32];
    hl_print_fixed(number, sizeof number, value,
                   unit && value < 10    ? 2
                   : unit && value < 100 ? 1
                                         : 0);
    (void)snprintf(out, capacity, "%s %s", number, units[unit]);
}
