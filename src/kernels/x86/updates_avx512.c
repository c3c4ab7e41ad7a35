/* Updates, casts and sums with AVX-512. */
#include "kernels/x86/vec_avx512.h"

#define FILL_UPDATES hl_updates_fill_avx512
#include "kernels/x86/updates.h"
