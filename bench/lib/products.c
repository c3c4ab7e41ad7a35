/* The matrix products of one training step: which they are, and how long they take on their own.
 *
 * Activations come from one place, since a step has them in cache from the operation before;
 * weights and gradients walk through arrays of RING_BYTES, since a step meets each of them once. */
#include <stdio.h>
#include <string.h>

#include "bench.h"

static const int64_t RING_BYTES = 256 << 20;

/* ---- which ---- */

struct list {
    struct bench_product *at;
    int n;
};

static void append(struct list *list, const char *name, const char *pass, struct bench_product p) {
    (void)snprintf(p.name, sizeof p.name, "%s %s", name, pass);
    list->at[list->n++] = p;
}

/* y [N, O] = x [N, I] W^T with W [O, I]: forward, gradient of x, gradient of W. */
static void append_matrix(struct list *list, const char *name, int64_t N, int64_t I, int64_t O,
                          int64_t times, bool head) {
    append(list, name, "fwd",
           (struct bench_product){
               .M = N, .N = O, .K = I, .tb = true, .f32_out = head, .times = times});
    append(list, name, "dX", (struct bench_product){.M = N, .N = I, .K = O, .times = times});
    append(list, name, "dW",
           (struct bench_product){.M = O,
                                  .N = I,
                                  .K = N,
                                  .ta = true,
                                  .add = head,
                                  .f32_out = true,
                                  .times = times,
                                  .weight = BENCH_WEIGHT_C});
}

int bench_products_of(const struct hl_model *model, int64_t N, int64_t R,
                      struct bench_product out[BENCH_MOST_PRODUCTS]) {
    const struct hl_model_config *c = &model->config;
    int64_t C = c->hidden_size, L = c->num_hidden_layers,
            inner = c->num_attention_heads * c->head_dim;
    int64_t qkv = inner + 2 * c->num_key_value_heads * c->head_dim, F = c->intermediate_size;
    struct list list = {out, 0};
    append_matrix(&list, "qkv", N, C, qkv, L, false);
    append_matrix(&list, "proj", N, inner, C, L, false);
    append_matrix(&list, "up", N, C, c->family == HL_FAMILY_GPT2 ? F : 2 * F, L, false);
    append_matrix(&list, "down", N, F, C, L, false);
    append_matrix(&list, "head", R, C, model->padded_vocab, N / R, true);
    if (N % R) append_matrix(&list, "head", N % R, C, model->padded_vocab, 1, true);
    return list.n;
}

double bench_product_flops(const struct bench_product *p) {
    return 2.0 * (double)p->M * (double)p->N * (double)p->K;
}

/* ---- how long ---- */

struct ring {
    char *data;
    int64_t bytes, at;
};

struct bench_products {
    struct hl_mem *mem;
    const struct bench_product *list;
    int n;
    enum hl_dtype dtype;
    void *a, *b, *c;
    struct ring weights, gradients;
    struct hl_products *halley;
    struct bench_library *library;
};

static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

static void *next(struct ring *ring, int64_t bytes) {
    if (ring->at + bytes > ring->bytes) ring->at = 0;
    void *data = ring->data + ring->at;
    ring->at += (bytes + 63) / 64 * 64;
    return data;
}

static enum hl_status make_operands(struct bench_products *s, struct hl_diag *diag) {
    int64_t a = 0, b = 0, c = 0, weight = RING_BYTES, gradient = RING_BYTES,
            t = (int64_t)hl_dtype_bytes(s->dtype);
    for (int i = 0; i < s->n; i++) {
        const struct bench_product *p = &s->list[i];
        a = most(a, p->M * p->K);
        if (p->weight == BENCH_WEIGHT_B)
            weight = most(weight, p->K * p->N * t), c = most(c, p->M * p->N);
        else gradient = most(gradient, p->M * p->N * 4), b = most(b, p->K * p->N);
    }
    s->a = hl_alloc(s->mem, (size_t)a, sizeof(float));
    s->b = hl_alloc(s->mem, (size_t)b, sizeof(float));
    s->c = hl_alloc(s->mem, (size_t)c, sizeof(float));
    s->weights = (struct ring){hl_alloc(s->mem, (size_t)weight, 1), weight, 0};
    s->gradients = (struct ring){hl_alloc(s->mem, (size_t)gradient, 1), gradient, 0};
    if (!s->a || !s->b || !s->c || !s->weights.data || !s->gradients.data)
        return hl_fail_memory(diag, (unsigned long long)(4 * (a + b + c) + weight + gradient),
                              "operands of products");
    bench_fill(s->a, s->dtype, a, 0.5F);
    bench_fill(s->b, s->dtype, b, 0.5F);
    bench_fill(s->weights.data, s->dtype, weight / t, 0.5F);
    bench_fill(s->gradients.data, HL_F32, gradient / 4, 0.5F);
    return HL_OK;
}

enum hl_status bench_products_new(struct hl_mem *mem, const struct bench_product *list, int n,
                                  enum hl_dtype dtype, struct bench_products **out,
                                  struct hl_diag *diag) {
    struct bench_products *s = hl_alloc(mem, 1, sizeof *s);
    if (!s) return hl_fail_memory(diag, sizeof *s, "products");
    *s = (struct bench_products){.mem = mem, .list = list, .n = n, .dtype = dtype};
    enum hl_status status = make_operands(s, diag);
    if (!status) status = hl_products_new(mem, &s->halley, diag);
    if (!status) status = bench_library_new(mem, n, &s->library, diag);
    if (status) bench_products_free(s);
    else *out = s;
    return status;
}

void bench_products_free(struct bench_products *s) {
    if (!s) return;
    bench_library_free(s->library);
    hl_products_free(s->halley);
    hl_free(s->mem, s->gradients.data);
    hl_free(s->mem, s->weights.data);
    hl_free(s->mem, s->c);
    hl_free(s->mem, s->b);
    hl_free(s->mem, s->a);
    hl_free(s->mem, s);
}

static struct hl_product operands(struct bench_products *s, const struct bench_product *p) {
    bool forward = p->weight == BENCH_WEIGHT_B;
    int64_t t = (int64_t)hl_dtype_bytes(s->dtype);
    return (struct hl_product){.M = p->M,
                               .N = p->N,
                               .K = p->K,
                               .ta = p->ta,
                               .tb = p->tb,
                               .add = p->add,
                               .in = s->dtype,
                               .out = p->f32_out ? HL_F32 : s->dtype,
                               .A = s->a,
                               .lda = p->ta ? p->M : p->K,
                               .B = forward ? next(&s->weights, p->K * p->N * t) : s->b,
                               .ldb = p->tb ? p->K : p->N,
                               .C = forward ? s->c : next(&s->gradients, p->M * p->N * 4),
                               .ldc = p->N};
}

enum hl_status bench_products_run(struct bench_products *s, enum bench_engine engine, int i,
                                  int64_t times, double *seconds_out, struct hl_diag *diag) {
    double start = bench_now();
    for (int64_t k = 0; k < times; k++) {
        struct hl_product p = operands(s, &s->list[i]);
        enum hl_status status = engine == BENCH_ENGINE_HALLEY
                                    ? hl_product_run(s->halley, &p, diag)
                                    : bench_library_run(s->library, i, &p, diag);
        if (status) return status;
    }
    *seconds_out = bench_now() - start;
    return HL_OK;
}

enum hl_status bench_products_step(struct bench_products *s, enum bench_engine engine,
                                   double *seconds_out, struct hl_diag *diag) {
    double sum = 0;
    for (int i = 0; i < s->n; i++) {
        double seconds;
        enum hl_status status = bench_products_run(s, engine, i, s->list[i].times, &seconds, diag);
        if (status) return status;
        sum += seconds;
    }
    *seconds_out = sum;
    return HL_OK;
}
