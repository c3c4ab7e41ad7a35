/* Encoding and decoding. See halley/data.h.
 *
 * Text is first cut at added tokens, then into words, then each word is merged. Added tokens are
 * found as the `tokenizers` library finds them: those not marked `normalized` first, in the whole
 * text; the others in what lies between; leftmost first, of several at one place the longest. */
#include <assert.h>
#include <string.h>

#include "text/tokenizer_internal.h"
#include "text/unicode.h"

int64_t hl_tokenizer_vocab_size(const struct hl_tokenizer *t) { return t->vocab_size; }
int32_t hl_tokenizer_bos(const struct hl_tokenizer *t) { return t->bos; }
int32_t hl_tokenizer_eos(const struct hl_tokenizer *t) { return t->eos; }
uint64_t hl_tokenizer_hash(const struct hl_tokenizer *t) { return t->hash; }

/* ---- ids ---- */

void hl_tokens_free(struct hl_tokens *tokens) {
    hl_free(tokens->mem, tokens->ids);
    tokens->ids = NULL;
    tokens->n = tokens->capacity = 0;
}

enum hl_status hl_tokens_room(struct hl_tokens *tokens, size_t more, struct hl_diag *diag) {
    if (more <= tokens->capacity - tokens->n) return HL_OK;
    size_t need, half_more;
    if (!hl_size_add(tokens->n, more, &need) || !hl_size_add(need, need / 2 + 64, &half_more))
        return hl_fail_memory(diag, more, "tokens");
    size_t capacity = tokens->n ? half_more : need; /* the first time, what is asked for */
    int32_t *ids = hl_realloc(tokens->mem, tokens->ids, capacity, sizeof *ids);
    if (!ids) return hl_fail_memory(diag, (unsigned long long)capacity * sizeof *ids, "tokens");
    tokens->ids = ids;
    tokens->capacity = capacity;
    return HL_OK;
}

/* ---- encode ---- */

struct encoder {
    const struct hl_tokenizer *t;
    struct hl_tokens *out;
    struct hl_words words;
    struct hl_bpe_scratch scratch;
    bool specials;
};

static enum hl_status no_such_byte(unsigned char byte, struct hl_diag *diag) {
    return hl_fail(
        diag, HL_E_USER,
        "the tokenizer has no token for byte 0x%02X; its vocabulary cannot spell this text", byte);
}

/* Ids of n bytes behind out->n; out->n does not move. */
static enum hl_status put_bytes(struct encoder *e, const char *text, size_t n,
                                struct hl_diag *diag) {
    enum hl_status status = hl_tokens_room(e->out, n, diag);
    if (status != HL_OK) return status;
    const unsigned char *bytes = (const unsigned char *)text;
    int32_t *ids = e->out->ids + e->out->n, missing = 0;
    if (e->t->identity) {
        for (size_t i = 0; i < n; i++) ids[i] = bytes[i];
        return HL_OK;
    }
    for (size_t i = 0; i < n; i++) missing |= ids[i] = e->t->byte_id[bytes[i]];
    for (size_t i = 0; missing < 0 && i < n; i++)
        if (ids[i] < 0) return no_such_byte(bytes[i], diag);
    return HL_OK;
}

static enum hl_status encode_word(struct encoder *e, const char *word, size_t n,
                                  struct hl_diag *diag) {
    int32_t id = hl_bpe_find_word(&e->t->bpe, word, n);
    if (id >= 0) {
        enum hl_status status = hl_tokens_room(e->out, 1, diag);
        if (status == HL_OK) e->out->ids[e->out->n++] = id;
        return status;
    }
    enum hl_status status = put_bytes(e, word, n, diag);
    if (status == HL_OK)
        status =
            hl_bpe_merge(&e->t->bpe, e->t->mem, &e->scratch, e->out->ids + e->out->n, &n, diag);
    if (status == HL_OK) e->out->n += n;
    return status;
}

/* Text without added tokens. */
static enum hl_status encode_plain(struct encoder *e, const char *text, size_t n,
                                   struct hl_diag *diag) {
    if (e->t->plain) {
        enum hl_status status = put_bytes(e, text, n, diag);
        if (status == HL_OK) e->out->n += n;
        return status;
    }
    hl_words_reset(&e->words, text, n);
    const char *word;
    size_t n_word;
    enum hl_status status;
    while ((status = hl_words_next(&e->words, &word, &n_word, diag)) == HL_OK)
        if ((status = encode_word(e, word, n_word, diag)) != HL_OK) break;
    return status == HL_END ? HL_OK : status;
}

static const struct hl_added_token *added_at(const struct hl_tokenizer *t, const char *text,
                                             size_t n, bool normalized) {
    for (size_t i = 0; i < t->n_added; i++) {
        const struct hl_added_token *added = &t->added[i];
        if (added->normalized == normalized && added->n <= n &&
            memcmp(added->text, text, added->n) == 0)
            return added;
    }
    return NULL;
}

/* The first added token that counts, at *at; NULL: none. A special token that does not count still
 * hides what it overlaps. */
static const struct hl_added_token *find_added(const struct encoder *e, const char *text, size_t n,
                                               bool normalized, size_t *at) {
    for (size_t i = 0; i < n; i++) {
        if (!e->t->added_first[(unsigned char)text[i]]) continue;
        const struct hl_added_token *added = added_at(e->t, text + i, n - i, normalized);
        if (!added) continue;
        if (added->special && !e->specials) {
            i += added->n - 1;
            continue;
        }
        *at = i;
        return added;
    }
    return NULL;
}

typedef enum hl_status encode_part(struct encoder *e, const char *text, size_t n,
                                   struct hl_diag *diag);

static enum hl_status cut_at_added(struct encoder *e, const char *text, size_t n, bool normalized,
                                   encode_part *part, struct hl_diag *diag) {
    while (n) {
        size_t at = n;
        const struct hl_added_token *added = find_added(e, text, n, normalized, &at);
        enum hl_status status = at ? part(e, text, at, diag) : HL_OK;
        if (status != HL_OK || !added) return status;
        if ((status = hl_tokens_room(e->out, 1, diag)) != HL_OK) return status;
        e->out->ids[e->out->n++] = added->id;
        text += at + added->n;
        n -= at + added->n;
    }
    return HL_OK;
}

static enum hl_status encode_between(struct encoder *e, const char *text, size_t n,
                                     struct hl_diag *diag) {
    return cut_at_added(e, text, n, true, encode_plain, diag);
}

static bool any_added_counts(const struct hl_tokenizer *t, bool specials) {
    for (size_t i = 0; i < t->n_added; i++)
        if (specials || !t->added[i].special) return true;
    return false;
}

enum hl_status hl_tokenizer_encode(const struct hl_tokenizer *t, const char *text, size_t n,
                                   bool specials, struct hl_tokens *out, struct hl_diag *diag) {
    if (t->pretokenizer) {
        size_t valid = hl_utf8_valid(text, n);
        if (valid < n)
            return hl_fail(diag, HL_E_FORMAT, "invalid UTF-8 at byte %zu of the text", valid);
    }
    struct encoder e = {.t = t, .out = out, .specials = specials};
    size_t n_before = out->n;
    enum hl_status status = hl_words_begin(&e.words, t->pretokenizer, diag);
    if (status == HL_OK && any_added_counts(t, specials))
        status = cut_at_added(&e, text, n, false, encode_between, diag);
    else if (status == HL_OK) status = encode_plain(&e, text, n, diag);
    hl_words_end(&e.words);
    hl_bpe_scratch_free(&e.scratch, t->mem);
    if (status != HL_OK) out->n = n_before;
    return status;
}

/* ---- decode ---- */

enum hl_status hl_tokenizer_decode(const struct hl_tokenizer *t, const int32_t *ids, size_t n,
                                   bool specials, struct hl_buf *out, struct hl_diag *diag) {
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= t->vocab_size)
            return hl_fail(diag, HL_E_USER, "token id %d is outside the vocabulary of %lld", ids[i],
                           (long long)t->vocab_size);
    for (size_t i = 0; i < n; i++) {
        size_t start = t->start[ids[i]];
        if (!t->special_V[ids[i]] || specials)
            hl_buf_add(out, t->bytes + start, t->start[ids[i] + 1] - start);
    }
    return out->failed ? hl_fail_memory(diag, out->n, "decoded text") : HL_OK;
}
