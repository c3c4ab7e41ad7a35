/* Who fills the table of maths, and in which order.
 * The reference fills every entry; then each instruction set that the processor has overwrites what
 * it does better. A filler reads k->dtype to know T, writes entries and nothing else. Fillers of an
 * instruction set are themselves compiled for it: they may be called only on a processor that has
 * it. */
#ifndef HALLEY_KERNELS_TABLE_H
#define HALLEY_KERNELS_TABLE_H

#include "halley/kernels.h"

void hl_rows_fill_ref(struct hl_kernels *k);    /* norms, elementwise, embedding, loss */
void hl_updates_fill_ref(struct hl_kernels *k); /* optimizers' rules, casts, sums */
void hl_attention_fill_ref(struct hl_kernels *k);

#if defined(__x86_64__)
void hl_rows_fill_avx2(struct hl_kernels *k);
void hl_rows_fill_avx512(struct hl_kernels *k);
void hl_updates_fill_avx2(struct hl_kernels *k);
void hl_updates_fill_avx512(struct hl_kernels *k);
void hl_attention_fill_avx2(struct hl_kernels *k);
void hl_attention_fill_avx512(struct hl_kernels *k);
#endif

#endif
