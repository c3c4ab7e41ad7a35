/* Codecs over an array that is larger than the caches, and a copy of that array. */
#include <string.h>

#include "bench.h"

struct bench_codec {
    struct hl_mem *mem;
    const struct hl_codec *codec;
    int64_t n;
    float *from, *to, *residual;
    void *codes;
};

void bench_codec_free(struct bench_codec *s) {
    if (!s) return;
    hl_free(s->mem, s->codes), hl_free(s->mem, s->residual);
    hl_free(s->mem, s->to), hl_free(s->mem, s->from);
    hl_free(s->mem, s);
}

enum hl_status bench_codec_new(struct hl_mem *mem, const char *name, int64_t n,
                               struct bench_codec **out, struct hl_diag *diag) {
    const struct hl_codec *codec;
    enum hl_status status = hl_codec_find(name, &codec, diag);
    if (status) return status;
    struct bench_codec *s = hl_alloc(mem, 1, sizeof *s);
    if (!s) return hl_fail_memory(diag, sizeof *s, "codecs");
    *s = (struct bench_codec){.mem = mem, .codec = codec, .n = n};
    s->from = hl_alloc(mem, (size_t)n, sizeof *s->from);
    s->to = hl_alloc(mem, (size_t)n, sizeof *s->to);
    s->residual = hl_alloc(mem, (size_t)n, sizeof *s->residual);
    s->codes = hl_alloc(mem, codec->bytes(n), 1);
    if (!s->from || !s->to || !s->residual || !s->codes) {
        bench_codec_free(s);
        return hl_fail_memory(diag, 16 * (unsigned long long)n, "codecs");
    }
    bench_fill(s->from, HL_F32, n, 1);
    memset(s->to, 1, (size_t)n * sizeof *s->to);
    memset(s->residual, 0, (size_t)n * sizeof *s->residual);
    *out = s;
    return HL_OK;
}

double bench_codec_encode(struct bench_codec *s) {
    double start = bench_now();
    if (s->codec->encode(s->n, s->from, s->codes)) return 0; /* the numbers are finite */
    return bench_now() - start;
}

double bench_codec_decode(struct bench_codec *s) {
    double start = bench_now();
    s->codec->decode(s->n, s->codes, s->to);
    return bench_now() - start;
}

double bench_codec_feedback(struct bench_codec *s) {
    double start = bench_now();
    if (hl_codec_feedback(s->codec, s->n, s->from, s->residual, s->codes)) return 0;
    return bench_now() - start;
}

double bench_codec_copy(struct bench_codec *s) {
    return bench_copy(s->to, s->from, (size_t)s->n * sizeof *s->from);
}
