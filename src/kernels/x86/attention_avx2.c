/* Attention for avx2. */
#define FILL hl_attention_fill_avx2
#include "kernels/x86/attention_all.h"
