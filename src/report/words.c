/* Numbers for people. Files for machines never use these: they need hl_print_f64. */
#include "report/words.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "halley/text_number.h"

static void print_scientific(char *out, double value, int decimals) {
    if (!isfinite(value) || value == 0) {
        hl_print_fixed(out, HL_WORDS, value, isfinite(value) ? 1 : 0);
        return;
    }
    double size = fabs(value);
    int exponent = (int)floor(log10(size));
    if (exponent < -300) exponent = -300; /* 10^-exponent stays finite */
    double mantissa = size * pow(10, -exponent);
    if (mantissa >= 10 - 0.5 * pow(10, -decimals)) mantissa /= 10, exponent++;
    char digits[16];
    hl_print_fixed(digits, sizeof digits, mantissa, decimals);
    (void)snprintf(out, HL_WORDS, "%s%se%c%02d", value < 0 ? "-" : "", digits,
                   exponent < 0 ? '-' : '+', exponent < 0 ? -exponent : exponent);
}

void hl_words_rate(char out[HL_WORDS], double value) { print_scientific(out, value, 2); }

void hl_words_count(char out[HL_WORDS], double value) {
    static const char *const units[] = {"", "k", "M", "G", "T"};
    int unit = 0;
    while (unit < 4 && fabs(value) >= 999.5) value /= 1000, unit++;
    if (fabs(value) >= 1e6) {
        hl_words_rate(out, isfinite(value) ? value * 1e12 : value);
        return;
    }
    hl_print_fixed(out, HL_WORDS - 2, value,
                   unit && fabs(value) < 9.995   ? 2
                   : unit && fabs(value) < 99.95 ? 1
                                                 : 0);
    (void)strcat(out, units[unit]);
}

void hl_words_duration(char out[HL_WORDS], double seconds) {
    if (!(seconds >= 0) || seconds > 1e9) {
        (void)strcpy(out, "n/a");
        return;
    }
    long long s = llround(seconds);
    if (s >= 86400) (void)snprintf(out, HL_WORDS, "%lldd%02lldh", s / 86400, s / 3600 % 24);
    else if (s >= 3600) (void)snprintf(out, HL_WORDS, "%lldh%02lldm", s / 3600, s / 60 % 60);
    else (void)snprintf(out, HL_WORDS, "%lld:%02lld", s / 60, s % 60);
}

void hl_words_percent(char out[HL_WORDS], double share) {
    if (share >= 0 && share < 100) (void)snprintf(out, HL_WORDS, "%lld%%", llround(share * 100));
    else (void)strcpy(out, "n/a");
}

void hl_words_value(char out[HL_WORDS], double value) {
    double size = fabs(value);
    if (isfinite(value) && size != 0 && (size >= 99999.5 || size < 1e-3))
        print_scientific(out, value, 4);
    else if (!isfinite(value) || size == 0) hl_print_fixed(out, HL_WORDS, value, 0);
    else
        hl_print_fixed(out, HL_WORDS, value,
                       size >= 9999.5   ? 0
                       : size >= 999.95 ? 1
                       : size >= 99.995 ? 2
                       : size >= 9.9995 ? 3
                                        : 4);
}

void hl_words_integer(char out[HL_WORDS], int64_t value) {
    char digits[24];
    int n = snprintf(digits, sizeof digits, "%lld", (long long)value), used = 0;
    for (int i = 0; i < n; i++) {
        out[used++] = digits[i];
        int left = n - 1 - i;
        if (left && left % 3 == 0 && digits[i] != '-') out[used++] = ',';
    }
    out[used] = 0;
}
