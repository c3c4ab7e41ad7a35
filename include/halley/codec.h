/* A codec makes an array of f32 shorter for the wire, and an array again at the other end.
 *
 * All codecs round to the nearest value they can express. A finite number never becomes infinite;
 * NaN and infinity are refused, since a scale that is shared would spread them. A code depends on
 * its own element and on the block that it lies in, counted from the start of the array; bits do
 * not depend on threads, instruction set or flush-to-zero. Codes need no alignment.
 *
 * Plug-ins: src/codecs/<name>.c + a line in codecs.def. docs/codecs/<name>.md has the format. */
#ifndef HALLEY_CODEC_H
#define HALLEY_CODEC_H

#include <stddef.h>
#include <stdint.h>

#include "halley/status.h"

struct hl_codec {
    const char *name, *summary;
    const char *paper; /* NULL: none */
    int64_t block;     /* elements that share a scale; 1: no scale */
    /* Bytes of n encoded elements, exactly. n >= 0, at most 2^56. Pure. */
    size_t (*bytes)(int64_t n);
    /* in_n f32 [n], out [bytes(n)]; every byte of out is written.
     * errors HL_E_NUMERIC: an element is not finite; out then holds nothing of use */
    enum hl_status (*encode)(int64_t n, const float *in_n, void *out) HL_MUST_CHECK;
    /* in [bytes(n)], out_n f32 [n]. Any bytes decode to something (NaN and infinity too, when
     * encode did not make them), and nothing outside these arrays is touched. */
    void (*decode)(int64_t n, const void *in, float *out_n);
    /* y += factor x for decoded x: the product is rounded, then the sum. factor 1 or -1: exactly
     * the sum or difference of y and what decode gives. */
    void (*add)(int64_t n, float factor, const void *in, float *y_n);
};

/* errors HL_E_USER with the nearest name. */
enum hl_status hl_codec_find(const char *name, const struct hl_codec **out,
                             struct hl_diag *diag) HL_MUST_CHECK;
const struct hl_codec *const *hl_codecs(void); /* NULL-terminated, in registry order */

/* Error feedback: what rounding took from one round is added to the next. With c = input + residual
 * (rounded), out = encode(c) and residual = c - decode(out).
 * input_n    f32 [n]
 * residual_n f32 [n], in and out; zeros before the first round. It belongs to this array and this
 *            rank, and to a checkpoint
 * out        [codec->bytes(n)]
 * numeric    decode(out) + residual == c exactly where c = 0 or |c| >= 2^-102, and within 2^-126
 *            below (flush-to-zero). Hence what was sent and the residual add up to all inputs, but
 *            for the rounding of each c
 * errors     HL_E_NUMERIC: a c is not finite; the residual is as before     source:
 * arXiv:1901.09847
 */
enum hl_status hl_codec_feedback(const struct hl_codec *codec, int64_t n, const float *input_n,
                                 float *residual_n, void *out) HL_MUST_CHECK;

#endif
