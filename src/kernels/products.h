/* The inner seams of matrix products: the plain specification, a library (oneDNN or a CBLAS, chosen
 * when Halley is built) and our own kernels (gemm.h). products.c decides who computes what; only
 * these files include this one. */
#ifndef HALLEY_KERNELS_PRODUCTS_H
#define HALLEY_KERNELS_PRODUCTS_H

#include "halley/kernels.h"

/* A block of bytes that only grows. Owner: one struct hl_products. */
struct hl_scratch {
    void *data;
    size_t bytes;
};
/* At least the wanted bytes, 64-byte aligned, contents undefined; NULL when memory is short (the
 * old block stays). */
void *hl_scratch_get(struct hl_mem *mem, struct hl_scratch *scratch, size_t bytes) HL_MUST_CHECK;

/* The specification: three loops, sums in f32 in ascending k. */
void hl_product_ref(const struct hl_product *p);

/* The library of this build. One per hl_products; M, N and K are positive in every call. */
struct hl_library;
enum hl_status hl_library_new(struct hl_mem *mem, struct hl_library **out,
                              struct hl_diag *diag) HL_MUST_CHECK;
void hl_library_free(struct hl_library *library);
enum hl_status hl_library_run(struct hl_library *library, const struct hl_product *p,
                              struct hl_diag *diag) HL_MUST_CHECK;
/* The library multiplies bf16 with this processor's AMX tiles. */
bool hl_library_amx_bf16(void);
/* "oneDNN 2.6.3", of what is loaded, not of the headers. Valid until the thread's next call. */
const char *hl_library_name(void);

#endif
