/* From a specification to a frozen tokenizer: checks, flat tables, hash. See tokenizer_internal.h.
 */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "text/byte_alphabet.h"
#include "text/tokenizer_internal.h"

/* Working memory of a build. */
struct build {
    const struct hl_tokenizer_spec *spec;
    struct hl_tokenizer *t;
    const struct hl_token_spec **token_of_id; /* [V] */
    struct hl_token_spec *added_tokens;       /* [n_added]: what the added tokens decode to */
    char *added_bytes;
};

/* ---- checks ---- */

static enum hl_status count_ids(const struct hl_tokenizer_spec *spec, int64_t *vocab_size,
                                struct hl_diag *diag) {
    int64_t largest = -1, n = (int64_t)(spec->n_tokens + spec->n_added);
    for (size_t i = 0; i < spec->n_tokens; i++)
        if (spec->tokens[i].id > largest) largest = spec->tokens[i].id;
    for (size_t i = 0; i < spec->n_added; i++)
        if (spec->added[i].id > largest) largest = spec->added[i].id;
    if (largest < 0) return hl_fail(diag, HL_E_FORMAT, "the tokenizer has no tokens");
    if (largest / 16 > n + 64)
        return hl_fail(diag, HL_E_FORMAT, "token id %lld is far above the number of tokens, %lld",
                       (long long)largest, (long long)n);
    *vocab_size = largest + 1;
    return HL_OK;
}

static bool same_text(const struct hl_token_spec *a, const struct hl_token_spec *b) {
    return a->raw == b->raw && a->n == b->n && memcmp(a->bytes, b->bytes, a->n) == 0;
}

static enum hl_status place_token(struct build *b, const struct hl_token_spec *token,
                                  struct hl_diag *diag) {
    if (b->token_of_id[token->id])
        return hl_fail(diag, HL_E_FORMAT, "token id %d is used twice in the vocabulary", token->id);
    b->token_of_id[token->id] = token;
    b->t->kind_V[token->id] = token->raw ? HL_TOKEN_RAW : HL_TOKEN_BYTES;
    if (!token->raw && token->n == 1) b->t->byte_id[(unsigned char)token->bytes[0]] = token->id;
    return HL_OK;
}

/* An added token shares its id with a token of the vocabulary only when the text is the same. */
static enum hl_status place_added(struct build *b, size_t i, struct hl_diag *diag) {
    const struct hl_token_spec *token = &b->added_tokens[i], *other = b->token_of_id[token->id];
    if (b->spec->added[i].n == 0)
        return hl_fail(diag, HL_E_FORMAT, "added token %d has an empty text", token->id);
    if (other && (b->t->kind_V[token->id] == HL_TOKEN_ADDED || !same_text(other, token)))
        return hl_fail(diag, HL_E_FORMAT,
                       "added token \"%.60s\" has id %d, which is another token's",
                       b->spec->added[i].text, token->id);
    if (!other) {
        b->token_of_id[token->id] = token;
        b->t->kind_V[token->id] = HL_TOKEN_ADDED;
    }
    b->t->special_V[token->id] = b->spec->added[i].special;
    return HL_OK;
}

/* ---- tables ---- */

static enum hl_status take_tables(struct build *b, struct hl_diag *diag) {
    struct hl_tokenizer *t = b->t;
    size_t V = (size_t)t->vocab_size, n_bytes = 0, n_added_bytes = 0;
    for (size_t i = 0; i < b->spec->n_tokens; i++)
        n_bytes += b->spec->tokens[i].n; /* all of it is in memory already */
    for (size_t i = 0; i < b->spec->n_added; i++) n_added_bytes += b->spec->added[i].n;
    b->token_of_id = hl_alloc(t->mem, V, sizeof *b->token_of_id);
    b->added_tokens = hl_alloc(t->mem, b->spec->n_added, sizeof *b->added_tokens);
    b->added_bytes = hl_alloc(t->mem, n_added_bytes, 1);
    t->kind_V = hl_alloc(t->mem, V, sizeof *t->kind_V);
    t->special_V = hl_alloc(t->mem, V, sizeof *t->special_V);
    t->start = hl_alloc(t->mem, V + 1, sizeof *t->start);
    t->bytes = hl_alloc(t->mem, n_bytes + n_added_bytes + 1, 1);
    t->added = hl_alloc(t->mem, b->spec->n_added, sizeof *t->added);
    if (!b->token_of_id || !b->added_tokens || !b->added_bytes || !t->kind_V || !t->special_V ||
        !t->start || !t->bytes || !t->added)
        return hl_fail_memory(diag, n_bytes + V * 16, "the vocabulary");
    return HL_OK;
}

/* Decoding goes through the byte alphabet for added tokens too, as in the `tokenizers` library. */
static void decode_added(struct build *b) {
    struct hl_byte_alphabet alphabet;
    hl_byte_alphabet_init(&alphabet);
    char *to = b->added_bytes;
    for (size_t i = 0; i < b->spec->n_added; i++) {
        const struct hl_added_spec *added = &b->spec->added[i];
        struct hl_token_spec *token = &b->added_tokens[i];
        *token = (struct hl_token_spec){.id = added->id, .bytes = to, .n = added->n};
        token->raw = !hl_byte_alphabet_bytes(&alphabet, added->text, added->n, to, &token->n);
        if (token->raw) memcpy(to, added->text, added->n);
        to += added->n;
    }
}

static void fill_bytes(struct build *b) {
    struct hl_tokenizer *t = b->t;
    size_t used = 0;
    for (int64_t id = 0; id < t->vocab_size; id++) {
        const struct hl_token_spec *token = b->token_of_id[id];
        t->start[id] = used;
        if (token) memcpy(t->bytes + used, token->bytes, token->n);
        if (token) used += token->n;
    }
    t->start[t->vocab_size] = used;
}

static int longest_first(const void *a, const void *b) {
    const struct hl_added_token *x = a, *y = b;
    if (x->n != y->n) return x->n > y->n ? -1 : 1;
    return strcmp(x->text, y->text);
}

static enum hl_status fill_added(struct build *b, struct hl_diag *diag) {
    struct hl_tokenizer *t = b->t;
    for (size_t i = 0; i < b->spec->n_added; i++) {
        const struct hl_added_spec *added = &b->spec->added[i];
        char *text = hl_strndup(t->mem, added->text, added->n);
        if (!text) return hl_fail_memory(diag, added->n, "an added token");
        t->added[t->n_added++] = (struct hl_added_token){
            added->id, added->special, added->normalized, t->kind_V[added->id] != HL_TOKEN_ADDED,
            text,      added->n};
        t->added_first[(unsigned char)text[0]] = true;
        if (added->special && strcmp(text, HL_END_OF_TEXT) == 0) t->bos = t->eos = added->id;
    }
    if (t->n_added) qsort(t->added, t->n_added, sizeof *t->added, longest_first);
    for (size_t i = 1; i < t->n_added; i++)
        if (strcmp(t->added[i - 1].text, t->added[i].text) == 0)
            return hl_fail(diag, HL_E_FORMAT, "added token \"%.60s\" is listed twice",
                           t->added[i].text);
    return HL_OK;
}

/* ---- merging ---- */

static enum hl_status index_words(struct build *b, struct hl_diag *diag) {
    struct hl_tokenizer *t = b->t;
    bool *wanted = hl_alloc(t->mem, (size_t)t->vocab_size, sizeof *wanted);
    if (!wanted)
        return hl_fail_memory(diag, (unsigned long long)t->vocab_size, "the table of words");
    for (int64_t id = 0; id < t->vocab_size; id++) wanted[id] = t->kind_V[id] == HL_TOKEN_BYTES;
    enum hl_status status =
        hl_bpe_index_words(&t->bpe, t->mem, t->bytes, t->start, wanted, (size_t)t->vocab_size,
                           t->byte_id, t->ignore_merges, diag);
    hl_free(t->mem, wanted);
    return status;
}

static enum hl_status build_encoder(struct build *b, struct hl_diag *diag) {
    struct hl_tokenizer *t = b->t;
    t->pretokenizer_kind = b->spec->pretokenizer;
    t->ignore_merges = b->spec->ignore_merges;
    t->plain = b->spec->n_merges == 0 && !t->ignore_merges;
    t->identity = t->plain;
    for (int byte = 0; byte < 256; byte++) t->identity = t->identity && t->byte_id[byte] == byte;
    enum hl_status status =
        hl_pretokenizer_new(t->mem, t->pretokenizer_kind, &t->pretokenizer, diag);
    if (status == HL_OK)
        status = hl_bpe_init(&t->bpe, t->mem, b->spec->merges, b->spec->n_merges, diag);
    if (status == HL_OK) status = index_words(b, diag);
    return status;
}

static enum hl_status take_hash(struct hl_tokenizer *t, struct hl_diag *diag) {
    struct hl_buf json = {.mem = t->mem};
    enum hl_status status = hl_tokenizer_to_json(t, &json, diag);
    if (status == HL_OK) t->hash = XXH3_64bits(json.data, json.n);
    hl_buf_free(&json);
    return status;
}

static enum hl_status build_all(struct build *b, struct hl_diag *diag) {
    enum hl_status status = count_ids(b->spec, &b->t->vocab_size, diag);
    if (status == HL_OK) status = take_tables(b, diag);
    if (status != HL_OK) return status;
    decode_added(b);
    for (int byte = 0; byte < 256; byte++) b->t->byte_id[byte] = -1;
    for (size_t i = 0; i < b->spec->n_tokens && status == HL_OK; i++)
        status = place_token(b, &b->spec->tokens[i], diag);
    for (size_t i = 0; i < b->spec->n_added && status == HL_OK; i++)
        status = place_added(b, i, diag);
    if (status != HL_OK) return status;
    fill_bytes(b);
    status = fill_added(b, diag);
    if (status == HL_OK) status = build_encoder(b, diag);
    if (status == HL_OK) status = take_hash(b->t, diag);
    return status;
}

enum hl_status hl_tokenizer_build(struct hl_mem *mem, const struct hl_tokenizer_spec *spec,
                                  struct hl_tokenizer **out, struct hl_diag *diag) {
    struct hl_tokenizer *t = hl_alloc(mem, 1, sizeof *t);
    if (!t) return hl_fail_memory(diag, sizeof *t, "the tokenizer");
    t->mem = mem;
    t->bos = t->eos = -1;
    struct build b = {.spec = spec, .t = t};
    enum hl_status status = build_all(&b, diag);
    hl_free(mem, b.token_of_id);
    hl_free(mem, b.added_tokens);
    hl_free(mem, b.added_bytes);
    if (status == HL_OK) *out = t;
    else hl_tokenizer_free(t);
    return status;
}

void hl_tokenizer_free(struct hl_tokenizer *t) {
    if (!t) return;
    for (size_t i = 0; i < t->n_added; i++) hl_free(t->mem, t->added[i].text);
    hl_free(t->mem, t->added);
    hl_free(t->mem, t->kind_V);
    hl_free(t->mem, t->special_V);
    hl_free(t->mem, t->start);
    hl_free(t->mem, t->bytes);
    hl_bpe_fini(&t->bpe, t->mem);
    hl_pretokenizer_free(t->pretokenizer);
    hl_free(t->mem, t);
}

enum hl_status hl_tokenizer_byte(struct hl_mem *mem, struct hl_tokenizer **out,
                                 struct hl_diag *diag) {
    char bytes[256];
    struct hl_token_spec tokens[256];
    for (int i = 0; i < 256; i++) {
        bytes[i] = (char)i;
        tokens[i] = (struct hl_token_spec){.id = i, .bytes = &bytes[i], .n = 1};
    }
    struct hl_added_spec end = {256, true, false, HL_END_OF_TEXT, strlen(HL_END_OF_TEXT)};
    struct hl_tokenizer_spec spec = {
        .tokens = tokens, .n_tokens = 256, .added = &end, .n_added = 1};
    return hl_tokenizer_build(mem, &spec, out, diag);
}
