/* Attention for avx512. */
#define FILL hl_attention_fill_avx512
#include "kernels/x86/attention_all.h"
