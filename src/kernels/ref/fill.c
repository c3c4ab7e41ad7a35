/* Which instance of the reference serves which compute type. */
#include "kernels/ref/fill.h"

#include "kernels/table.h"

void hl_rows_fill_ref(struct hl_kernels *k) {
    if (k->dtype == HL_F32) hl_rows_fill_ref_f32(k);
    else hl_rows_fill_ref_bf16(k);
}
