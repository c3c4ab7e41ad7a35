/* What a tokenizer is made of; seen by the files of this room only.
 *
 * Main idea: one immutable struct of flat tables serves the byte tokenizer, our trained BPE and a
 * foreign tokenizer.json; each of them is a hl_tokenizer_spec that hl_tokenizer_build checks and
 * freezes. A new pre-tokenizer is one value of enum hl_pretokenizer_kind with its pattern in
 * pretokenize.c; a normalizer would be one more step before it in encode.
 *
 * Words used here: a "word" is a piece that the pre-tokenizer cuts out, merges never cross its
 * ends; the "byte alphabet" is GPT-2's 256 printable characters that stand for bytes in
 * tokenizer.json. */
#ifndef HALLEY_TEXT_TOKENIZER_INTERNAL_H
#define HALLEY_TEXT_TOKENIZER_INTERNAL_H

#include "halley/data.h"
#include "text/bpe_merge.h"
#include "text/pretokenize.h"

#define HL_END_OF_TEXT "<|endoftext|>"

struct hl_token_spec {
    int32_t id;
    bool raw; /* its text has characters outside the byte alphabet: bytes are that text, and
                 encoding never meets it */
    const char *bytes;
    size_t n;
};

struct hl_added_spec {
    int32_t id;
    bool special, normalized;
    const char *text; /* no NUL inside */
    size_t n;
};

/* Everything that makes a tokenizer; borrowed during hl_tokenizer_build. */
struct hl_tokenizer_spec {
    const struct hl_token_spec *tokens;
    size_t n_tokens;
    const struct hl_merge *merges; /* in order of rank; of equal pairs the last counts, as in the
                                      `tokenizers` library */
    size_t n_merges;
    const struct hl_added_spec *added;
    size_t n_added;
    enum hl_pretokenizer_kind pretokenizer;
    bool ignore_merges; /* a word that is a token is that token, whatever the merges say */
};

enum hl_token_kind { HL_TOKEN_GAP, HL_TOKEN_BYTES, HL_TOKEN_RAW, HL_TOKEN_ADDED };

struct hl_added_token {
    int32_t id;
    bool special, normalized;
    bool in_vocab; /* listed in the model's vocabulary as well */
    char *text;
    size_t n;
};

struct hl_tokenizer {
    struct hl_mem *mem;
    int64_t vocab_size; /* V: largest id + 1 */
    uint8_t *kind_V;    /* enum hl_token_kind */
    bool *special_V;
    char *bytes;          /* of all ids, one after the other */
    size_t *start;        /* [V + 1] */
    int32_t byte_id[256]; /* -1: no token for this byte */
    bool plain;           /* no merges: each byte is one token */
    bool identity;        /* plain, and the id is the byte */
    bool ignore_merges;
    enum hl_pretokenizer_kind pretokenizer_kind;
    struct hl_pretokenizer *pretokenizer; /* NULL: the text is one word */
    struct hl_bpe bpe;
    struct hl_added_token *added; /* longest first */
    size_t n_added;
    bool added_first[256]; /* some added token begins with this byte */
    int32_t bos, eos;
    uint64_t hash;
};

/* Check and freeze. errors HL_E_FORMAT: ids used twice, too sparse, ... */
enum hl_status hl_tokenizer_build(struct hl_mem *mem, const struct hl_tokenizer_spec *spec,
                                  struct hl_tokenizer **out, struct hl_diag *diag) HL_MUST_CHECK;

/* The tokenizer of a tokenizer.json text; name is for messages. */
enum hl_status hl_tokenizer_from_json(struct hl_mem *mem, const char *json, size_t n,
                                      const char *name, struct hl_tokenizer **out,
                                      struct hl_diag *diag) HL_MUST_CHECK;

/* Room for `more` ids behind the present ones. */
enum hl_status hl_tokens_room(struct hl_tokens *tokens, size_t more,
                              struct hl_diag *diag) HL_MUST_CHECK;

#endif
