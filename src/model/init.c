/* Initial weights, each a pure function of (seed, tensor, row, column): sharding and threads do not
 * change them, and neither does the padding of the vocabulary.
 *
 * One Philox call gives four words, two Box-Muller pairs, four normals. Logarithm, sine and cosine
 * are polynomials in plain float without contraction, so that every machine draws the same bits (a
 * C library's logf differs between its versions) and the compiler can vectorise the loop. Tails end
 * at 6.7 deviations. Accuracy of the polynomials: 1e-7 relative. */
#include "halley/model.h"

#include <math.h>
#include <string.h>

#include "halley/rng.h"

enum { LANES = 16, PER_CALL = 4, CHUNK = 1 << 14 };

static inline float float_of(uint32_t bits) {
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline uint32_t bits_of(float f) {
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

/* Natural logarithm of u in (0, 1]: u = 2^e m with m in [sqrt(1/2), sqrt(2)), ln m = 2
 * artanh((m-1)/(m+1)). */
static inline float log_unit(float u) {
    const uint32_t sqrt_half = 0x3f3504f3u;
    uint32_t shifted = bits_of(u) - sqrt_half;
    float e = (float)((int32_t)shifted >> 23);
    float m = float_of((shifted & 0x7fffffu) + sqrt_half);
    float s = (m - 1.0f) / (m + 1.0f), z = s * s;
    float artanh = s + s * z * (1.0f / 3 + z * (1.0f / 5 + z * (1.0f / 7 + z * (1.0f / 9))));
    return e * 0.693147180559945f + 2.0f * artanh;
}

/* sin and cos of 2 pi w / 2^32: quarter turns are exact, the rest lies within an eighth of a turn
 * (Taylor series). */
static inline void sin_cos(uint32_t w, float *sin_out, float *cos_out) {
    uint32_t quarter = (w + 0x20000000u) >> 30;
    float a = (float)(int32_t)(w - (quarter << 30)) * (float)(6.283185307179586 / 4294967296.0),
          z = a * a;
    float s = a + a * z * (-1.0f / 6 + z * (1.0f / 120 + z * (-1.0f / 5040 + z * (1.0f / 362880))));
    float c = 1.0f + z * (-0.5f + z * (1.0f / 24 + z * (-1.0f / 720 + z * (1.0f / 40320))));
    uint32_t swap = 0u - (quarter & 1u), s_sign = (quarter & 2u) << 30,
             c_sign = ((quarter + 1u) & 2u) << 30;
    uint32_t sb = bits_of(s), cb = bits_of(c);
    *sin_out = float_of(((sb & ~swap) | (cb & swap)) ^ s_sign);
    *cos_out = float_of(((cb & ~swap) | (sb & swap)) ^ c_sign);
}

static inline void box_muller(uint32_t radius_word, uint32_t angle_word, float *x, float *y) {
    float u = ((float)(int32_t)(radius_word >> 1) + 0.5f) * 0x1p-31f;
    float radius = sqrtf(-2.0f * log_unit(u)), s, c;
    sin_cos(angle_word, &s, &c);
    *x = radius * c;
    *y = radius * s;
}

/* Normals 4 * first_call .. of one tensor into out [4 * LANES]. */
static void draw_lanes(uint64_t seed, uint32_t tensor, uint64_t first_call, float scale,
                       float *out) {
    uint32_t c0[LANES], c1[LANES], c2[LANES], c3[LANES], k0 = (uint32_t)seed,
                                                         k1 = (uint32_t)(seed >> 32);
    for (int i = 0; i < LANES; i++) {
        uint64_t call = first_call + (uint64_t)i;
        c0[i] = (uint32_t)call;
        c1[i] = (uint32_t)(call >> 32);
        c2[i] = HL_RNG_INIT;
        c3[i] = tensor + 1; /* 0 belongs to hl_rng_* */
    }
    for (int round = 0; round < 10; round++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u)
        for (int i = 0; i < LANES; i++) { /* hl_philox4x32, LANES calls side by side */
            uint64_t p0 = (uint64_t)0xD2511F53u * c0[i], p1 = (uint64_t)0xCD9E8D57u * c2[i];
            c0[i] = (uint32_t)(p1 >> 32) ^ c1[i] ^ k0;
            c1[i] = (uint32_t)p1;
            c2[i] = (uint32_t)(p0 >> 32) ^ c3[i] ^ k1;
            c3[i] = (uint32_t)p0;
        }
    float n[PER_CALL][LANES];
    for (int i = 0; i < LANES; i++) {
        box_muller(c0[i], c1[i], &n[0][i], &n[1][i]);
        box_muller(c2[i], c3[i], &n[2][i], &n[3][i]);
    }
    for (int i = 0; i < LANES; i++)
        for (int j = 0; j < PER_CALL; j++) out[PER_CALL * i + j] = n[j][i] * scale;
}

static void draw_range(uint64_t seed, uint32_t tensor, int64_t first, int64_t n, float scale,
                       float *out) {
    enum { STEP = LANES * PER_CALL };
    for (int64_t i = 0; i < n; i += STEP) {
        float drawn[STEP];
        int64_t take = n - i < STEP ? n - i : STEP;
        draw_lanes(seed, tensor, (uint64_t)(first + i) / PER_CALL, scale,
                   take == STEP ? out + i : drawn);
        if (take < STEP) memcpy(out + i, drawn, (size_t)take * sizeof *out);
    }
}

static void fill(float *out, int64_t n, float value) {
    for (int64_t i = 0; i < n; i++) out[i] = value;
}

static void init_tensor(const struct hl_model *model, uint64_t seed, int t, float *at) {
    const struct hl_tensor *tensor = &model->layout.tensors[t];
    float std = (float)model->config.initializer_range;
    float residual = (float)(model->config.initializer_range /
                             sqrt(2.0 * (double)model->config.num_hidden_layers));
    int64_t n = tensor->rows * tensor->cols;
    fill(at + n, tensor->n - n, 0);
    if (tensor->init == HL_INIT_ZERO || tensor->init == HL_INIT_ONE) {
        fill(at, n, tensor->init == HL_INIT_ONE);
        return;
    }
    float scale = tensor->init == HL_INIT_NORMAL ? std : residual;
#pragma omp parallel for schedule(static)
    for (int64_t first = 0; first < n; first += CHUNK)
        draw_range(seed, (uint32_t)t, first, n - first < CHUNK ? n - first : CHUNK, scale,
                   at + first);
}

void hl_model_init_block(const struct hl_model *model, uint64_t seed, int block, float *params) {
    for (int t = 0; t < model->layout.n_tensors; t++)
        if (model->layout.tensors[t].block == block)
            init_tensor(model, seed, t,
                        params + model->layout.tensors[t].offset -
                            model->layout.blocks[block].offset);
}

void hl_model_init(const struct hl_model *model, uint64_t seed, float *params) {
    for (int b = 0; b < model->layout.n_blocks; b++)
        hl_model_init_block(model, seed, b, params + model->layout.blocks[b].offset);
}
