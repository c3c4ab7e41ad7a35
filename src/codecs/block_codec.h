/* The calls of a codec made of blocks: from two functions that encode and decode one block come
 * bytes, encode, decode and add for whole arrays.
 *
 * A codec's file defines, before it includes this one:
 *     BLOCK        elements in a block; divides PIECE
 *     SCALE_BYTES  bytes that a block has besides its codes; may be 0
 *     CODE_BITS    bits of a code: 4, 8 or 16
 *     static HL_INLINE int32_t encode_block(int64_t n, const float *x_n, uint8_t *scale,
 *                                           uint8_t *codes);
 *     static HL_INLINE void decode_block(int64_t n, const uint8_t *scale, const uint8_t *codes,
 *                                        float *y_n);
 * n is BLOCK, or less in the last block. encode_block returns the largest magnitude (bits.h).
 * Layout: the scales of all blocks, then all codes.
 *
 * The two functions are plain C and the specification. They are compiled once for each instruction
 * set, for the compiler to vectorise; the same C without contraction gives the same bits. The set
 * is that of the table of kernels, so HALLEY_ISA is obeyed. */
#include "codecs/bits.h"
#include "halley/codec.h"
#include "kernels/chunks.h"

enum { PIECE = 1 << 12 }; /* elements that a thread takes at a time */

static HL_INLINE int32_t encode_blocks(int64_t n, const float *restrict x, uint8_t *restrict scale,
                                       uint8_t *restrict codes) {
    int32_t largest = 0;
    for (; n >= BLOCK; n -= BLOCK) {
        const int32_t own = encode_block(BLOCK, x, scale, codes);
        largest = own > largest ? own : largest;
        x += BLOCK, scale += SCALE_BYTES, codes += BLOCK * CODE_BITS / 8;
    }
    if (n == 0) return largest;
    const int32_t own = encode_block(n, x, scale, codes);
    return own > largest ? own : largest;
}

/* factor NULL: y = x; else y += factor x. */
static HL_INLINE void decode_some(int64_t n, const uint8_t *restrict scale,
                                  const uint8_t *restrict codes, const float *factor,
                                  float *restrict y) {
    float x[BLOCK];
    if (!factor) {
        decode_block(n, scale, codes, y);
        return;
    }
    decode_block(n, scale, codes, x);
    for (int64_t i = 0; i < n; i++) y[i] += *factor * x[i];
}

static HL_INLINE void decode_blocks(int64_t n, const uint8_t *scale, const uint8_t *codes,
                                    const float *factor, float *y) {
    for (; n >= BLOCK; n -= BLOCK) {
        decode_some(BLOCK, scale, codes, factor, y);
        y += BLOCK, scale += SCALE_BYTES, codes += BLOCK * CODE_BITS / 8;
    }
    if (n > 0) decode_some(n, scale, codes, factor, y);
}

/* ---- for each instruction set ---- */

#define INSTANCES(isa, target)                                                                     \
    target static int32_t encode_##isa(int64_t n, const float *x, uint8_t *scale,                  \
                                       uint8_t *codes) {                                           \
        return encode_blocks(n, x, scale, codes);                                                  \
    }                                                                                              \
    target static void decode_##isa(int64_t n, const uint8_t *scale, const uint8_t *codes,         \
                                    float *y) {                                                    \
        decode_blocks(n, scale, codes, NULL, y);                                                   \
    }                                                                                              \
    target static void add_##isa(int64_t n, const uint8_t *scale, const uint8_t *codes,            \
                                 float factor, float *y) {                                         \
        decode_blocks(n, scale, codes, &factor, y);                                                \
    }

#if defined(__x86_64__) && defined(__clang__)
#define AVX512 "avx512f,avx512bw,avx512dq,avx512vl,avx2"
#elif defined(__x86_64__)
#define AVX512 "avx512f,avx512bw,avx512dq,avx512vl,avx2,prefer-vector-width=512"
#endif

INSTANCES(ref, )
#if defined(__x86_64__)
INSTANCES(avx2, __attribute__((target("avx2"))))
INSTANCES(avx512, __attribute__((target(AVX512))))
#endif

static enum hl_isa instruction_set(void) {
    const struct hl_kernels *kernels;
    return hl_kernels_get(HL_F32, &kernels, NULL) ? HL_ISA_REF : kernels->isa;
}

static int32_t encode_piece(enum hl_isa isa, int64_t n, const float *x, uint8_t *scale,
                            uint8_t *codes) {
#if defined(__x86_64__)
    if (isa >= HL_ISA_AVX512) return encode_avx512(n, x, scale, codes);
    if (isa == HL_ISA_AVX2) return encode_avx2(n, x, scale, codes);
#endif
    (void)isa;
    return encode_ref(n, x, scale, codes);
}

static void decode_piece(enum hl_isa isa, int64_t n, const uint8_t *scale, const uint8_t *codes,
                         float *y) {
#if defined(__x86_64__)
    if (isa >= HL_ISA_AVX512) return decode_avx512(n, scale, codes, y);
    if (isa == HL_ISA_AVX2) return decode_avx2(n, scale, codes, y);
#endif
    (void)isa;
    decode_ref(n, scale, codes, y);
}

static void add_piece(enum hl_isa isa, int64_t n, const uint8_t *scale, const uint8_t *codes,
                      float factor, float *y) {
#if defined(__x86_64__)
    if (isa >= HL_ISA_AVX512) return add_avx512(n, scale, codes, factor, y);
    if (isa == HL_ISA_AVX2) return add_avx2(n, scale, codes, factor, y);
#endif
    (void)isa;
    add_ref(n, scale, codes, factor, y);
}

/* ---- whole arrays ---- */

static size_t all_scale_bytes(int64_t n) { return (size_t)((n + BLOCK - 1) / BLOCK * SCALE_BYTES); }

static size_t bytes(int64_t n) { return all_scale_bytes(n) + (size_t)((n * CODE_BITS + 7) / 8); }

static enum hl_status encode(int64_t n, const float *in, void *out) {
    const enum hl_isa isa = instruction_set();
    uint8_t *scales = out, *codes = scales + all_scale_bytes(n);
    int32_t largest = 0;
#pragma omp parallel for schedule(static) reduction(max : largest) if (n > HL_SERIAL_BELOW)
    for (int64_t i = 0; i < n; i += PIECE) {
        const int32_t own =
            encode_piece(isa, hl_min(PIECE, n - i), in + i, scales + i / BLOCK * SCALE_BYTES,
                         codes + i * CODE_BITS / 8);
        largest = own > largest ? own : largest;
    }
    return largest < HL_BITS_INFINITY ? HL_OK : HL_E_NUMERIC;
}

static void decode(int64_t n, const void *in, float *out) {
    const enum hl_isa isa = instruction_set();
    const uint8_t *scales = in, *codes = scales + all_scale_bytes(n);
#pragma omp parallel for schedule(static) if (n > HL_SERIAL_BELOW)
    for (int64_t i = 0; i < n; i += PIECE)
        decode_piece(isa, hl_min(PIECE, n - i), scales + i / BLOCK * SCALE_BYTES,
                     codes + i * CODE_BITS / 8, out + i);
}

static void add(int64_t n, float factor, const void *in, float *y) {
    const enum hl_isa isa = instruction_set();
    const uint8_t *scales = in, *codes = scales + all_scale_bytes(n);
#pragma omp parallel for schedule(static) if (n > HL_SERIAL_BELOW)
    for (int64_t i = 0; i < n; i += PIECE)
        add_piece(isa, hl_min(PIECE, n - i), scales + i / BLOCK * SCALE_BYTES,
                  codes + i * CODE_BITS / 8, factor, y + i);
}
