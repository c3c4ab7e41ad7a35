/* Row kernels with AVX-512 for T = bf16. */
#include "kernels/x86/vec_avx512.h"

#define T struct hl_bf16
#define TYPE_IS_BF16 1
#define FILL_ROWS hl_rows_fill_bf16_avx512
#include "kernels/x86/rows.h"
