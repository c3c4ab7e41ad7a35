/* Learning-rate curves. See halley/optimizer.h. */
#include <math.h>

#include "halley/optimizer.h"

/* 1 down to 0 over the decaying part, by the curve's shape. */
static double decayed(const struct hl_schedule_rate *c, double progress) {
    double span = c->total - c->warmup, done = span > 0 ? (progress - c->warmup) / span : 1;
    if (done < 0) done = 0;
    if (done > 1) done = 1;
    switch (c->curve) {
    case HL_CURVE_CONSTANT: return 1;
    case HL_CURVE_LINEAR: return 1 - done;
    case HL_CURVE_COSINE: return 0.5 * (1 + cos(3.141592653589793238463 * done));
    case HL_CURVE_WSD: {
        double left = c->total - progress,
               decay = fmin(c->decay, span); /* no longer than what warm-up leaves */
        return decay <= 0 || left >= decay ? 1 : fmax(left, 0) / decay;
    }
    }
    return 1;
}

double hl_learning_rate(const struct hl_schedule_rate *c, double progress, double unit) {
    if (progress < c->warmup) return c->learning_rate * fmin(1, (progress + unit) / c->warmup);
    return c->learning_rate * (c->min_lr_ratio + (1 - c->min_lr_ratio) * decayed(c, progress));
}
