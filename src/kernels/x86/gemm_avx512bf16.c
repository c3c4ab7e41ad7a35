/* The product's packing and tile for AVX-512 with BF16: a word of a panel is a pair of bf16. */
#define GEMM_ISA hl_gemm_avx512bf16
#define GEMM_PAIRS
#include "kernels/x86/gemm_body.h"
