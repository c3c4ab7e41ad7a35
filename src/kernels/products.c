/* Who computes a product. HALLEY_ISA=ref: the specification. Otherwise our own kernels or the library, by what was faster when
 * measured (bench/README-products.md); HALLEY_PRODUCTS=own or library forces one.
 * Steady calls allocate nothing: buffers only grow. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/gemm.h"
#include "kernels/products.h"

enum engine { ENGINE_REF, ENGINE_LIBRARY, ENGINE_OWN, ENGINE_BY_SHAPE };

struct hl_products {
    struct hl_mem *mem;
    enum engine engine;
    struct hl_library *library;
    struct hl_gemm gemm;
    struct hl_scratch a, b, c; /* bf16 operands widened to f32 for the library */
};

void *hl_scratch_get(struct hl_mem *mem, struct hl_scratch *scratch, size_t bytes) {
    if (scratch->bytes >= bytes) return scratch->data;
    void *data = hl_alloc(mem, bytes, 1);
    if (!data) return NULL;
    hl_free(mem, scratch->data);
    *scratch = (struct hl_scratch){data, bytes};
    return data;
}

/* NULL: this instruction set has none. */
static const struct hl_gemm_isa *gemm_of(enum hl_isa isa) {
#if defined(__x86_64__)
    if (isa == HL_ISA_AVX512) return &hl_gemm_avx512;
    if (isa == HL_ISA_AVX2) return &hl_gemm_avx2;
#endif
    (void)isa;
    return NULL;
}

static enum hl_status choose_engine(struct hl_products *products, struct hl_diag *diag) {
    const struct hl_kernels *table;
    const char *wanted = getenv("HALLEY_PRODUCTS");
    enum hl_status status = hl_kernels_get(HL_F32, &table, diag);
    if (status) return status;
    products->gemm.isa = gemm_of(table->isa);
    products->engine = table->isa == HL_ISA_REF ? ENGINE_REF : products->gemm.isa ? ENGINE_BY_SHAPE : ENGINE_LIBRARY;
    if (!wanted || !*wanted) return HL_OK;
    if (!strcmp(wanted, "library")) products->engine = ENGINE_LIBRARY;
    else if (!strcmp(wanted, "own")) products->engine = products->gemm.isa ? ENGINE_OWN : ENGINE_REF;
    else
        return hl_fail(diag, HL_E_USER, "HALLEY_PRODUCTS: there is no engine \"%s\"; use own or library, or leave it out", wanted);
    return HL_OK;
}

enum hl_status hl_products_new(struct hl_mem *mem, struct hl_products **out, struct hl_diag *diag) {
    struct hl_products *products = hl_alloc(mem, 1, sizeof *products);
    if (!products) return hl_fail_memory(diag, sizeof *products, "products");
    products->mem = products->gemm.mem = mem;
    enum hl_status status = choose_engine(products, diag);
    if (!status) status = hl_library_new(mem, &products->library, diag);
    if (status) {
        hl_free(mem, products);
        return status;
    }
    *out = products;
    return HL_OK;
}

void hl_products_free(struct hl_products *products) {
    if (!products) return;
    hl_library_free(products->library);
    hl_gemm_free(&products->gemm);
    hl_free(products->mem, products->a.data);
    hl_free(products->mem, products->b.data);
    hl_free(products->mem, products->c.data);
    hl_free(products->mem, products);
}

/* K 0, or nothing to write. */
static void empty_sum(const struct hl_product *p) {
    if (p->add) return;
    for (int64_t m = 0; m < p->M; m++)
        memset((char *)p->C + (size_t)(m * p->ldc) * hl_dtype_bytes(p->out), 0, (size_t)p->N * hl_dtype_bytes(p->out));
}

static void widen(int64_t rows, int64_t columns, const struct hl_bf16 *x, int64_t ld, float *y) {
#pragma omp parallel for schedule(static) if (rows * columns > 100000)
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++) y[r * columns + c] = hl_bf16_to_f32(x[r * ld + c]);
}

static void narrow(int64_t rows, int64_t columns, const float *x, struct hl_bf16 *y, int64_t ld) {
#pragma omp parallel for schedule(static) if (rows * columns > 100000)
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++) y[r * ld + c] = hl_bf16_from_f32(x[r * columns + c]);
}

static enum hl_status run_widened(struct hl_products *products, const struct hl_product *p, struct hl_diag *diag) {
    struct hl_product q = *p;
    float *a = hl_scratch_get(products->mem, &products->a, (size_t)(p->M * p->K) * 4);
    float *b = hl_scratch_get(products->mem, &products->b, (size_t)(p->K * p->N) * 4);
    float *c = p->out == HL_F32 ? p->C : hl_scratch_get(products->mem, &products->c, (size_t)(p->M * p->N) * 4);
    if (!a || !b || !c) return hl_fail_memory(diag, (unsigned long long)(p->M * p->K + p->K * p->N + p->M * p->N) * 4, "bf16 product");
    q.lda = p->ta ? p->M : p->K;
    q.ldb = p->tb ? p->K : p->N;
    widen(p->ta ? p->K : p->M, q.lda, p->A, p->lda, a);
    widen(p->tb ? p->N : p->K, q.ldb, p->B, p->ldb, b);
    q.in = q.out = HL_F32;
    q.A = a, q.B = b, q.C = c;
    if (p->out == HL_BF16) q.ldc = p->N;
    enum hl_status status = hl_library_f32(products->library, &q, diag);
    if (!status && p->out == HL_BF16) narrow(p->M, p->N, c, p->C, p->ldc);
    return status;
}

/* Widening bf16 for the library costs a pass over both operands; our own packing does it on the way. */
static enum engine by_shape(const struct hl_product *p) { return p->in == HL_F32 ? ENGINE_LIBRARY : ENGINE_OWN; }

enum hl_status hl_product_run(struct hl_products *products, const struct hl_product *p, struct hl_diag *diag) {
    if (!p->M || !p->N) return HL_OK;
    if (!p->K) {
        empty_sum(p);
        return HL_OK;
    }
    enum engine engine = products->engine == ENGINE_BY_SHAPE ? by_shape(p) : products->engine;
    switch (engine) {
    case ENGINE_REF: hl_product_ref(p); return HL_OK;
    case ENGINE_OWN: return hl_gemm_run(&products->gemm, p, diag);
    case ENGINE_LIBRARY:
    case ENGINE_BY_SHAPE: break;
    }
    return p->in == HL_F32 ? hl_library_f32(products->library, p, diag) : run_widened(products, p, diag);
}

const char *hl_products_describe(void) { return hl_library_name(); }
