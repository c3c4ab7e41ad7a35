/* Error feedback over any codec. The residual itself holds c while the codec works, so no array
 * besides it is needed.
 *
 * Why the residual is exact: rounding to nearest gives 0, or a value between half and twice of c,
 * and the difference of two such numbers is a number of f32 (Sterbenz). */
#include "codecs/bits.h"
#include "halley/codec.h"
#include "kernels/chunks.h"

static bool sums_are_finite(int64_t n, const float *x, const float *y) {
    int32_t largest = 0;
#pragma omp parallel for schedule(static) reduction(max : largest) if (n > HL_SERIAL_BELOW)
    for (int64_t i = 0; i < n; i++) {
        const int32_t magnitude = hl_magnitude(x[i] + y[i]);
        largest = magnitude > largest ? magnitude : largest;
    }
    return largest < HL_BITS_INFINITY;
}

enum hl_status hl_codec_feedback(const struct hl_codec *codec, int64_t n, const float *input,
                                 float *residual, void *out) {
    if (!sums_are_finite(n, input, residual)) return HL_E_NUMERIC;
#pragma omp parallel for schedule(static) if (n > HL_SERIAL_BELOW)
    for (int64_t i = 0; i < n; i++) residual[i] = input[i] + residual[i];
    const enum hl_status status = codec->encode(n, residual, out);
    if (status == HL_OK) codec->add(n, -1, out, residual);
    return status;
}
