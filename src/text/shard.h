/* Token shards on disk, docs/formats/shards.md: our own format (read and written) and llm.c's
 * (read). Both are used from the mapped file. A shard appears under its name only when it is whole:
 * it is written beside it and renamed. */
#ifndef HALLEY_TEXT_SHARD_H
#define HALLEY_TEXT_SHARD_H

#include <stdio.h>

#define XXH_STATIC_LINKING_ONLY /* the state of a checksum lives in the writer */
#include <xxhash.h>

#include "text/store.h"

enum hl_shard_kind { HL_SHARD_NONE, HL_SHARD_HALLEY, HL_SHARD_LLMC16, HL_SHARD_LLMC32 };

/* By the first bytes; HL_SHARD_NONE also for a file that cannot be read. */
enum hl_shard_kind hl_shard_kind_of(const char *path);
const char *hl_shard_kind_name(enum hl_shard_kind kind);

/* Up to this size, whoever opens a shard has its tokens checked too: that takes about 0.1 s. */
enum { HL_VERIFY_BYTES = 1 << 30 };

/* Map a shard. Header and document index are checked always.
 * eos     where documents end in llm.c's shards, which have no index; -1: the shard is one document
 * verify  also compare the checksum of the tokens (reads the whole file)
 * errors  HL_E_FORMAT: damaged, cut off, not a shard; HL_E_UNSUPPORTED: newer version, big-endian
 * machine */
enum hl_status hl_shard_open(struct hl_mem *mem, const char *path, int32_t eos, bool verify,
                             struct hl_store *out, struct hl_diag *diag) HL_MUST_CHECK;
/* The same over bytes in memory, which are borrowed: for tests and fuzzing. */
enum hl_status hl_shard_parse(struct hl_mem *mem, const void *bytes, size_t n, const char *name,
                              int32_t eos, bool verify, struct hl_store *out,
                              struct hl_diag *diag) HL_MUST_CHECK;

/* Writes one shard through the sink interface. Memory: the document index and a small buffer. */
struct hl_shard_writer {
    struct hl_token_sink sink;
    struct hl_mem *mem;
    char *path, *temporary; /* owner: the writer */
    FILE *file;
    int width;
    uint64_t n_tokens, n_documents, tokenizer_hash;
    int64_t max_token;
    uint64_t *documents;
    size_t capacity;
    bool document_open;
    char *narrow;
    XXH3_state_t checksum;
};
enum hl_status hl_shard_writer_open(struct hl_shard_writer *writer, struct hl_mem *mem,
                                    const char *path, int64_t vocab_size, uint64_t tokenizer_hash,
                                    struct hl_diag *diag) HL_MUST_CHECK;
/* Writes index and header, flushes to the device, renames. */
enum hl_status hl_shard_writer_commit(struct hl_shard_writer *writer,
                                      struct hl_diag *diag) HL_MUST_CHECK;
/* Closes; what was not committed is removed. Harmless after commit and on a zeroed writer. */
void hl_shard_writer_close(struct hl_shard_writer *writer);

#endif
