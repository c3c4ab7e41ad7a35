/* Smoothing for the eye. Metrics themselves are never smoothed. */
#ifndef HALLEY_REPORT_SMOOTH_H
#define HALLEY_REPORT_SMOOTH_H

#include <stddef.h>

/* out[i] = weighted mean of y around i, weights exp(-|distance| / window): no lag, unlike a running
 * average, and no bend at the ends. Values that are not finite are left out of the means and copied
 * through. scratch [n]. cost O(n). */
void hl_smooth(double *out, const double *y, size_t n, double window, double *scratch);

#endif
