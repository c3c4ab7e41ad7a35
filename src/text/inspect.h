/* What a shard holds, for people. */
#ifndef HALLEY_TEXT_INSPECT_H
#define HALLEY_TEXT_INSPECT_H

#include "halley/data.h"

/* Append header, counts, document lengths, the first n_tokens tokens (decoded when a tokenizer is
 * given) and the result of the checksum. tokenizer may be NULL.
 * errors  those of hl_shard_open; a damaged shard is one too: `out` then holds what could be read
 */
enum hl_status hl_shard_describe(struct hl_mem *mem, const char *path,
                                 const struct hl_tokenizer *tokenizer, size_t n_tokens,
                                 struct hl_buf *out, struct hl_diag *diag) HL_MUST_CHECK;

#endif
