/* Two things timed in turn on one machine: the median of the ratios says more than either time,
 * since neighbours and clocks disturb both alike. */
#ifndef HALLEY_BENCH_PAIRS_H
#define HALLEY_BENCH_PAIRS_H

#include <stdlib.h>
#include <time.h>

enum { N_PAIRS = 15 };

static inline double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline int compare_doubles(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
static inline double median(double *x, int n) {
    qsort(x, (size_t)n, sizeof *x, compare_doubles);
    return x[n / 2];
}

typedef void timed(void *context);

static inline double seconds_of(timed *f, void *context) {
    const double start = now();
    f(context);
    return now() - start;
}

struct pairs {
    double mine, peer, ratio, ratio_low, ratio_high;
}; /* medians of seconds; ratio = peer / mine; quartiles */

static inline struct pairs time_pairs(timed *mine, timed *peer, void *context) {
    double a[N_PAIRS], b[N_PAIRS], ratio[N_PAIRS];
    mine(context);
    peer(context);
    for (int i = 0; i < N_PAIRS; i++) {
        a[i] = seconds_of(mine, context);
        b[i] = seconds_of(peer, context);
        ratio[i] = b[i] / a[i];
    }
    const double middle = median(ratio, N_PAIRS);
    return (struct pairs){median(a, N_PAIRS), median(b, N_PAIRS), middle, ratio[N_PAIRS / 4],
                          ratio[N_PAIRS - 1 - N_PAIRS / 4]};
}

#endif
