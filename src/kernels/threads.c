/* See threads.h. */
#include "kernels/threads.h"

#include <omp.h>

void hl_threads_set(int n) {
    omp_set_dynamic(0);
    omp_set_num_threads(n);
}

int hl_threads_get(void) { return omp_get_max_threads(); }
