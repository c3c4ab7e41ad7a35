/* Reading tokenizer.json: byte-level BPE of the GPT-2 kind.
 *
 * Main idea: every key is either used, known to change nothing, or refused by its name. A tokenizer
 * that is almost right trains a model that is silently wrong, so there is no fallback. Where the
 * `tokenizers` library itself ignores what a file says (ids of added tokens), a file that says
 * something else is refused too.
 *
 * Not here (the room is left): normalizers, other pre-tokenizers than ByteLevel, byte fallback, bos
 * and eos from the post-processor. Format: docs/formats/tokenizer.md. */
#include <jansson.h>
#include <string.h>

#include "text/byte_alphabet.h"
#include "text/tokenizer_internal.h"

struct reader {
    struct hl_mem *mem;
    const char *name;
    struct hl_diag *diag;
    struct hl_byte_alphabet alphabet;
    json_t *root, *vocab;
    bool needs_all_bytes; /* a key is harmless only when no byte is without a token */
    const char *why_all_bytes;
    struct hl_token_spec *tokens;
    char *bytes;
    struct hl_merge *merges;
    struct hl_added_spec *added;
    struct hl_buf joined;
    struct hl_tokenizer_spec spec;
};

/* ---- refusals ---- */

static enum hl_status malformed(struct reader *r, const char *path, const char *want) {
    return hl_fail_at(r->diag, HL_E_FORMAT, r->name, 0, 0, "%s must be %s", path, want);
}

static enum hl_status unsupported(struct reader *r, const char *path, const char *what) {
    return hl_fail_at(r->diag, HL_E_UNSUPPORTED, r->name, 0, 0, "%s: %s is not supported", path,
                      what);
}

/* keys: NULL-terminated. */
static enum hl_status check_keys(struct reader *r, json_t *object, const char *path,
                                 const char *const *keys) {
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value) {
        const char *const *known = keys;
        while (*known && strcmp(*known, key) != 0) known++;
        if (!*known)
            return hl_fail_at(r->diag, HL_E_UNSUPPORTED, r->name, 0, 0,
                              "key \"%.60s\"%s%s is not understood", key, *path ? " of " : "",
                              path);
    }
    return HL_OK;
}

static bool absent(const json_t *value) { return !value || json_is_null(value); }

static enum hl_status must_be_absent(struct reader *r, json_t *object, const char *key,
                                     const char *path, const char *what) {
    return absent(json_object_get(object, key)) ? HL_OK : unsupported(r, path, what);
}

static bool has_type(json_t *object, const char *type) {
    json_t *value = json_object_get(object, "type");
    return json_is_string(value) && strcmp(json_string_value(value), type) == 0;
}

static enum hl_status refuse_type(struct reader *r, json_t *object, const char *path,
                                  const char *supported) {
    json_t *type = json_object_get(object, "type");
    return hl_fail_at(r->diag, HL_E_UNSUPPORTED, r->name, 0, 0,
                      "%s of type \"%.60s\" is not supported; only %s is", path,
                      json_is_string(type) ? json_string_value(type) : "?", supported);
}

static enum hl_status get_bool(struct reader *r, json_t *object, const char *key, const char *path,
                               bool *out) {
    json_t *value = json_object_get(object, key);
    if (!json_is_boolean(value)) return malformed(r, path, "true or false");
    *out = json_is_true(value);
    return HL_OK;
}

/* ---- everything around the model ---- */

static enum hl_status read_top(struct reader *r) {
    static const char *const keys[] = {
        "version",       "truncation",     "padding", "added_tokens", "normalizer",
        "pre_tokenizer", "post_processor", "decoder", "model",        NULL};
    if (!json_is_object(r->root)) return malformed(r, "the file", "a JSON object");
    enum hl_status status = check_keys(r, r->root, "", keys);
    json_t *version = json_object_get(r->root, "version");
    if (status == HL_OK && version &&
        (!json_is_string(version) || strcmp(json_string_value(version), "1.0") != 0))
        status = unsupported(r, "version", "any other than \"1.0\"");
    if (status == HL_OK)
        status = must_be_absent(r, r->root, "truncation", "truncation",
                                "cutting texts (set it to null)");
    if (status == HL_OK)
        status =
            must_be_absent(r, r->root, "padding", "padding", "filling up texts (set it to null)");
    json_t *normalizer = json_object_get(r->root, "normalizer");
    if (status == HL_OK && !absent(normalizer))
        status = refuse_type(r, normalizer, "normalizer", "null");
    return status;
}

static const char *const BYTE_LEVEL_KEYS[] = {"type", "add_prefix_space", "trim_offsets",
                                              "use_regex", NULL};

static enum hl_status read_pre_tokenizer(struct reader *r) {
    json_t *p = json_object_get(r->root, "pre_tokenizer");
    bool prefix = false, trim = false, regex = true;
    if (absent(p)) return unsupported(r, "pre_tokenizer", "none");
    if (!has_type(p, "ByteLevel")) return refuse_type(r, p, "pre_tokenizer", "ByteLevel");
    enum hl_status status = check_keys(r, p, "pre_tokenizer", BYTE_LEVEL_KEYS);
    if (status == HL_OK)
        status = get_bool(r, p, "add_prefix_space", "pre_tokenizer.add_prefix_space", &prefix);
    if (status == HL_OK)
        status = get_bool(r, p, "trim_offsets", "pre_tokenizer.trim_offsets", &trim);
    if (status == HL_OK && json_object_get(p, "use_regex"))
        status = get_bool(r, p, "use_regex", "pre_tokenizer.use_regex", &regex);
    if (status == HL_OK && prefix)
        status = unsupported(r, "pre_tokenizer.add_prefix_space", "true");
    r->spec.pretokenizer = regex ? HL_PRETOKENIZER_GPT2 : HL_PRETOKENIZER_NONE;
    return status;
}

/* Its flags concern offsets only, never ids or text. */
static enum hl_status read_byte_level(struct reader *r, const char *key) {
    json_t *p = json_object_get(r->root, key);
    if (!has_type(p, "ByteLevel")) return refuse_type(r, p, key, "ByteLevel");
    return check_keys(r, p, key, BYTE_LEVEL_KEYS);
}

static enum hl_status read_around(struct reader *r) {
    enum hl_status status = read_top(r);
    if (status == HL_OK) status = read_pre_tokenizer(r);
    if (status == HL_OK && !absent(json_object_get(r->root, "post_processor")))
        status = read_byte_level(r, "post_processor");
    if (status == HL_OK && absent(json_object_get(r->root, "decoder")))
        status = unsupported(r, "decoder", "none");
    if (status == HL_OK) status = read_byte_level(r, "decoder");
    return status;
}

/* ---- model ---- */

static bool empty_text(const json_t *value) {
    return absent(value) || (json_is_string(value) && json_string_length(value) == 0);
}

/* What the library does with a character it has no token for does not matter when every byte has
 * one. */
static void note_all_bytes(struct reader *r, const json_t *value, const char *path) {
    if (absent(value) || json_is_false(value)) return;
    r->needs_all_bytes = true;
    r->why_all_bytes = path;
}

static enum hl_status read_model_flags(struct reader *r, json_t *model) {
    static const char *const keys[] = {"type",
                                       "dropout",
                                       "unk_token",
                                       "continuing_subword_prefix",
                                       "end_of_word_suffix",
                                       "fuse_unk",
                                       "byte_fallback",
                                       "ignore_merges",
                                       "vocab",
                                       "merges",
                                       NULL};
    if (json_object_get(model, "type") && !has_type(model, "BPE"))
        return refuse_type(r, model, "model", "BPE");
    enum hl_status status = check_keys(r, model, "model", keys);
    json_t *dropout = json_object_get(model, "dropout");
    if (status == HL_OK && !absent(dropout) &&
        !(json_is_number(dropout) && json_number_value(dropout) == 0))
        status = unsupported(r, "model.dropout", "dropping merges at random (set it to null)");
    if (status == HL_OK && !empty_text(json_object_get(model, "continuing_subword_prefix")))
        status = unsupported(r, "model.continuing_subword_prefix", "any but \"\"");
    if (status == HL_OK && !empty_text(json_object_get(model, "end_of_word_suffix")))
        status = unsupported(r, "model.end_of_word_suffix", "any but \"\"");
    if (status == HL_OK && !absent(json_object_get(model, "ignore_merges")))
        status = get_bool(r, model, "ignore_merges", "model.ignore_merges", &r->spec.ignore_merges);
    note_all_bytes(r, json_object_get(model, "byte_fallback"), "model.byte_fallback");
    note_all_bytes(r, json_object_get(model, "unk_token"), "model.unk_token");
    return status;
}

static bool get_id(const json_t *value, int32_t *out) {
    if (!json_is_integer(value)) return false;
    json_int_t id = json_integer_value(value);
    if (id < 0 || id >= INT32_MAX) return false;
    *out = (int32_t)id;
    return true;
}

static enum hl_status read_vocab(struct reader *r) {
    const char *key;
    json_t *value;
    size_t n = json_object_size(r->vocab), n_bytes = 0;
    json_object_foreach(r->vocab, key, value) n_bytes += strlen(key);
    r->tokens = hl_alloc(r->mem, n, sizeof *r->tokens);
    r->bytes = hl_alloc(r->mem, n_bytes, 1);
    if (!r->tokens || !r->bytes)
        return hl_fail_memory(r->diag, n * sizeof *r->tokens, "the vocabulary");
    char *to = r->bytes;
    json_object_foreach(r->vocab, key, value) {
        struct hl_token_spec *token = &r->tokens[r->spec.n_tokens++];
        *token = (struct hl_token_spec){.bytes = to, .n = strlen(key)};
        if (!get_id(value, &token->id))
            return hl_fail_at(r->diag, HL_E_FORMAT, r->name, 0, 0,
                              "model.vocab: the id of \"%.60s\" is no id", key);
        token->raw = !hl_byte_alphabet_bytes(&r->alphabet, key, token->n, to, &token->n);
        if (token->raw) memcpy(to, key, token->n);
        to += token->n;
    }
    r->spec.tokens = r->tokens;
    return HL_OK;
}

struct text {
    const char *at;
    size_t n;
};

static struct text text_of(const json_t *string) {
    return (struct text){json_string_value(string), json_string_length(string)};
}

/* "left right" or ["left", "right"]. */
static bool split_merge(const json_t *merge, bool as_pairs, struct text *left, struct text *right) {
    if (as_pairs) {
        const json_t *l = json_array_get(merge, 0), *r = json_array_get(merge, 1);
        if (json_array_size(merge) != 2 || !json_is_string(l) || !json_is_string(r)) return false;
        *left = text_of(l);
        *right = text_of(r);
        return true;
    }
    if (!json_is_string(merge)) return false;
    struct text whole = text_of(merge);
    const char *blank = memchr(whole.at, ' ', whole.n);
    if (!blank) return false;
    *left = (struct text){whole.at, (size_t)(blank - whole.at)};
    *right = (struct text){blank + 1, whole.n - left->n - 1};
    return !memchr(right->at, ' ', right->n);
}

static enum hl_status find_token(struct reader *r, struct text text, size_t merge,
                                 int32_t *id_out) {
    if (get_id(json_object_getn(r->vocab, text.at, text.n), id_out)) return HL_OK;
    return hl_fail_at(r->diag, HL_E_FORMAT, r->name, 0, 0,
                      "model.merges[%zu]: \"%.*s\" is not in model.vocab", merge,
                      (int)(text.n < 60 ? text.n : 60), text.at);
}

static enum hl_status read_merge(struct reader *r, const json_t *item, bool as_pairs, size_t i) {
    struct text left, right;
    if (!split_merge(item, as_pairs, &left, &right))
        return hl_fail_at(r->diag, HL_E_FORMAT, r->name, 0, 0,
                          "model.merges[%zu] must be two tokens, spelled like the other merges", i);
    r->joined.n = 0;
    hl_buf_add(&r->joined, left.at, left.n);
    hl_buf_add(&r->joined, right.at, right.n);
    if (r->joined.failed) return hl_fail_memory(r->diag, left.n + right.n, "a merge");
    struct hl_merge *merge = &r->merges[r->spec.n_merges++];
    enum hl_status status = find_token(r, left, i, &merge->left);
    if (status == HL_OK) status = find_token(r, right, i, &merge->right);
    if (status == HL_OK)
        status = find_token(r, (struct text){r->joined.data, r->joined.n}, i, &merge->result);
    return status;
}

/* Files converted from merges.txt keep its first line. */
static bool is_version_line(const json_t *item) {
    return json_is_string(item) && strncmp(json_string_value(item), "#version", 8) == 0;
}

static enum hl_status read_merges(struct reader *r, json_t *merges) {
    if (!json_is_array(merges)) return malformed(r, "model.merges", "a list");
    size_t n = json_array_size(merges);
    bool as_pairs = json_is_array(json_array_get(merges, 0));
    r->merges = hl_alloc(r->mem, n, sizeof *r->merges);
    if (!r->merges) return hl_fail_memory(r->diag, n * sizeof *r->merges, "the merges");
    enum hl_status status = HL_OK;
    for (size_t i = 0; i < n && status == HL_OK; i++) {
        const json_t *item = json_array_get(merges, i);
        if (!is_version_line(item)) status = read_merge(r, item, as_pairs, i);
    }
    r->spec.merges = r->merges;
    return status;
}

static enum hl_status read_model(struct reader *r) {
    json_t *model = json_object_get(r->root, "model");
    if (!json_is_object(model)) return malformed(r, "model", "an object");
    enum hl_status status = read_model_flags(r, model);
    if (status != HL_OK) return status;
    r->vocab = json_object_get(model, "vocab");
    if (!json_is_object(r->vocab)) return malformed(r, "model.vocab", "an object");
    status = read_vocab(r);
    if (status == HL_OK) status = read_merges(r, json_object_get(model, "merges"));
    return status;
}

/* ---- added tokens ---- */

static enum hl_status read_added_token(struct reader *r, json_t *item,
                                       struct hl_added_spec *added) {
    static const char *const keys[] = {"id",     "content",    "single_word", "lstrip",
                                       "rstrip", "normalized", "special",     NULL};
    json_t *content = json_object_get(item, "content");
    bool single_word = false, lstrip = false, rstrip = false;
    if (!json_is_object(item)) return malformed(r, "an item of added_tokens", "an object");
    enum hl_status status = check_keys(r, item, "added_tokens", keys);
    if (status != HL_OK) return status;
    if (!get_id(json_object_get(item, "id"), &added->id))
        return malformed(r, "added_tokens: id", "a token id");
    if (!json_is_string(content)) return malformed(r, "added_tokens: content", "a string");
    added->text = json_string_value(content);
    added->n = json_string_length(content);
    status = get_bool(r, item, "single_word", "added_tokens: single_word", &single_word);
    if (status == HL_OK) status = get_bool(r, item, "lstrip", "added_tokens: lstrip", &lstrip);
    if (status == HL_OK) status = get_bool(r, item, "rstrip", "added_tokens: rstrip", &rstrip);
    if (status == HL_OK)
        status = get_bool(r, item, "normalized", "added_tokens: normalized", &added->normalized);
    if (status == HL_OK)
        status = get_bool(r, item, "special", "added_tokens: special", &added->special);
    if (status == HL_OK && (single_word || lstrip || rstrip))
        status = unsupported(r, "added_tokens",
                             single_word ? "single_word"
                             : lstrip    ? "lstrip"
                                         : "rstrip");
    return status;
}

/* The id that the `tokenizers` library would give: that of the vocabulary, or the next free one
 * above it. */
static enum hl_status check_added_id(struct reader *r, const struct hl_added_spec *added,
                                     int64_t *largest) {
    int32_t id;
    int64_t n_vocab = (int64_t)json_object_size(r->vocab);
    if (!get_id(json_object_getn(r->vocab, added->text, added->n), &id))
        id = (int32_t)(*largest >= n_vocab ? *largest + 1 : n_vocab);
    if (id > *largest) *largest = id;
    if (id == added->id) return HL_OK;
    return hl_fail_at(r->diag, HL_E_UNSUPPORTED, r->name, 0, 0,
                      "added_tokens: \"%.60s\" has id %d, but its place in the list makes it %d",
                      added->text, added->id, id);
}

static enum hl_status read_added(struct reader *r) {
    json_t *list = json_object_get(r->root, "added_tokens");
    if (absent(list)) return HL_OK;
    if (!json_is_array(list)) return malformed(r, "added_tokens", "a list");
    size_t n = json_array_size(list);
    int64_t largest = -1;
    r->added = hl_alloc(r->mem, n, sizeof *r->added);
    if (!r->added) return hl_fail_memory(r->diag, n * sizeof *r->added, "added tokens");
    enum hl_status status = HL_OK;
    for (size_t i = 0; i < n && status == HL_OK; i++) {
        status = read_added_token(r, json_array_get(list, i), &r->added[i]);
        if (status == HL_OK) status = check_added_id(r, &r->added[i], &largest);
    }
    r->spec.added = r->added;
    r->spec.n_added = n;
    return status;
}

/* ---- the whole file ---- */

/* Bytes that no valid UTF-8 contains need no token. */
static bool in_utf8(int byte) { return byte < 0xF5 && byte != 0xC0 && byte != 0xC1; }

static enum hl_status check_all_bytes(struct reader *r, const struct hl_tokenizer *t) {
    for (int byte = 0; byte < 256 && r->needs_all_bytes; byte++)
        if (in_utf8(byte) && t->byte_id[byte] < 0)
            return hl_fail_at(r->diag, HL_E_UNSUPPORTED, r->name, 0, 0,
                              "%s is not supported when a byte (here 0x%02X) has no token",
                              r->why_all_bytes, (unsigned)byte);
    return HL_OK;
}

static enum hl_status build(struct reader *r, struct hl_tokenizer **out) {
    struct hl_diag why = {0};
    struct hl_tokenizer *t = NULL;
    enum hl_status status = hl_tokenizer_build(r->mem, &r->spec, &t, &why);
    if (status != HL_OK) return hl_fail_at(r->diag, status, r->name, 0, 0, "%.900s", why.text);
    status = check_all_bytes(r, t);
    if (status == HL_OK) *out = t;
    else hl_tokenizer_free(t);
    return status;
}

static enum hl_status parse(struct reader *r, const char *json, size_t n) {
    static const char pointer[] = "version https://git-lfs";
    json_error_t error;
    if (n >= sizeof pointer - 1 && memcmp(json, pointer, sizeof pointer - 1) == 0)
        return hl_fail_at(r->diag, HL_E_FORMAT, r->name, 0, 0,
                          "is only a git-lfs pointer; fetch the file itself with git lfs pull");
    r->root = json_loadb(json, n, JSON_REJECT_DUPLICATES, &error);
    if (r->root) return HL_OK;
    return hl_fail_at(r->diag, HL_E_FORMAT, r->name, error.line, error.column, "not JSON: %s",
                      error.text);
}

enum hl_status hl_tokenizer_from_json(struct hl_mem *mem, const char *json, size_t n,
                                      const char *name, struct hl_tokenizer **out,
                                      struct hl_diag *diag) {
    struct reader r = {.mem = mem, .name = name, .diag = diag, .joined = {.mem = mem}};
    hl_byte_alphabet_init(&r.alphabet);
    enum hl_status status = parse(&r, json, n);
    if (status == HL_OK) status = read_around(&r);
    if (status == HL_OK) status = read_model(&r);
    if (status == HL_OK) status = read_added(&r);
    if (status == HL_OK) status = build(&r, out);
    json_decref(r.root);
    hl_free(mem, r.tokens);
    hl_free(mem, r.bytes);
    hl_free(mem, r.merges);
    hl_free(mem, r.added);
    hl_buf_free(&r.joined);
    return status;
}
