/* Any bytes decode, by every codec, without a read or write outside the arrays; the same bytes as
 * numbers are refused, or encoded to something that decodes to finite numbers. */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz_target.h"
#include "halley/codec.h"

/* In a block of exactly their size. */
static void *copy_of(const void *data, size_t n) {
    void *copy = malloc(n ? n : 1);
    if (!copy) abort();
    if (n) memcpy(copy, data, n);
    return copy;
}

static void *room(size_t n) {
    void *p = calloc(n ? n : 1, 1);
    if (!p) abort();
    return p;
}

/* As many elements as the bytes hold; what is left of them is left out. */
static void decode_bytes(const struct hl_codec *codec, const uint8_t *data, size_t n_bytes) {
    int64_t n = 0;
    while (codec->bytes(n + 1) <= n_bytes) n++;
    void *codes = copy_of(data, codec->bytes(n));
    float *y = room((size_t)n * sizeof *y);
    codec->decode(n, codes, y);
    codec->add(n, -1, codes, y);
    free(y);
    free(codes);
}

static void encode_numbers(const struct hl_codec *codec, const uint8_t *data, size_t n_bytes) {
    const int64_t n = (int64_t)(n_bytes / sizeof(float));
    float *x = copy_of(data, (size_t)n * sizeof *x), *residual = room((size_t)n * sizeof *residual);
    void *codes = room(codec->bytes(n));
    bool finite = true;
    for (int64_t i = 0; i < n; i++) finite = finite && isfinite(x[i]);
    if ((codec->encode(n, x, codes) == HL_OK) != finite) abort();
    if (finite) {
        if (hl_codec_feedback(codec, n, x, residual, codes)) abort();
        codec->decode(n, codes, x);
        for (int64_t i = 0; i < n; i++)
            if (!isfinite(x[i]) || !isfinite(residual[i])) abort();
    }
    free(codes);
    free(residual);
    free(x);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    for (const struct hl_codec *const *codec = hl_codecs(); *codec; codec++) {
        decode_bytes(*codec, data, n);
        encode_numbers(*codec, data, n);
    }
    return 0;
}
