/* Text files to one token store: in memory, or in a shard of cache_dir that the next run finds
 * again. */
#ifndef HALLEY_TEXT_TEXT_STORE_H
#define HALLEY_TEXT_TEXT_STORE_H

#include "halley/data.h"
#include "text/store.h"

/* Text of fewer bytes is tokenised again each time: that is faster than a person notices. */
enum { HL_CACHE_FROM_BYTES = 8 << 20 };

struct hl_text_job {
    struct hl_mem *mem;
    const struct hl_tokenizer *tokenizer;
    const struct hl_data_options *options;
    int n_threads;
    struct hl_log *log;
};

enum hl_status hl_text_store_open(const struct hl_text_job *job, char *const *paths, size_t n,
                                  struct hl_store *out, struct hl_diag *diag) HL_MUST_CHECK;

/* Bytes of the regular files among them. */
uint64_t hl_bytes_of_files(char *const *paths, size_t n);

#endif
