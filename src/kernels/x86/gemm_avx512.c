/* The product's packing and tile for AVX-512. */
#define GEMM_ISA hl_gemm_avx512
#include "kernels/x86/gemm_body.h"
