/* What doctor measures, in well under a second together. */
#ifndef HALLEY_DOCTOR_MEASURE_H
#define HALLEY_DOCTOR_MEASURE_H

#include "halley/kernels.h"

/* Bytes read and written per second by n_threads copying arrays larger than the caches; 0 when
 * memory is short. */
double measure_copy(struct hl_mem *mem, int n_threads);

/* Operations per second of square products, the best within 0.15 s; 0 when it cannot be measured.
 */
double measure_products(struct hl_mem *mem, struct hl_products *products, enum hl_dtype dtype);

/* The largest error of a product of odd sizes against sums in double, relative to the rounding one
 * may expect (about 1 is usual, above 16 something is broken); a negative number when it cannot be
 * computed. */
double measure_product_error(struct hl_mem *mem, struct hl_products *products, enum hl_dtype dtype);

#endif
