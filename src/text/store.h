/* A token store: an array of tokens and where its documents start. It lives in memory (built from
 * text) or in a mapped shard; the loader does not know which. Immutable once built: may be read
 * from several threads. */
#ifndef HALLEY_TEXT_STORE_H
#define HALLEY_TEXT_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "halley/mem.h"
#include "halley/status.h"
#include "os/map.h"

/* D documents */
struct hl_store {
    int width; /* bytes of one token: 2 or 4, unsigned, little-endian */
    const void *tokens;
    uint64_t n_tokens;
    const uint64_t *document_D; /* first token of each document: ascending, the first is 0 */
    uint64_t n_documents;
    int64_t max_token;       /* the largest id; -1 when there is none */
    uint64_t checksum;       /* xxh3 of tokens and documents */
    uint64_t tokenizer_hash; /* 0: not known (llm.c's shards do not say) */
    struct hl_mem *mem;      /* of the two arrays below */
    void *own_tokens;        /* owner: the store; NULL when the tokens are mapped */
    uint64_t *own_documents;
    struct hl_map map;
};

void hl_store_free(struct hl_store *store);
int64_t hl_store_token(const struct hl_store *store, uint64_t i);
/* Copy n tokens from `start` as int32. returns the largest of them (read as unsigned), so that a
 * caller can check it. */
uint32_t hl_store_copy(const struct hl_store *store, uint64_t start, size_t n, int32_t *out);
/* xxh3 over tokens, then document index: the same for a store in memory and the shard written from
 * it. */
uint64_t hl_store_checksum(const struct hl_store *store);
/* Index of the first document that starts at `token` or later; n_documents when there is none. */
uint64_t hl_store_document_from(const struct hl_store *store, uint64_t token);

/* Where a text reader puts tokens: a store in memory, or a shard on disk. */
struct hl_token_sink {
    enum hl_status (*tokens)(struct hl_token_sink *sink, const int32_t *ids, size_t n,
                             struct hl_diag *diag);
    /* The tokens since the last end are one document; without tokens nothing happens. */
    enum hl_status (*document_end)(struct hl_token_sink *sink, struct hl_diag *diag);
};

/* Fills a store in memory. */
struct hl_store_builder {
    struct hl_token_sink sink;
    struct hl_store store; /* being built */
    size_t token_capacity, document_capacity, expect_tokens;
    bool document_open;
};

/* vocab_size decides the width; expect_tokens reserves room (a hint, 0 = none). */
void hl_store_builder_init(struct hl_store_builder *builder, struct hl_mem *mem, int64_t vocab_size,
                           uint64_t expect_tokens);
/* Hands the store over. The builder may be freed afterwards or not. */
void hl_store_builder_finish(struct hl_store_builder *builder, struct hl_store *out);
void hl_store_builder_free(struct hl_store_builder *builder);

/* Bytes that a token of this vocabulary needs: 2 up to 65,536 ids, else 4. */
int hl_token_width(int64_t vocab_size);
/* Write ids as unsigned tokens of `width` bytes. */
void hl_tokens_narrow(const int32_t *ids, size_t n, int width, void *out);

#endif
