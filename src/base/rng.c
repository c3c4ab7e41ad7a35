/* Philox4x32-10 and a Feistel permutation. See halley/rng.h. */
#include "halley/rng.h"

#include <assert.h>
#include <math.h>

void hl_philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]) {
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3], k0 = key[0],
             k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

static void draw(uint64_t seed, enum hl_rng_stream stream, uint64_t index, uint32_t out[4]) {
    uint32_t counter[4] = {(uint32_t)index, (uint32_t)(index >> 32), (uint32_t)stream, 0};
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    hl_philox4x32(counter, key, out);
}

static double unit(uint32_t high, uint32_t low) {
    return (double)(((uint64_t)high << 32 | low) >> 11) * 0x1p-53;
}

uint64_t hl_rng_u64(uint64_t seed, enum hl_rng_stream stream, uint64_t index) {
    uint32_t r[4];
    draw(seed, stream, index, r);
    return (uint64_t)r[0] << 32 | r[1];
}

double hl_rng_uniform(uint64_t seed, enum hl_rng_stream stream, uint64_t index) {
    uint32_t r[4];
    draw(seed, stream, index, r);
    return unit(r[0], r[1]);
}

double hl_rng_normal(uint64_t seed, enum hl_rng_stream stream, uint64_t index) {
    uint32_t r[4];
    draw(seed, stream, index, r);
    double u = 1.0 - unit(r[0], r[1]); /* (0, 1]: its logarithm is finite */
    return sqrt(-2.0 * log(u)) * cos(6.283185307179586476925 * unit(r[2], r[3]));
}

/* Four Feistel rounds over 2w bits, the smallest even width that holds n; indices that land outside
 * walk on (expected fewer than four walks, since 2^(2w) < 4n). */
enum { ROUNDS = 4 };

static int half_width(uint64_t n) {
    int half = 1;
    while (half < 32 && (uint64_t)1 << (2 * half) < n) half++;
    return half;
}

static uint32_t mix(uint64_t half_index, uint32_t round, uint64_t key) {
    const uint32_t counter[4] = {(uint32_t)half_index, round, 0x68616c6cu, 0},
                   k[2] = {(uint32_t)key, (uint32_t)(key >> 32)};
    uint32_t r[4];
    hl_philox4x32(counter, k, r);
    return r[0];
}

uint64_t hl_permute(uint64_t index, uint64_t n, uint64_t key) {
    assert(index < n);
    if (n <= 1) return index;
    int half = half_width(n);
    uint64_t mask = ((uint64_t)1 << half) - 1, x = index;
    do {
        uint64_t left = x >> half, right = x & mask;
        for (uint32_t round = 0; round < ROUNDS; round++) {
            uint64_t next = left ^ (mix(right, round, key) & mask);
            left = right;
            right = next;
        }
        x = left << half | right;
    } while (x >= n);
    return x;
}

uint64_t hl_permute_back(uint64_t image, uint64_t n, uint64_t key) {
    assert(image < n);
    if (n <= 1) return image;
    int half = half_width(n);
    uint64_t mask = ((uint64_t)1 << half) - 1, x = image;
    do {
        uint64_t left = x >> half, right = x & mask;
        for (uint32_t round = ROUNDS; round-- > 0;) {
            uint64_t before = right ^ (mix(left, round, key) & mask);
            right = left;
            left = before;
        }
        x = left << half | right;
    } while (x >= n);
    return x;
}
