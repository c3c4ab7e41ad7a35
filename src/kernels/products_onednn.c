/* Products through oneDNN. The only file that includes its headers; compiles against the 2.x and
 * the 3.x API. f32 goes through dnnl_sgemm, which is row-major and keeps its own kernels. bf16 goes
 * through matmul primitives, which cost milliseconds to make: they are kept by shape, the least
 * recently made one gives way. */
#include <stdio.h>
#include <string.h>

#include <dnnl.h>

#include "kernels/products.h"

enum { MOST_PRIMITIVES = 64 };

/* Everything of a product that a primitive depends on. */
struct shape {
    int64_t M, N, K, lda, ldb, ldc;
    bool ta, tb, add;
    enum hl_dtype out;
};

struct matmul {
    struct shape shape;
    dnnl_primitive_t primitive;
    dnnl_memory_t a, b, c;
};

struct hl_library {
    struct hl_mem *mem;
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    struct matmul
        *matmuls; /* [MOST_PRIMITIVES], the first n are made; taken when the first is made */
    int n, next;
};

enum hl_status hl_library_new(struct hl_mem *mem, struct hl_library **out, struct hl_diag *diag) {
    struct hl_library *library = hl_alloc(mem, 1, sizeof *library);
    if (!library) return hl_fail_memory(diag, sizeof *library, "product library");
    library->mem = mem;
    *out = library;
    return HL_OK;
}

static void matmul_free(struct matmul *m) {
    if (m->primitive) dnnl_primitive_destroy(m->primitive);
    if (m->a) dnnl_memory_destroy(m->a);
    if (m->b) dnnl_memory_destroy(m->b);
    if (m->c) dnnl_memory_destroy(m->c);
    *m = (struct matmul){0};
}

void hl_library_free(struct hl_library *library) {
    if (!library) return;
    for (int i = 0; i < library->n; i++) matmul_free(&library->matmuls[i]);
    hl_free(library->mem, library->matmuls);
    if (library->stream) dnnl_stream_destroy(library->stream);
    if (library->engine) dnnl_engine_destroy(library->engine);
    hl_free(library->mem, library);
}

static enum hl_status failed(struct hl_diag *diag, const char *call, dnnl_status_t status,
                             const struct hl_product *p) {
    if (status == dnnl_out_of_memory)
        return hl_fail(diag, HL_E_MEMORY,
                       "oneDNN ran out of memory (%s) in a product of %lld x %lld x %lld", call,
                       (long long)p->M, (long long)p->N, (long long)p->K);
    return hl_fail(diag, HL_E_IO,
                   "oneDNN: %s failed with status %d in a product of %lld x %lld x %lld; "
                   "HALLEY_PRODUCTS=own avoids it",
                   call, (int)status, (long long)p->M, (long long)p->N, (long long)p->K);
}

static enum hl_status run_f32(const struct hl_product *p, struct hl_diag *diag) {
    dnnl_status_t status =
        dnnl_sgemm(p->ta ? 'T' : 'N', p->tb ? 'T' : 'N', p->M, p->N, p->K, 1.0F, p->A, p->lda, p->B,
                   p->ldb, p->add ? 1.0F : 0.0F, p->C, p->ldc);
    return status == dnnl_success ? HL_OK : failed(diag, "dnnl_sgemm", status, p);
}

/* ---- matmul primitives, in both APIs ---- */

#if DNNL_VERSION_MAJOR >= 3

typedef dnnl_memory_desc_t matrix;

static dnnl_status_t matrix_init(matrix *m, int64_t rows, int64_t columns, int64_t row_step,
                                 int64_t column_step, dnnl_data_type_t t) {
    const dnnl_dims_t dims = {rows, columns}, steps = {row_step, column_step};
    return dnnl_memory_desc_create_with_strides(m, 2, dims, t, steps);
}
static void matrix_free(matrix *m) {
    if (*m) dnnl_memory_desc_destroy(*m);
}
static dnnl_status_t make_desc(dnnl_primitive_desc_t *out, dnnl_engine_t engine, const matrix m[3],
                               dnnl_primitive_attr_t attr) {
    return dnnl_matmul_primitive_desc_create(out, engine, m[0], m[1], NULL, m[2], attr);
}
static dnnl_status_t make_memory(dnnl_memory_t *out, const matrix *m, dnnl_engine_t engine) {
    return dnnl_memory_create(out, *m, engine, DNNL_MEMORY_NONE);
}
static dnnl_status_t append_sum(dnnl_post_ops_t ops) {
    return dnnl_post_ops_append_sum(ops, 1, 0, dnnl_data_type_undef);
}

#else

typedef dnnl_memory_desc_t matrix;

static dnnl_status_t matrix_init(matrix *m, int64_t rows, int64_t columns, int64_t row_step,
                                 int64_t column_step, dnnl_data_type_t t) {
    const dnnl_dims_t dims = {rows, columns}, steps = {row_step, column_step};
    return dnnl_memory_desc_init_by_strides(m, 2, dims, t, steps);
}
static void matrix_free(matrix *m) { (void)m; }
static dnnl_status_t make_desc(dnnl_primitive_desc_t *out, dnnl_engine_t engine, const matrix m[3],
                               dnnl_primitive_attr_t attr) {
    dnnl_matmul_desc_t desc;
    dnnl_status_t status = dnnl_matmul_desc_init(&desc, &m[0], &m[1], NULL, &m[2]);
    return status == dnnl_success ? dnnl_primitive_desc_create(out, &desc, attr, engine, NULL)
                                  : status;
}
static dnnl_status_t make_memory(dnnl_memory_t *out, const matrix *m, dnnl_engine_t engine) {
    return dnnl_memory_create(out, m, engine, DNNL_MEMORY_NONE);
}
static dnnl_status_t append_sum(dnnl_post_ops_t ops) { return dnnl_post_ops_append_sum(ops, 1); }

#endif

static dnnl_status_t matrices_init(matrix m[3], const struct shape *s) {
    dnnl_status_t status =
        matrix_init(&m[0], s->M, s->K, s->ta ? 1 : s->lda, s->ta ? s->lda : 1, dnnl_bf16);
    if (!status)
        status = matrix_init(&m[1], s->K, s->N, s->tb ? 1 : s->ldb, s->tb ? s->ldb : 1, dnnl_bf16);
    if (!status)
        status = matrix_init(&m[2], s->M, s->N, s->ldc, 1, s->out == HL_F32 ? dnnl_f32 : dnnl_bf16);
    return status;
}

/* Attributes that add to what is in C. */
static dnnl_status_t adding(dnnl_primitive_attr_t *out) {
    dnnl_post_ops_t ops = NULL;
    dnnl_status_t status = dnnl_primitive_attr_create(out);
    if (!status) status = dnnl_post_ops_create(&ops);
    if (!status) status = append_sum(ops);
    if (!status) status = dnnl_primitive_attr_set_post_ops(*out, ops);
    if (ops) dnnl_post_ops_destroy(ops);
    return status;
}

static dnnl_status_t matmul_make(dnnl_engine_t engine, const struct shape *s, struct matmul *out) {
    matrix m[3] = {0};
    struct matmul made = {.shape = *s};
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t desc = NULL;
    dnnl_status_t status = matrices_init(m, s);
    if (!status && s->add) status = adding(&attr);
    if (!status) status = make_desc(&desc, engine, m, attr);
    if (!status) status = dnnl_primitive_create(&made.primitive, desc);
    if (!status) status = make_memory(&made.a, &m[0], engine);
    if (!status) status = make_memory(&made.b, &m[1], engine);
    if (!status) status = make_memory(&made.c, &m[2], engine);
    if (desc) dnnl_primitive_desc_destroy(desc);
    if (attr) dnnl_primitive_attr_destroy(attr);
    for (int i = 0; i < 3; i++) matrix_free(&m[i]);
    if (status) matmul_free(&made);
    else *out = made;
    return status;
}

/* ---- the kept primitives ---- */

static bool same(const struct shape *x, const struct shape *y) {
    return x->M == y->M && x->N == y->N && x->K == y->K && x->lda == y->lda && x->ldb == y->ldb &&
           x->ldc == y->ldc && x->ta == y->ta && x->tb == y->tb && x->add == y->add &&
           x->out == y->out;
}

static enum hl_status start(struct hl_library *library, const struct hl_product *p,
                            struct hl_diag *diag) {
    size_t bytes = MOST_PRIMITIVES * sizeof *library->matmuls;
    if (!library->matmuls)
        library->matmuls = hl_alloc(library->mem, MOST_PRIMITIVES, sizeof *library->matmuls);
    if (!library->matmuls) return hl_fail_memory(diag, bytes, "bf16 products");
    dnnl_status_t status = dnnl_success;
    if (!library->engine) status = dnnl_engine_create(&library->engine, dnnl_cpu, 0);
    if (!status && !library->stream)
        status = dnnl_stream_create(&library->stream, library->engine, dnnl_stream_default_flags);
    return status == dnnl_success ? HL_OK : failed(diag, "the CPU engine", status, p);
}

static enum hl_status matmul_get(struct hl_library *library, const struct hl_product *p,
                                 struct matmul **out, struct hl_diag *diag) {
    const struct shape shape = {p->M,   p->N,  p->K,  p->lda, p->ldb,
                                p->ldc, p->ta, p->tb, p->add, p->out};
    for (int i = 0; i < library->n; i++)
        if (same(&library->matmuls[i].shape, &shape)) {
            *out = &library->matmuls[i];
            return HL_OK;
        }
    enum hl_status started = start(library, p, diag);
    if (started) return started;
    struct matmul made;
    dnnl_status_t status = matmul_make(library->engine, &shape, &made);
    if (status) return failed(diag, "making a matmul", status, p);
    struct matmul *place = &library->matmuls[library->next];
    matmul_free(place);
    *place = made;
    library->next = (library->next + 1) % MOST_PRIMITIVES;
    if (library->n < MOST_PRIMITIVES) library->n++;
    *out = place;
    return HL_OK;
}

static enum hl_status run_bf16(struct hl_library *library, const struct hl_product *p,
                               struct hl_diag *diag) {
    struct matmul *m = NULL;
    enum hl_status got = matmul_get(library, p, &m, diag);
    if (got) return got;
    const dnnl_exec_arg_t args[] = {
        {DNNL_ARG_SRC, m->a}, {DNNL_ARG_WEIGHTS, m->b}, {DNNL_ARG_DST, m->c}};
    dnnl_status_t status = dnnl_memory_set_data_handle(m->a, (void *)(uintptr_t)p->A);
    if (!status) status = dnnl_memory_set_data_handle(m->b, (void *)(uintptr_t)p->B);
    if (!status) status = dnnl_memory_set_data_handle(m->c, p->C);
    if (!status) status = dnnl_primitive_execute(m->primitive, library->stream, 3, args);
    if (!status) status = dnnl_stream_wait(library->stream);
    return status == dnnl_success ? HL_OK : failed(diag, "matmul", status, p);
}

/* What oneDNN 3.7 takes for contiguous although it is not, in bf16: the one row of a transposed A,
 * which it then misreads, and the one column of C, beside which it then writes. */
static bool has_misread_vector(const struct hl_product *p) {
    return (p->M == 1 && p->ta && p->lda > 1) || (p->N == 1 && p->ldc > 1);
}

enum hl_status hl_library_run(struct hl_library *library, const struct hl_product *p,
                              struct hl_diag *diag) {
    if (p->in == HL_F32) return run_f32(p, diag);
    if (!has_misread_vector(p)) return run_bf16(library, p, diag);
    hl_product_ref(p);
    return HL_OK;
}

/* The values of dnnl_cpu_isa_t are sets of bits: a better instruction set holds the bits of those
 * it includes. */
bool hl_library_amx_bf16(void) {
    unsigned isa = (unsigned)dnnl_get_effective_cpu_isa(),
             want = (unsigned)dnnl_cpu_isa_avx512_core_amx;
    return (isa & want) == want;
}

const char *hl_library_name(void) {
    static _Thread_local char name[40];
    const dnnl_version_t *version = dnnl_version();
    (void)snprintf(name, sizeof name, "oneDNN %d.%d.%d", version->major, version->minor,
                   version->patch);
    return name;
}
