/* Products straight through the library, as the yardstick of a whole step: oneDNN's sgemm in f32,
 * its matmul primitive in bf16 (2.x and 3.x interface), or a CBLAS where Halley was built with one.
 * Nothing of Halley's own kernels is used. */
#include <stdio.h>
#include <string.h>

#include "bench.h"

#ifdef BENCH_ONEDNN
#include <dnnl.h>

#define V3 (DNNL_VERSION_MAJOR >= 3)

/* One shape's matmul with the memory objects that its operands are put into. */
struct prepared {
    dnnl_primitive_t primitive;
    dnnl_memory_t source, weights, target;
};

struct bench_library {
    struct hl_mem *mem;
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    struct prepared *slots;
    int n;
};

static enum hl_status check(dnnl_status_t status, const char *call, struct hl_diag *diag) {
    if (status == dnnl_success) return HL_OK;
    return hl_fail(diag, HL_E_IO, "oneDNN: %s failed with status %d%s", call, (int)status,
                   status == dnnl_unimplemented ? " (this processor or version has no bf16 matmul)"
                                                : "");
}
#define TRY(call)                                                                                  \
    do {                                                                                           \
        enum hl_status status_ = check(call, #call, diag);                                         \
        if (status_) return status_;                                                               \
    } while (0)

enum hl_status bench_library_new(struct hl_mem *mem, int most_products, struct bench_library **out,
                                 struct hl_diag *diag) {
    struct bench_library *s = hl_alloc(mem, 1, sizeof *s);
    if (!s) return hl_fail_memory(diag, sizeof *s, "product library");
    s->mem = mem;
    s->n = most_products;
    s->slots = hl_alloc(mem, (size_t)most_products, sizeof *s->slots);
    enum hl_status status =
        s->slots ? HL_OK : hl_fail_memory(diag, (unsigned)most_products, "product library");
    if (!status)
        status = check(dnnl_engine_create(&s->engine, dnnl_cpu, 0), "dnnl_engine_create", diag);
    if (!status)
        status = check(dnnl_stream_create(&s->stream, s->engine, dnnl_stream_default_flags),
                       "dnnl_stream_create", diag);
    if (status) bench_library_free(s);
    else *out = s;
    return status;
}

void bench_library_free(struct bench_library *s) {
    if (!s) return;
    for (int i = 0; i < s->n && s->slots; i++) {
        if (!s->slots[i].primitive) continue;
        (void)dnnl_primitive_destroy(s->slots[i].primitive);
        (void)dnnl_memory_destroy(s->slots[i].source);
        (void)dnnl_memory_destroy(s->slots[i].weights);
        (void)dnnl_memory_destroy(s->slots[i].target);
    }
    if (s->stream) (void)dnnl_stream_destroy(s->stream);
    if (s->engine) (void)dnnl_engine_destroy(s->engine);
    hl_free(s->mem, s->slots);
    hl_free(s->mem, s);
}

struct matrix { /* rows x columns with strides in elements */
    dnnl_dims_t size, stride;
    dnnl_data_type_t type;
};

static dnnl_data_type_t type_of(enum hl_dtype dtype) {
    return dtype == HL_F32 ? dnnl_f32 : dnnl_bf16;
}

static struct matrix stored(int64_t rows, int64_t columns, int64_t ld, bool transposed,
                            enum hl_dtype dtype) {
    return (struct matrix){
        {rows, columns}, {transposed ? 1 : ld, transposed ? ld : 1}, type_of(dtype)};
}

#if V3
static enum hl_status make_primitive(struct bench_library *s, const struct matrix m[3], bool add,
                                     struct prepared *out, struct hl_diag *diag) {
    dnnl_memory_desc_t desc[3];
    dnnl_memory_t *memory[3] = {&out->source, &out->weights, &out->target};
    dnnl_primitive_attr_t attr;
    dnnl_post_ops_t ops;
    dnnl_primitive_desc_t primitive;
    for (int i = 0; i < 3; i++) {
        TRY(dnnl_memory_desc_create_with_strides(&desc[i], 2, m[i].size, m[i].type, m[i].stride));
        TRY(dnnl_memory_create(memory[i], desc[i], s->engine, DNNL_MEMORY_NONE));
    }
    TRY(dnnl_primitive_attr_create(&attr));
    TRY(dnnl_post_ops_create(&ops));
    if (add) TRY(dnnl_post_ops_append_sum(ops, 1.0F, 0, dnnl_data_type_undef));
    TRY(dnnl_primitive_attr_set_post_ops(attr, ops));
    TRY(dnnl_matmul_primitive_desc_create(&primitive, s->engine, desc[0], desc[1], NULL, desc[2],
                                          attr));
    TRY(dnnl_primitive_create(&out->primitive, primitive));
    TRY(dnnl_primitive_desc_destroy(primitive));
    TRY(dnnl_post_ops_destroy(ops));
    TRY(dnnl_primitive_attr_destroy(attr));
    for (int i = 0; i < 3; i++) TRY(dnnl_memory_desc_destroy(desc[i]));
    return HL_OK;
}
#else
static enum hl_status make_primitive(struct bench_library *s, const struct matrix m[3], bool add,
                                     struct prepared *out, struct hl_diag *diag) {
    dnnl_memory_desc_t desc[3];
    dnnl_memory_t *memory[3] = {&out->source, &out->weights, &out->target};
    dnnl_primitive_attr_t attr;
    dnnl_post_ops_t ops;
    dnnl_matmul_desc_t matmul;
    dnnl_primitive_desc_t primitive;
    for (int i = 0; i < 3; i++) {
        TRY(dnnl_memory_desc_init_by_strides(&desc[i], 2, m[i].size, m[i].type, m[i].stride));
        TRY(dnnl_memory_create(memory[i], &desc[i], s->engine, DNNL_MEMORY_NONE));
    }
    TRY(dnnl_primitive_attr_create(&attr));
    TRY(dnnl_post_ops_create(&ops));
    if (add) TRY(dnnl_post_ops_append_sum(ops, 1.0F));
    TRY(dnnl_primitive_attr_set_post_ops(attr, ops));
    TRY(dnnl_matmul_desc_init(&matmul, &desc[0], &desc[1], NULL, &desc[2]));
    TRY(dnnl_primitive_desc_create(&primitive, &matmul, attr, s->engine, NULL));
    TRY(dnnl_primitive_create(&out->primitive, primitive));
    TRY(dnnl_primitive_desc_destroy(primitive));
    TRY(dnnl_post_ops_destroy(ops));
    TRY(dnnl_primitive_attr_destroy(attr));
    return HL_OK;
}
#endif

static enum hl_status run_matmul(struct bench_library *s, int slot, const struct hl_product *p,
                                 struct hl_diag *diag) {
    struct prepared *m = &s->slots[slot];
    if (!m->primitive) {
        struct matrix matrices[3] = {stored(p->M, p->K, p->lda, p->ta, p->in),
                                     stored(p->K, p->N, p->ldb, p->tb, p->in),
                                     stored(p->M, p->N, p->ldc, false, p->out)};
        enum hl_status status = make_primitive(s, matrices, p->add, m, diag);
        if (status) return status;
    }
    TRY(dnnl_memory_set_data_handle(m->source, (void *)(uintptr_t)p->A));
    TRY(dnnl_memory_set_data_handle(m->weights, (void *)(uintptr_t)p->B));
    TRY(dnnl_memory_set_data_handle(m->target, p->C));
    const dnnl_exec_arg_t args[] = {
        {DNNL_ARG_SRC, m->source}, {DNNL_ARG_WEIGHTS, m->weights}, {DNNL_ARG_DST, m->target}};
    TRY(dnnl_primitive_execute(m->primitive, s->stream, 3, args));
    TRY(dnnl_stream_wait(s->stream));
    return HL_OK;
}

enum hl_status bench_library_run(struct bench_library *s, int slot, const struct hl_product *p,
                                 struct hl_diag *diag) {
    if (p->in == HL_BF16) return run_matmul(s, slot, p, diag);
    return check(dnnl_sgemm(p->ta ? 'T' : 'N', p->tb ? 'T' : 'N', p->M, p->N, p->K, 1.0F, p->A,
                            p->lda, p->B, p->ldb, p->add ? 1.0F : 0.0F, p->C, p->ldc),
                 "dnnl_sgemm", diag);
}

#else /* a CBLAS: through Halley's glue, which only forwards */

#include "kernels/products.h"

struct bench_library {
    struct hl_mem *mem;
    struct hl_library *library;
};

enum hl_status bench_library_new(struct hl_mem *mem, int most_products, struct bench_library **out,
                                 struct hl_diag *diag) {
    (void)most_products;
    struct bench_library *s = hl_alloc(mem, 1, sizeof *s);
    if (!s) return hl_fail_memory(diag, sizeof *s, "product library");
    s->mem = mem;
    enum hl_status status = hl_library_new(mem, &s->library, diag);
    if (status) hl_free(mem, s);
    else *out = s;
    return status;
}

void bench_library_free(struct bench_library *s) {
    if (!s) return;
    hl_library_free(s->library);
    hl_free(s->mem, s);
}

enum hl_status bench_library_run(struct bench_library *s, int slot, const struct hl_product *p,
                                 struct hl_diag *diag) {
    (void)slot;
    if (p->in == HL_F32) return hl_library_f32(s->library, p, diag);
    return hl_fail(
        diag, HL_E_UNSUPPORTED,
        "this build's product library is a CBLAS, which has no bf16 products to compare with");
}

#endif
