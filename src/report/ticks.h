/* Where the lines of an axis go and what is written at them. */
#ifndef HALLEY_REPORT_TICKS_H
#define HALLEY_REPORT_TICKS_H

#include "report/words.h"

enum { HL_TICKS_MAX = 24 };

struct hl_ticks {
    double at[HL_TICKS_MAX];
    int n;
    double step;  /* linear: the distance; 0: logarithmic */
    double scale; /* the largest absolute value, which decides the unit of the labels */
};

/* Ticks at 1, 2 or 5 times a power of ten, about `wanted` of them, within lo..hi. lo < hi, |lo|,
 * |hi| <= 1e100. */
void hl_ticks_linear(struct hl_ticks *out, double lo, double hi, int wanted);
/* The same on a logarithmic axis: powers of ten, with 2 and 5 when few, or a linear division within
 * a decade. 0 < lo < hi. */
void hl_ticks_log(struct hl_ticks *out, double lo, double hi, int wanted);
void hl_ticks_label(char out[HL_WORDS], const struct hl_ticks *ticks, double value);

#endif
