/* Text becomes tokens, tokens become batches.
 *
 * A token store is an array of tokens with the documents' starts; it is read from shards
 * (memory-mapped) or built from text. A loader hands out batches in an order that is a pure
 * function of (seed, position): one integer says where in the data a run is, and going there costs
 * nothing. */
#ifndef HALLEY_DATA_H
#define HALLEY_DATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "halley/log.h"
#include "halley/mem.h"
#include "halley/option.h"
#include "halley/status.h"

/* ---- tokenizer ---- */
struct hl_tokenizer; /* immutable after creation: may be used from several threads at once */

/* name_or_path: "byte" (256 bytes and <|endoftext|>), or a tokenizer.json, or a folder that holds
 * one. What is read is written down in docs/formats/tokenizer.md. errors HL_E_FORMAT /
 * HL_E_UNSUPPORTED: what in the file is not understood is named with its key. Never a guess.
 *        HL_E_USER: no such file */
enum hl_status hl_tokenizer_open(struct hl_mem *mem, const char *name_or_path,
                                 struct hl_tokenizer **out, struct hl_diag *diag) HL_MUST_CHECK;
enum hl_status hl_tokenizer_byte(struct hl_mem *mem, struct hl_tokenizer **out,
                                 struct hl_diag *diag) HL_MUST_CHECK;
/* The tokenizer.json text: reading it back gives the same tokenizer, and the `tokenizers` library
 * encodes identically. */
enum hl_status hl_tokenizer_to_json(const struct hl_tokenizer *tokenizer, struct hl_buf *out,
                                    struct hl_diag *diag) HL_MUST_CHECK;
void hl_tokenizer_free(struct hl_tokenizer *tokenizer); /* may be NULL */

int64_t hl_tokenizer_vocab_size(
    const struct hl_tokenizer *tokenizer); /* largest id + 1: what an embedding needs */
int32_t hl_tokenizer_bos(const struct hl_tokenizer *tokenizer); /* -1: none */
int32_t hl_tokenizer_eos(const struct hl_tokenizer *tokenizer); /* end of a document; -1: none */
uint64_t
hl_tokenizer_hash(const struct hl_tokenizer
                      *tokenizer); /* xxh3 of the canonical json: goes into shards and manifests */

struct hl_tokens { /* growable; zero-initialise with .mem set */
    struct hl_mem *mem;
    int32_t *ids;
    size_t n, capacity;
};
void hl_tokens_free(struct hl_tokens *tokens);
/* Append the tokens of n bytes of text; no bos or eos is added. Special tokens in the text are
 * recognised only when `specials`. Byte tokenizers take any bytes; others valid UTF-8 without a cut
 * character at the end. errors HL_E_FORMAT: invalid UTF-8 (its place is named); HL_E_USER: a byte
 * has no token. Then out is as it was. cost   one core: bytes at GB/s, BPE at tens of MB/s; a word
 * longer than 48 bytes takes 60 bytes of memory per byte owner  out->mem gives the ids; working
 * memory comes from the tokenizer's allocator and is returned before the end */
enum hl_status hl_tokenizer_encode(const struct hl_tokenizer *tokenizer, const char *text, size_t n,
                                   bool specials, struct hl_tokens *out,
                                   struct hl_diag *diag) HL_MUST_CHECK;
/* Append the bytes of the ids; specials are written as their text only when `specials`. Bytes of
 * ids decoded one at a time join to the same text; a single id may end inside a character. errors
 * HL_E_USER: id out of range, nothing is added. */
enum hl_status hl_tokenizer_decode(const struct hl_tokenizer *tokenizer, const int32_t *ids,
                                   size_t n, bool specials, struct hl_buf *out,
                                   struct hl_diag *diag) HL_MUST_CHECK;

/* ---- batches ---- */
/* A ragged batch: rows are concatenated tokens; sequences never see each other. Arrays are owned by
 * the loader and valid until its next call. */
struct hl_batch {
    int64_t n_tokens;     /* N */
    int64_t n_supervised; /* targets >= 0 */
    const int32_t *token_N;
    const int32_t *target_N;   /* -1: not supervised */
    const int32_t *position_N; /* restarts at 0 in each sequence */
    int64_t n_sequences;
    const int64_t *offsets; /* [n_sequences + 1] */
};

/* ---- loader ---- */
struct hl_data_options {
    struct hl_string_list
        data; /* files and globs: .txt, .jsonl, .bin/.hls shards; "weight:path" mixes */
    struct hl_string_list validation_data; /* empty: split off `data` */
    double validation_split;               /* 0.1 */
    char *text_key;                        /* JSONL key, "text" */
    int text_format;                       /* enum hl_text_format */
    int64_t block_size;                    /* T: tokens per row */
    bool document_mask;                    /* packed documents do not see each other */
    bool strict; /* a bad line stops the run instead of being skipped and counted */
    uint64_t seed;
    bool to_score; /* set by who evaluates all of `data`: nothing is held out, any length will do */
    char *cache_dir; /* where tokens of large text inputs are kept; "" = memory only */
};
enum hl_text_format { HL_TEXT_AUTO, HL_TEXT_DOCUMENT, HL_TEXT_LINES, HL_TEXT_JSONL };
extern const struct hl_option hl_data_rows[]; /* option rows over struct hl_data_options */
extern const size_t hl_data_n_rows;

enum hl_split { HL_SPLIT_TRAIN, HL_SPLIT_VALIDATION };

struct hl_dataset; /* immutable: token stores of both splits with their mixing weights */
/* Reads or maps everything named in options; text is tokenised here by `n_threads` threads. Skipped
 * lines are logged with file:line:column and a count. errors: empty data, no file matches a glob
 * (named), tokenizer hash of a shard differs ... */
enum hl_status hl_dataset_open(struct hl_mem *mem, const struct hl_data_options *options,
                               const struct hl_tokenizer *tokenizer, int n_threads,
                               struct hl_log *log, struct hl_dataset **out,
                               struct hl_diag *diag) HL_MUST_CHECK;
void hl_dataset_free(struct hl_dataset *dataset);
/* Rows of block_size in one epoch, the short last row of each source included; 0: nothing is held
 * out. */
int64_t hl_dataset_n_rows(const struct hl_dataset *dataset, enum hl_split split);
int64_t hl_dataset_n_tokens(const struct hl_dataset *dataset, enum hl_split split);
int64_t hl_dataset_max_token(
    const struct hl_dataset *dataset); /* the largest id seen, to check against the model */
uint64_t hl_dataset_hash(const struct hl_dataset *dataset); /* of contents and split rule */
/* Held-out cross entropy, in nats per token, of an add-one bigram model counted on the training
 * split: the number to beat. NaN when nothing is held out or memory is short.  cost: one pass over
 * both splits */
double hl_dataset_bigram_loss(const struct hl_dataset *dataset);

struct hl_loader; /* one thread at a time */
enum hl_status hl_loader_new(struct hl_mem *mem, const struct hl_dataset *dataset,
                             enum hl_split split, int64_t rows_per_batch, struct hl_loader **out,
                             struct hl_diag *diag) HL_MUST_CHECK;
void hl_loader_free(struct hl_loader *loader);
/* Rows [first_row, first_row + n) of the endless order of the training split (epoch = row / n_rows,
 * each epoch another permutation), or of the validation split in plain order. n <= rows_per_batch.
 * Validation ends with HL_END at n_rows: the last batch is short. A row is up to block_size
 * targets, each with the token before it as input; the rows of an epoch hold every token of the
 * split as a target exactly once (the first one's input is the tokenizer's start token: bos, else
 * eos). document_mask: a row is cut into sequences at document starts, and a document's first token
 * has the start token as its input. A tokenizer without bos and eos has nothing to put there: that
 * target is -1. Otherwise no target is -1. */
enum hl_status hl_loader_rows(struct hl_loader *loader, int64_t first_row, int64_t n,
                              struct hl_batch *out, struct hl_diag *diag) HL_MUST_CHECK;

#endif
