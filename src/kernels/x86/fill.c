/* Which instance of the row kernels serves which compute type. */
#include "kernels/x86/fill.h"

#include "kernels/table.h"

void hl_rows_fill_avx2(struct hl_kernels *k) {
    if (k->dtype == HL_F32) hl_rows_fill_f32_avx2(k);
    else hl_rows_fill_bf16_avx2(k);
}

void hl_rows_fill_avx512(struct hl_kernels *k) {
    if (k->dtype == HL_F32) hl_rows_fill_f32_avx512(k);
    else hl_rows_fill_bf16_avx512(k);
}
