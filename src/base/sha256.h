/* SHA-256 (FIPS 180-4), HMAC (RFC 2104) and PBKDF2 (RFC 8018): what keys are made of that both ends
 * derive from one secret. For a few hundred bytes, not for files. */
#ifndef HALLEY_BASE_SHA256_H
#define HALLEY_BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

enum { HL_SHA256_BYTES = 32 };

struct hl_sha256 {
    uint32_t h[8];
    uint64_t n; /* bytes so far */
    unsigned char block[64];
};
void hl_sha256_begin(struct hl_sha256 *s);
void hl_sha256_add(struct hl_sha256 *s, const void *data, size_t n);
void hl_sha256_end(struct hl_sha256 *s, unsigned char out[HL_SHA256_BYTES]);

void hl_hmac_sha256(const void *key, size_t n_key, const void *data, size_t n,
                    unsigned char out[HL_SHA256_BYTES]);
/* The first 32 bytes. rounds: how dear each guess of a weak secret is made. */
void hl_pbkdf2_sha256(const char *secret, const char *salt, int rounds,
                      unsigned char out[HL_SHA256_BYTES]);

#endif
