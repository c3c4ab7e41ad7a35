/* The shadow: processors whose caches nobody keeps coherent, over one array of memory.
 *
 * Each rank has a direct-mapped write-back cache of its own, and a queue of streaming stores and
 * flushes that a fence completes in any order. Seeded noise prefetches, evicts and drains at random
 * points, and lets other ranks run in between. A missing flush or fence is then wrong data, the
 * same for the same seed, on a machine whose real caches are coherent. It plugs in below the code
 * that runs on real memory (struct hl_pool_cpu_ops), so that code itself is what is tested, in an
 * ordinary build. */
#ifndef HALLEY_TESTS_SHADOW_H
#define HALLEY_TESTS_SHADOW_H

#include "wires/pool_memory.h"

/* What is left out: one of the rules of docs/formats/pool.md that concern processors. */
enum shadow_rule {
    SHADOW_ALL_KEPT,
    SHADOW_2_NO_STREAM,     /* parts are stored and not flushed */
    SHADOW_2_NO_FENCE,      /* nothing between a part and its bell */
    SHADOW_2_BELL_STAYS,    /* bells are not flushed */
    SHADOW_3_NO_FLUSH,      /* lines are looked at in the cache */
    SHADOW_4_NO_FLUSH,      /* parts are not dropped before they are read */
    SHADOW_4_NO_FENCE,      /* they are read before the drop is done */
    SHADOW_4_TOO_EARLY,     /* they are dropped before the bell is looked at */
    SHADOW_5_NO_ACK,        /* slots are filled again at once */
    SHADOW_6_READER_STORES, /* a reader stores into a part */
    SHADOW_14_VALUE_FIRST,  /* a line's number is stored before the rest */
    SHADOW_RULES,
};
const char *shadow_rule_name(enum shadow_rule rule);

struct shadow_noise {
    int every;      /* one act of noise for so many accesses; 0: none */
    bool evicts;    /* prefetches and evictions are among them */
    unsigned lines; /* of each cache: a power of two */
};

struct shadow_random {
    uint64_t state;
};
uint32_t shadow_next(struct shadow_random *random, uint32_t below);

struct shadow_cpu;
struct shadow {
    char *memory; /* [n_bytes], aligned to 4096 */
    size_t n_bytes;
    struct shadow_random random;
    struct shadow_noise noise;
    enum shadow_rule off;
    /* Let somebody else run for a moment; may call back into other processors. */
    void (*others)(void *context);
    void *context;
    struct shadow_cpu *cpus; /* [n_cpus] */
    int n_cpus;
};
void shadow_new(struct shadow *s, size_t n_bytes, int n_cpus, const struct shadow_noise *noise,
                uint64_t seed);
void shadow_free(struct shadow *s);

/* A ring's memory for cpu i in mode nc-wb, with the rule that is off left out. head describes the
 * areas; device d begins at byte d * head->device_bytes. Freed with the shadow. */
struct hl_ring_memory *shadow_memory(struct shadow *s, int i, const struct hl_pool_head *head,
                                     const struct hl_ring_shape *shape, bool read_back);

#endif
