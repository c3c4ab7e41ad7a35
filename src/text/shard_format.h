/* The bytes of a shard's header, shared by reader and writer. */
#ifndef HALLEY_TEXT_SHARD_FORMAT_H
#define HALLEY_TEXT_SHARD_FORMAT_H

#include <stdint.h>

#define HL_SHARD_MAGIC "HALLEYTK"
enum { HL_SHARD_VERSION = 1, HL_SHARD_HEADER_BYTES = 128 };

/* Little-endian, as it stands at the start of the file. */
struct hl_shard_header {
    char magic[8];
    uint32_t version;
    uint32_t token_bytes; /* 2 or 4 */
    uint64_t n_tokens;
    uint64_t n_documents;
    uint64_t tokenizer_hash;
    uint64_t max_token;    /* 0 when there are no tokens */
    uint64_t checksum;     /* xxh3 of tokens, then document index */
    uint64_t tokens_at;    /* offset in the file: 128 */
    uint64_t documents_at; /* offset, a multiple of 8; zeros between */
    uint64_t file_bytes;
    uint64_t reserved[5];     /* 0 */
    uint64_t header_checksum; /* xxh3 of the 120 bytes before it */
};
_Static_assert(sizeof(struct hl_shard_header) == HL_SHARD_HEADER_BYTES, "the header has no holes");

#endif
