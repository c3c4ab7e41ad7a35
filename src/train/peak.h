/* What the machine's products can do here, for shares of it. */
#ifndef HALLEY_TRAIN_PEAK_H
#define HALLEY_TRAIN_PEAK_H

#include "halley/kernels.h"

/* Operations per second of a square product that fits the caches, best of a few within 20 ms; 0
 * when it cannot be measured. */
double hl_peak_flops(struct hl_mem *mem, struct hl_products *products, enum hl_dtype dtype);

#endif
