/* Products through a CBLAS, for systems without oneDNN. The only file that includes its header. */
#include <limits.h>

#include <cblas.h>

#include "kernels/products.h"

struct hl_library {
    struct hl_mem *mem;
};

enum hl_status hl_library_new(struct hl_mem *mem, struct hl_library **out, struct hl_diag *diag) {
    struct hl_library *library = hl_alloc(mem, 1, sizeof *library);
    if (!library) return hl_fail_memory(diag, sizeof *library, "product library");
    library->mem = mem;
    *out = library;
    return HL_OK;
}

void hl_library_free(struct hl_library *library) {
    if (library) hl_free(library->mem, library);
}

static bool fits(int64_t x) { return x <= INT_MAX; }

enum hl_status hl_library_f32(struct hl_library *library, const struct hl_product *p, struct hl_diag *diag) {
    (void)library;
    if (!fits(p->M) || !fits(p->N) || !fits(p->K) || !fits(p->lda) || !fits(p->ldb) || !fits(p->ldc))
        return hl_fail(diag, HL_E_UNSUPPORTED, "CBLAS: a product of %lld x %lld x %lld is too large for its 32-bit sizes",
                       (long long)p->M, (long long)p->N, (long long)p->K);
    cblas_sgemm(CblasRowMajor, p->ta ? CblasTrans : CblasNoTrans, p->tb ? CblasTrans : CblasNoTrans, (int)p->M, (int)p->N,
                (int)p->K, 1.0F, p->A, (int)p->lda, p->B, (int)p->ldb, p->add ? 1.0F : 0.0F, p->C, (int)p->ldc);
    return HL_OK;
}

const char *hl_library_name(void) { return "CBLAS"; }
