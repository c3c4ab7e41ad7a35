/* Pre-tokenizers over PCRE2. See pretokenize.h.
 *
 * In Unicode mode PCRE2's own \s also takes U+180E, which is no white space since Unicode 6.3 and
 * is none for the `tokenizers` library; so white space is spelled out as Unicode's White_Space
 * property. What counts as letter or number follows the Unicode version of the PCRE2 in use. Source
 * of the GPT-2 pattern: Radford et al. 2019, released encoder. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/pretokenize.h"

#include <pcre2.h>
#include <string.h>

#define SPACE "\\p{Z}\\x{09}-\\x{0D}\\x{85}"

static const char *const PATTERNS[] = {
    [HL_PRETOKENIZER_NONE] = NULL,
    [HL_PRETOKENIZER_GPT2] =
        "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" SPACE "\\p{L}\\p{N}]+"
        "|[" SPACE "]+(?![^" SPACE "])|[" SPACE "]+",
};

struct hl_pretokenizer {
    struct hl_mem *mem;
    pcre2_general_context *context;
    pcre2_code *code;
};

static void *take(size_t bytes, void *mem) { return hl_alloc(mem, bytes, 1); }
static void give(void *data, void *mem) { hl_free(mem, data); }

static enum hl_status compile(struct hl_pretokenizer *p, const char *pattern,
                              struct hl_diag *diag) {
    int error;
    PCRE2_SIZE at;
    p->code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                            PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED, &error, &at, NULL);
    if (!p->code) {
        PCRE2_UCHAR why[128];
        pcre2_get_error_message(error, why, sizeof why);
        return hl_fail(diag, HL_E_UNSUPPORTED,
                       "PCRE2 refuses the pre-tokenizer's pattern at %zu: %s; is it built with "
                       "Unicode?",
                       (size_t)at, (const char *)why);
    }
    /* Where executable memory is forbidden, PCRE2 interprets: slower, same words. */
    (void)pcre2_jit_compile(p->code, PCRE2_JIT_COMPLETE);
    return HL_OK;
}

enum hl_status hl_pretokenizer_new(struct hl_mem *mem, enum hl_pretokenizer_kind kind,
                                   struct hl_pretokenizer **out, struct hl_diag *diag) {
    if (!PATTERNS[kind]) {
        *out = NULL;
        return HL_OK;
    }
    struct hl_pretokenizer *p = hl_alloc(mem, 1, sizeof *p);
    if (!p) return hl_fail_memory(diag, sizeof *p, "the pre-tokenizer");
    p->mem = mem;
    p->context = pcre2_general_context_create(take, give, mem);
    enum hl_status status = p->context ? compile(p, PATTERNS[kind], diag)
                                       : hl_fail_memory(diag, 64, "the pre-tokenizer");
    if (status < 0) {
        hl_pretokenizer_free(p);
        return status;
    }
    *out = p;
    return HL_OK;
}

void hl_pretokenizer_free(struct hl_pretokenizer *p) {
    if (!p) return;
    pcre2_code_free(p->code);
    pcre2_general_context_free(p->context);
    hl_free(p->mem, p);
}

enum hl_status hl_words_begin(struct hl_words *words, const struct hl_pretokenizer *pretokenizer,
                              struct hl_diag *diag) {
    *words = (struct hl_words){.pretokenizer = pretokenizer};
    if (!pretokenizer) return HL_OK;
    words->match = pcre2_match_data_create(1, pretokenizer->context);
    return words->match ? HL_OK
                        : hl_fail_memory(diag, sizeof(PCRE2_SIZE) * 2, "the pre-tokenizer's match");
}

void hl_words_end(struct hl_words *words) {
    if (words->match) pcre2_match_data_free(words->match);
    words->match = NULL;
}

void hl_words_reset(struct hl_words *words, const char *text, size_t n) {
    words->text = text;
    words->n = n;
    words->at = 0;
}

enum hl_status hl_words_next(struct hl_words *words, const char **word, size_t *n,
                             struct hl_diag *diag) {
    if (words->at == words->n) return HL_END;
    size_t end = words->n;
    if (words->pretokenizer) {
        int rc = pcre2_match(words->pretokenizer->code, (PCRE2_SPTR)words->text, words->n,
                             words->at, PCRE2_NO_UTF_CHECK, words->match, NULL);
        if (rc == PCRE2_ERROR_NOMEMORY)
            return hl_fail_memory(diag, words->n, "matching the pre-tokenizer's pattern");
        if (rc < 0)
            return hl_fail(diag, HL_E_UNSUPPORTED, "PCRE2 error %d at byte %zu of the text", rc,
                           words->at);
        end = pcre2_get_ovector_pointer(words->match)[1];
    }
    *word = words->text + words->at;
    *n = end - words->at;
    words->at = end;
    return HL_OK;
}
