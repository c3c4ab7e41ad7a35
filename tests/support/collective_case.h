/* What a collective must give, from a serial loop over ranks. */
#ifndef HALLEY_TESTS_COLLECTIVE_CASE_H
#define HALLEY_TESTS_COLLECTIVE_CASE_H

#include "halley/collective.h"

/* Element i of rank r before: sums of these depend on their order. */
float case_element(int64_t i, int r);
float case_sum_of(int64_t i, int n_ranks, enum hl_dtype wire);
/* What element i of rank r must be afterwards; not for all-to-all. */
float case_expected(const struct hl_collective_args *a, int64_t i, int r, int n_ranks);
/* The same where element i began as case_element(i + shift, r). */
float case_expected_from(const struct hl_collective_args *a, int64_t i, int64_t shift, int r,
                         int n_ranks);

#endif
