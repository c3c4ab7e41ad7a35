/* Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as
 * 1, 2, 3", SC 2011). A number is a pure function of (seed, stream, index), so a tensor that is
 * sharded differently draws the same numbers. */
#ifndef HALLEY_RNG_H
#define HALLEY_RNG_H

#include <stdint.h>

/* Streams keep the users of one seed apart. */
enum hl_rng_stream {
    HL_RNG_INIT = 1,   /* index = (tensor << 40) + element */
    HL_RNG_DATA = 2,   /* keys of data permutations */
    HL_RNG_SAMPLE = 3, /* generation */
    HL_RNG_CODEC = 4,  /* stochastic rounding */
    HL_RNG_STRATEGY = 5,
    HL_RNG_WIRE = 6, /* jitter; index = (stream << 40) + part */
};

/* Ten rounds of Philox4x32. */
void hl_philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

uint64_t hl_rng_u64(uint64_t seed, enum hl_rng_stream stream, uint64_t index);
double hl_rng_uniform(uint64_t seed, enum hl_rng_stream stream,
                      uint64_t index); /* [0, 1), 53 bits */
double hl_rng_normal(uint64_t seed, enum hl_rng_stream stream,
                     uint64_t index); /* mean 0, deviation 1 (Box-Muller) */

/* Element index of a permutation of [0, n) named by key: Feistel network with cycle walking, O(1),
 * no memory. */
uint64_t hl_permute(uint64_t index, uint64_t n, uint64_t key);
/* The index whose element is image: hl_permute_back(hl_permute(i, n, key), n, key) == i. */
uint64_t hl_permute_back(uint64_t image, uint64_t n, uint64_t key);

#endif
