/* Who computes a product. HALLEY_ISA=ref: the specification. Otherwise our own kernels or the
 * library, by what was faster when measured (bench/README-products.md); HALLEY_PRODUCTS=own or
 * library forces one. Steady calls allocate nothing: buffers only grow. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/gemm.h"
#include "kernels/products.h"

enum engine { ENGINE_REF, ENGINE_LIBRARY, ENGINE_OWN };

/* Who does what: decided once. */
struct choice {
    enum hl_isa isa;
    const struct hl_gemm_isa *own, *own_bf16; /* NULL: this instruction set has none */
    enum engine f32, bf16;
    bool short_f32_own; /* see engine_for */
};

struct hl_products {
    struct hl_mem *mem;
    struct choice choice;
    struct hl_library *library;
    struct hl_gemm gemm;
};

void *hl_scratch_get(struct hl_mem *mem, struct hl_scratch *scratch, size_t bytes) {
    if (scratch->data && scratch->bytes >= bytes) return scratch->data;
    void *data = hl_alloc(mem, bytes, 1);
    if (!data) return NULL;
    hl_free(mem, scratch->data);
    *scratch = (struct hl_scratch){data, bytes};
    return data;
}

static const struct hl_gemm_isa *gemm_of(enum hl_isa isa, enum hl_dtype in) {
#if defined(__x86_64__)
    if (isa >= HL_ISA_AVX512BF16 && in == HL_BF16) return &hl_gemm_avx512bf16;
    if (isa >= HL_ISA_AVX512) return &hl_gemm_avx512;
    if (isa >= HL_ISA_AVX2) return &hl_gemm_avx2;
#endif
    (void)isa, (void)in;
    return NULL;
}

/* Without bf16 instructions the library widens in a pass of its own or emulates; our packing widens
 * on the way. With those of AVX-512 ours is a little faster; AMX is the library's alone. */
static struct choice by_measurement(enum hl_isa isa) {
    struct choice choice = {.isa = isa,
                            .own = gemm_of(isa, HL_F32),
                            .own_bf16 = gemm_of(isa, HL_BF16),
                            .f32 = ENGINE_LIBRARY,
                            .bf16 = ENGINE_LIBRARY,
                            .short_f32_own = isa >= HL_ISA_AVX512};
    bool amx = isa >= HL_ISA_AVX512BF16 && hl_library_amx_bf16();
    if (choice.own && !amx) choice.bf16 = ENGINE_OWN;
    if (isa == HL_ISA_REF) choice.f32 = choice.bf16 = ENGINE_REF;
    return choice;
}

static enum hl_status choose(struct choice *out, struct hl_diag *diag) {
    const struct hl_kernels *table;
    const char *wanted = getenv("HALLEY_PRODUCTS");
    enum hl_status status = hl_kernels_get(HL_F32, &table, diag);
    if (status) return status;
    struct choice choice = by_measurement(table->isa);
    if (wanted && *wanted) {
        bool own = !strcmp(wanted, "own");
        if (!own && strcmp(wanted, "library") != 0)
            return hl_fail(
                diag, HL_E_USER,
                "HALLEY_PRODUCTS: there is no engine \"%s\"; use own or library, or leave it out",
                wanted);
        choice.f32 = choice.bf16 = own ? choice.own ? ENGINE_OWN : ENGINE_REF : ENGINE_LIBRARY;
        choice.short_f32_own = false;
    }
    *out = choice;
    return HL_OK;
}

enum hl_status hl_products_new(struct hl_mem *mem, struct hl_products **out, struct hl_diag *diag) {
    struct choice choice = {.f32 = ENGINE_REF};
    struct hl_library *library = NULL;
    enum hl_status status = choose(&choice, diag);
    if (!status) status = hl_library_new(mem, &library, diag);
    if (status) return status;
    struct hl_products *products = hl_alloc(mem, 1, sizeof *products);
    if (!products) {
        hl_library_free(library);
        return hl_fail_memory(diag, sizeof *products, "products");
    }
    *products = (struct hl_products){mem, choice, library, {mem, choice.own, choice.own_bf16, {0}}};
    *out = products;
    return HL_OK;
}

void hl_products_free(struct hl_products *products) {
    if (!products) return;
    hl_library_free(products->library);
    hl_gemm_free(&products->gemm);
    hl_free(products->mem, products);
}

/* K is 0: sums over nothing. */
static void empty_sum(const struct hl_product *p) {
    size_t size = hl_dtype_bytes(p->out);
    if (p->add) return;
    for (int64_t m = 0; m < p->M; m++)
        memset((char *)p->C + (size_t)(m * p->ldc) * size, 0, (size_t)p->N * size);
}

/* Of f32, ours is faster than oneDNN where packing B would cost more than the product, and where K
 * is one short block. */
static enum engine engine_for(const struct choice *choice, const struct hl_product *p) {
    if (p->in == HL_BF16) return choice->bf16;
    bool ours = p->tb && !p->ta && (p->M <= HL_GEMM_FEW_ROWS || p->K <= 128);
    return ours && choice->short_f32_own ? ENGINE_OWN : choice->f32;
}

enum hl_status hl_product_run(struct hl_products *products, const struct hl_product *p,
                              struct hl_diag *diag) {
    if (!p->M || !p->N) return HL_OK;
    if (!p->K) {
        empty_sum(p);
        return HL_OK;
    }
    switch (engine_for(&products->choice, p)) {
    case ENGINE_OWN: return hl_gemm_run(&products->gemm, p, diag);
    case ENGINE_LIBRARY: return hl_library_run(products->library, p, diag);
    case ENGINE_REF: break;
    }
    hl_product_ref(p);
    return HL_OK;
}

const char *hl_products_describe(void) {
    static _Thread_local char text[120];
    struct choice choice = {.f32 = ENGINE_REF};
    if (choose(&choice, NULL)) return "nothing: HALLEY_ISA or HALLEY_PRODUCTS is wrong";
    if (choice.f32 == ENGINE_REF) return "plain loops";
    const char *own = hl_isa_name(choice.isa), *library = hl_library_name();
    if (choice.f32 == ENGINE_OWN) (void)snprintf(text, sizeof text, "own %s kernels", own);
    else if (choice.bf16 == ENGINE_OWN)
        (void)snprintf(text, sizeof text, "%s, bf16 by own %s kernels", library, own);
    else (void)snprintf(text, sizeof text, "%s", library);
    return text;
}
