/* Updates, casts and sums with AVX2. */
#include "kernels/x86/vec_avx2.h"

#define FILL_UPDATES hl_updates_fill_avx2
#include "kernels/x86/updates.h"
