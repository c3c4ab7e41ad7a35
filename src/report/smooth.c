/* The two-sided exponential mean as one walk forward and one back. */
#include "report/smooth.h"

#include <math.h>

void hl_smooth(double *out, const double *y, size_t n, double window, double *scratch) {
    double keep = window > 0 ? exp(-1 / window) : 0, sum = 0, weight = 0;
    for (size_t i = 0; i < n; i++) {
        int use = isfinite(y[i]);
        sum = sum * keep + (use ? y[i] : 0);
        weight = weight * keep + use;
        out[i] = sum;
        scratch[i] = weight;
    }
    sum = weight = 0; /* of what lies after i */
    for (size_t i = n; i-- > 0;) {
        int use = isfinite(y[i]);
        out[i] = use ? (out[i] + sum) / (scratch[i] + weight) : y[i];
        sum = (sum + (use ? y[i] : 0)) * keep;
        weight = (weight + use) * keep;
    }
}
