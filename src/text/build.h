/* What `halley data` does: shards from text, a tokenizer from text. */
#ifndef HALLEY_TEXT_BUILD_H
#define HALLEY_TEXT_BUILD_H

#include "halley/data.h"

struct hl_build {
    struct hl_mem *mem;
    const struct hl_string_list *data; /* text files and globs */
    const char *text_key;
    int text_format; /* enum hl_text_format */
    bool strict;
    int n_threads;
    struct hl_log *log;
    /* total_bytes 0: not known */
    void (*progress)(void *context, uint64_t done_bytes, uint64_t total_bytes); /* NULL = silent */
    void *progress_context;
};

struct hl_built {
    uint64_t n_files, n_bytes, n_documents, n_skipped, n_tokens, n_shards;
};

/* Tokenise into folder/data-000000.hls, data-000001.hls ... and put the tokenizer.json beside them.
 * A shard ends with the first document that brings it to shard_tokens: documents are never divided.
 * Every document ends with eos.
 * errors  HL_E_USER: the folder holds shards already, no data, a shard among the inputs */
enum hl_status hl_build_shards(const struct hl_build *build, const struct hl_tokenizer *tokenizer,
                               const char *folder, uint64_t shard_tokens, struct hl_built *out,
                               struct hl_diag *diag) HL_MUST_CHECK;
/* Train a byte-level BPE on the files. out->n_tokens is its vocabulary. */
enum hl_status hl_build_tokenizer(const struct hl_build *build, int64_t vocab_size,
                                  struct hl_tokenizer **tokenizer_out, struct hl_built *out,
                                  struct hl_diag *diag) HL_MUST_CHECK;
/* Write tokenizer.json under path, whole or not at all. */
enum hl_status hl_tokenizer_write(struct hl_mem *mem, const struct hl_tokenizer *tokenizer,
                                  const char *path, struct hl_diag *diag) HL_MUST_CHECK;

#endif
