/* The canonical tokenizer.json: vocabulary in order of id, keys in a fixed order, so equal
 * tokenizers give equal text.
 *
 * Merges are written as "left right" strings, which every release of the `tokenizers` library
 * reads; only a vocabulary with a blank inside a merged token needs the newer pairs. Format:
 * docs/formats/tokenizer.md. */
#include <string.h>

#include "text/byte_alphabet.h"
#include "text/tokenizer_internal.h"

static const char *boolean(bool value) { return value ? "true" : "false"; }

/* JSON string content of a token's text, without the quotes. */
static void put_text(struct hl_buf *out, const struct hl_tokenizer *t,
                     const struct hl_byte_alphabet *alphabet, int32_t id) {
    const char *bytes = t->bytes + t->start[id];
    size_t n = t->start[id + 1] - t->start[id];
    for (size_t i = 0; i < n; i++) {
        char c[2] = {bytes[i]};
        size_t n_c = t->kind_V[id] == HL_TOKEN_RAW
                         ? 1
                         : hl_byte_alphabet_put(alphabet, (uint8_t)bytes[i], c);
        if (c[0] == '"' || c[0] == '\\') hl_buf_add(out, "\\", 1);
        if ((unsigned char)c[0] < 0x20)
            hl_buf_printf(out, "\\u%04x", (unsigned)(unsigned char)c[0]);
        else hl_buf_add(out, c, n_c);
    }
}

static void put_vocab(struct hl_buf *out, const struct hl_tokenizer *t,
                      const struct hl_byte_alphabet *alphabet) {
    const char *separator = "";
    hl_buf_puts(out, "    \"vocab\": {");
    for (int32_t id = 0; id < t->vocab_size; id++) {
        if (t->kind_V[id] != HL_TOKEN_BYTES && t->kind_V[id] != HL_TOKEN_RAW) continue;
        hl_buf_printf(out, "%s\n      \"", separator);
        put_text(out, t, alphabet, id);
        hl_buf_printf(out, "\": %d", id);
        separator = ",";
    }
    hl_buf_puts(out, "\n    },\n");
}

static bool has_blank(const struct hl_tokenizer *t, int32_t id) {
    return t->kind_V[id] == HL_TOKEN_RAW &&
           memchr(t->bytes + t->start[id], ' ', t->start[id + 1] - t->start[id]);
}

static void put_merges(struct hl_buf *out, const struct hl_tokenizer *t,
                       const struct hl_byte_alphabet *alphabet) {
    bool pairs = false;
    for (size_t i = 0; i < t->bpe.n_merges; i++)
        pairs =
            pairs || has_blank(t, t->bpe.merges[i].left) || has_blank(t, t->bpe.merges[i].right);
    hl_buf_puts(out, "    \"merges\": [");
    for (size_t i = 0; i < t->bpe.n_merges; i++) {
        hl_buf_puts(out, i ? ",\n      " : "\n      ");
        hl_buf_puts(out, pairs ? "[\"" : "\"");
        put_text(out, t, alphabet, t->bpe.merges[i].left);
        hl_buf_puts(out, pairs ? "\", \"" : " ");
        put_text(out, t, alphabet, t->bpe.merges[i].right);
        hl_buf_puts(out, pairs ? "\"]" : "\"");
    }
    hl_buf_puts(out, t->bpe.n_merges ? "\n    ]\n" : "]\n");
}

static const struct hl_added_token *next_added(const struct hl_tokenizer *t, int32_t above) {
    const struct hl_added_token *next = NULL;
    for (size_t i = 0; i < t->n_added; i++)
        if (t->added[i].id > above && (!next || t->added[i].id < next->id)) next = &t->added[i];
    return next;
}

/* In order of id: the `tokenizers` library numbers them by their order. */
static void put_added(struct hl_buf *out, const struct hl_tokenizer *t) {
    const char *separator = "";
    hl_buf_puts(out, "  \"added_tokens\": [");
    for (const struct hl_added_token *a = next_added(t, -1); a; a = next_added(t, a->id)) {
        hl_buf_printf(out, "%s\n    {\"id\": %d, \"content\": ", separator, a->id);
        hl_buf_json_string(out, a->text);
        hl_buf_printf(out,
                      ", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
                      "\"normalized\": %s, \"special\": %s}",
                      boolean(a->normalized), boolean(a->special));
        separator = ",";
    }
    hl_buf_puts(out, t->n_added ? "\n  ],\n" : "],\n");
}

enum hl_status hl_tokenizer_to_json(const struct hl_tokenizer *t, struct hl_buf *out,
                                    struct hl_diag *diag) {
    struct hl_byte_alphabet alphabet;
    hl_byte_alphabet_init(&alphabet);
    hl_buf_puts(out, "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n");
    put_added(out, t);
    hl_buf_puts(out, "  \"normalizer\": null,\n");
    hl_buf_printf(out,
                  "  \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
                  "\"trim_offsets\": true, "
                  "\"use_regex\": %s},\n",
                  boolean(t->pretokenizer_kind == HL_PRETOKENIZER_GPT2));
    hl_buf_puts(
        out,
        "  \"post_processor\": null,\n"
        "  \"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, \"trim_offsets\": "
        "true, \"use_regex\": true},\n"
        "  \"model\": {\n    \"type\": \"BPE\",\n    \"dropout\": null,\n    \"unk_token\": null,\n"
        "    \"continuing_subword_prefix\": null,\n    \"end_of_word_suffix\": null,\n    "
        "\"fuse_unk\": false,\n"
        "    \"byte_fallback\": false,\n");
    hl_buf_printf(out, "    \"ignore_merges\": %s,\n", boolean(t->ignore_merges));
    put_vocab(out, t, &alphabet);
    put_merges(out, t, &alphabet);
    hl_buf_puts(out, "  }\n}\n");
    return out->failed ? hl_fail_memory(diag, out->n, "tokenizer.json") : HL_OK;
}
