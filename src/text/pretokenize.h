/* Cutting text into words before byte-pair merging.
 *
 * Main idea: a pre-tokenizer is a pattern that matches at every place of every text, so words
 * follow each other without gaps. Patterns run in PCRE2, compiled once (JIT where the system allows
 * it) and shared by all threads. The text must be valid UTF-8: it is checked by the caller, PCRE2
 * is told not to check again. */
#ifndef HALLEY_TEXT_PRETOKENIZE_H
#define HALLEY_TEXT_PRETOKENIZE_H

#include "halley/mem.h"
#include "halley/status.h"

enum hl_pretokenizer_kind {
    HL_PRETOKENIZER_NONE, /* the whole text is one word */
    HL_PRETOKENIZER_GPT2, /* ByteLevel with use_regex */
};

struct hl_pretokenizer; /* immutable */
/* out is NULL for HL_PRETOKENIZER_NONE. */
enum hl_status hl_pretokenizer_new(struct hl_mem *mem, enum hl_pretokenizer_kind kind,
                                   struct hl_pretokenizer **out,
                                   struct hl_diag *diag) HL_MUST_CHECK;
void hl_pretokenizer_free(struct hl_pretokenizer *pretokenizer);

/* A walk over one text, for one thread. */
struct hl_words {
    const struct hl_pretokenizer *pretokenizer; /* NULL: one word */
    void *match;
    const char *text;
    size_t n, at;
};
enum hl_status hl_words_begin(struct hl_words *words, const struct hl_pretokenizer *pretokenizer,
                              struct hl_diag *diag) HL_MUST_CHECK;
/* Point the walk at another text of valid UTF-8. */
void hl_words_reset(struct hl_words *words, const char *text, size_t n);
/* The next word, not empty; HL_END when the text is used up. */
enum hl_status hl_words_next(struct hl_words *words, const char **word, size_t *n,
                             struct hl_diag *diag) HL_MUST_CHECK;
void hl_words_end(struct hl_words *words);

#endif
