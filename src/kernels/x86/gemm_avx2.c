/* The product's packing and tile for AVX2 with FMA. */
#define GEMM_ISA hl_gemm_avx2
#include "kernels/x86/gemm_body.h"
