/* Products through oneDNN. The only file that includes its headers; compiles against the 2.x and the 3.x API.
 * f32 goes through dnnl_sgemm, which is row-major and keeps its own kernel cache. */
#include <stdio.h>

#include <dnnl.h>

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

static enum hl_status failed(struct hl_diag *diag, const char *call, dnnl_status_t status, const struct hl_product *p) {
    if (status == dnnl_out_of_memory) return hl_fail(diag, HL_E_MEMORY, "oneDNN: out of memory in %s", call);
    return hl_fail(diag, HL_E_IO, "oneDNN: %s failed with status %d for a product of %lld x %lld x %lld", call, (int)status,
                   (long long)p->M, (long long)p->N, (long long)p->K);
}

enum hl_status hl_library_f32(struct hl_library *library, const struct hl_product *p, struct hl_diag *diag) {
    (void)library;
    dnnl_status_t status = dnnl_sgemm(p->ta ? 'T' : 'N', p->tb ? 'T' : 'N', p->M, p->N, p->K, 1.0F, p->A, p->lda, p->B, p->ldb,
                                      p->add ? 1.0F : 0.0F, p->C, p->ldc);
    return status == dnnl_success ? HL_OK : failed(diag, "dnnl_sgemm", status, p);
}

const char *hl_library_name(void) {
    static _Thread_local char name[40];
    const dnnl_version_t *version = dnnl_version();
    (void)snprintf(name, sizeof name, "oneDNN %d.%d.%d", version->major, version->minor, version->patch);
    return name;
}
