/* See sha256.h. No tables in secret-dependent order and no branches on data: time depends on
 * lengths alone. */
#include "base/sha256.h"

#include <string.h>

static const uint32_t k[64] = {/* cube roots of the first 64 primes */
                               0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b,
                               0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01,
                               0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7,
                               0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc,
                               0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152,
                               0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
                               0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc,
                               0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
                               0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819,
                               0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08,
                               0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f,
                               0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
                               0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t turn(uint32_t x, int by) { return x >> by | x << (32 - by); }

static void schedule(const unsigned char block[64], uint32_t w[64]) {
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 |
               (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
    for (int i = 16; i < 64; i++) {
        uint32_t s0 = turn(w[i - 15], 7) ^ turn(w[i - 15], 18) ^ w[i - 15] >> 3;
        uint32_t s1 = turn(w[i - 2], 17) ^ turn(w[i - 2], 19) ^ w[i - 2] >> 10;
        w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
}

static void compress(uint32_t h[8], const unsigned char block[64]) {
    uint32_t w[64], v[8];
    schedule(block, w);
    memcpy(v, h, sizeof v);
    for (int i = 0; i < 64; i++) { /* v: a b c d e f g h */
        uint32_t s1 = turn(v[4], 6) ^ turn(v[4], 11) ^ turn(v[4], 25);
        uint32_t t1 = v[7] + s1 + ((v[4] & v[5]) ^ (~v[4] & v[6])) + k[i] + w[i];
        uint32_t s0 = turn(v[0], 2) ^ turn(v[0], 13) ^ turn(v[0], 22);
        uint32_t t2 = s0 + ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += t1;
        v[0] = t1 + t2;
    }
    for (int i = 0; i < 8; i++) h[i] += v[i];
}

void hl_sha256_begin(struct hl_sha256 *s) {
    *s = (struct hl_sha256){/* square roots of the first 8 primes */
                            .h = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f,
                                  0x9b05688c, 0x1f83d9ab, 0x5be0cd19}};
}

void hl_sha256_add(struct hl_sha256 *s, const void *data, size_t n) {
    const unsigned char *from = data;
    while (n > 0) {
        size_t used = (size_t)(s->n % 64), some = 64 - used < n ? 64 - used : n;
        memcpy(s->block + used, from, some);
        s->n += some;
        from += some;
        n -= some;
        if (s->n % 64 == 0) compress(s->h, s->block);
    }
}

void hl_sha256_end(struct hl_sha256 *s, unsigned char out[HL_SHA256_BYTES]) {
    static const unsigned char pad[64] = {0x80};
    unsigned char bits[8];
    for (int i = 0; i < 8; i++) bits[i] = (unsigned char)(s->n * 8 >> (56 - 8 * i));
    hl_sha256_add(s, pad, 1 + (size_t)((119 - s->n % 64) % 64));
    hl_sha256_add(s, bits, sizeof bits);
    for (int i = 0; i < HL_SHA256_BYTES; i++)
        out[i] = (unsigned char)(s->h[i / 4] >> (24 - 8 * (i % 4)));
}

void hl_hmac_sha256(const void *key, size_t n_key, const void *data, size_t n,
                    unsigned char out[HL_SHA256_BYTES]) {
    unsigned char block[64] = {0}, pad[64];
    struct hl_sha256 s;
    hl_sha256_begin(&s);
    if (n_key <= sizeof block) memcpy(block, key, n_key);
    else {
        hl_sha256_add(&s, key, n_key);
        hl_sha256_end(&s, block);
        hl_sha256_begin(&s);
    }
    for (size_t i = 0; i < sizeof pad; i++) pad[i] = block[i] ^ 0x36;
    hl_sha256_add(&s, pad, sizeof pad);
    hl_sha256_add(&s, data, n);
    hl_sha256_end(&s, out);
    hl_sha256_begin(&s);
    for (size_t i = 0; i < sizeof pad; i++) pad[i] = block[i] ^ 0x5c;
    hl_sha256_add(&s, pad, sizeof pad);
    hl_sha256_add(&s, out, HL_SHA256_BYTES);
    hl_sha256_end(&s, out);
    explicit_bzero(block, sizeof block);
    explicit_bzero(pad, sizeof pad);
    explicit_bzero(&s, sizeof s);
}

void hl_pbkdf2_sha256(const char *secret, const char *salt, int rounds,
                      unsigned char out[HL_SHA256_BYTES]) {
    static const unsigned char first_block[4] = {0, 0, 0, 1};
    unsigned char u[HL_SHA256_BYTES], start[256];
    size_t n_secret = strlen(secret), n_salt = strlen(salt);
    if (n_salt > sizeof start - sizeof first_block) n_salt = sizeof start - sizeof first_block;
    memcpy(start, salt, n_salt);
    memcpy(start + n_salt, first_block, sizeof first_block);
    hl_hmac_sha256(secret, n_secret, start, n_salt + sizeof first_block, u);
    memcpy(out, u, sizeof u);
    for (int i = 1; i < rounds; i++) {
        hl_hmac_sha256(secret, n_secret, u, sizeof u, u);
        for (size_t b = 0; b < sizeof u; b++) out[b] ^= u[b];
    }
    explicit_bzero(u, sizeof u);
}
