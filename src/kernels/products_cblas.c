/* Products through a CBLAS, for systems without oneDNN; bf16 is widened to f32 and results are
 * narrowed. The only file that includes its header. A CBLAS with threads of its own (Debian's
 * libopenblas0-pthread) fights with our team for the cores: prefer the OpenMP variant
 * (libopenblas0-openmp). */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include <cblas.h>

#include "kernels/products.h"

struct hl_library {
    struct hl_mem *mem;
    struct hl_scratch a, b, c; /* bf16 operands as f32 */
};

enum hl_status hl_library_new(struct hl_mem *mem, struct hl_library **out, struct hl_diag *diag) {
    struct hl_library *library = hl_alloc(mem, 1, sizeof *library);
    if (!library) return hl_fail_memory(diag, sizeof *library, "product library");
    library->mem = mem;
    *out = library;
    return HL_OK;
}

void hl_library_free(struct hl_library *library) {
    if (!library) return;
    hl_free(library->mem, library->a.data);
    hl_free(library->mem, library->b.data);
    hl_free(library->mem, library->c.data);
    hl_free(library->mem, library);
}

static bool fits(int64_t x) { return x <= INT_MAX; }

static enum hl_status run_f32(const struct hl_product *p, struct hl_diag *diag) {
    if (!fits(p->M) || !fits(p->N) || !fits(p->K) || !fits(p->lda) || !fits(p->ldb) ||
        !fits(p->ldc))
        return hl_fail(diag, HL_E_UNSUPPORTED,
                       "CBLAS: a product of %lld x %lld x %lld is too large for its 32-bit sizes; "
                       "build with oneDNN",
                       (long long)p->M, (long long)p->N, (long long)p->K);
    cblas_sgemm(CblasRowMajor, p->ta ? CblasTrans : CblasNoTrans, p->tb ? CblasTrans : CblasNoTrans,
                (int)p->M, (int)p->N, (int)p->K, 1.0F, p->A, (int)p->lda, p->B, (int)p->ldb,
                p->add ? 1.0F : 0.0F, p->C, (int)p->ldc);
    return HL_OK;
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

static enum hl_status run_bf16(struct hl_library *library, const struct hl_product *p,
                               struct hl_diag *diag) {
    struct hl_product q = *p;
    float *a = hl_scratch_get(library->mem, &library->a, (size_t)(p->M * p->K) * sizeof *a);
    float *b = hl_scratch_get(library->mem, &library->b, (size_t)(p->K * p->N) * sizeof *b);
    float *c = p->out == HL_F32
                   ? p->C
                   : hl_scratch_get(library->mem, &library->c, (size_t)(p->M * p->N) * sizeof *c);
    if (!a || !b || !c)
        return hl_fail_memory(
            diag, (unsigned long long)(p->M * p->K + p->K * p->N + p->M * p->N) * sizeof *c,
            "bf16 product");
    q.lda = p->ta ? p->M : p->K;
    q.ldb = p->tb ? p->K : p->N;
    widen(p->ta ? p->K : p->M, q.lda, p->A, p->lda, a);
    widen(p->tb ? p->N : p->K, q.ldb, p->B, p->ldb, b);
    q.A = a, q.B = b, q.C = c;
    if (p->out == HL_BF16) q.ldc = p->N;
    enum hl_status status = run_f32(&q, diag);
    if (!status && p->out == HL_BF16) narrow(p->M, p->N, c, p->C, p->ldc);
    return status;
}

enum hl_status hl_library_run(struct hl_library *library, const struct hl_product *p,
                              struct hl_diag *diag) {
    return p->in == HL_F32 ? run_f32(p, diag) : run_bf16(library, p, diag);
}

bool hl_library_amx_bf16(void) { return false; }

const char *hl_library_name(void) {
#ifdef OPENBLAS_VERSION
    static _Thread_local char name[80];
    (void)snprintf(name, sizeof name, "%s", openblas_get_config());
    for (char *space = name;
         (space = strchr(space, ' '));) /* "OpenBLAS 0.3.21 NO_LAPACK ...": the first two words */
        if (strchr(name, ' ') != space) *space = 0;
        else space++;
    return name;
#else
    return "CBLAS";
#endif
}
