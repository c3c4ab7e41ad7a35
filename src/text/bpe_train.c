/* Learning a byte-level BPE. See bpe_train.h.
 *
 * Main idea: count the different words once; keep each as a row of token ids; merging a pair visits
 * only the words that hold it and changes the counts of the pairs around each place.
 *
 * No token is made twice. Where some letters become one token no merge crossed their ends, so what
 * happened between the ends depended on these letters alone, and they are merged the same way
 * everywhere. */
#include "text/bpe_train.h"

#include <assert.h>
#include <string.h>

#include "text/pair_counts.h"
#include "text/tokenizer_internal.h"
#include "text/unicode.h"
#include "text/word_counts.h"

enum { N_BYTES = 256, MAX_VOCAB = 1 << 24 };

struct trainer {
    struct hl_mem *mem;
    struct hl_word_counts words;
    int32_t *symbols; /* ids of word w at [words.words[w].start, + length[w]) */
    uint32_t *length;
    struct hl_pair_counts pairs;
    struct hl_merge *merges; /* merge i makes token 256 + i */
    size_t n_merges, merges_capacity;
};

/* ---- words ---- */

static enum hl_status count_piece(struct trainer *tr, struct hl_words *walk, const char *text,
                                  size_t n, int64_t piece, struct hl_diag *diag) {
    size_t valid = hl_utf8_valid(text, n), n_word;
    if (valid < n)
        return hl_fail(diag, HL_E_FORMAT,
                       "invalid UTF-8 at byte %zu of document %lld of the training text", valid,
                       (long long)piece);
    const char *word;
    uint32_t index;
    enum hl_status status;
    hl_words_reset(walk, text, n);
    while ((status = hl_words_next(walk, &word, &n_word, diag)) == HL_OK)
        if ((status = hl_word_counts_add(&tr->words, word, n_word, 1, &index, diag)) != HL_OK)
            break;
    return status == HL_END ? HL_OK : status;
}

static enum hl_status count_pieces(struct trainer *tr, struct hl_text_source *source,
                                   const struct hl_pretokenizer *pretokenizer,
                                   struct hl_diag *diag) {
    struct hl_words walk;
    const char *text;
    size_t n;
    enum hl_status status = hl_words_begin(&walk, pretokenizer, diag);
    for (int64_t piece = 1; status == HL_OK; piece++) {
        status = source->next(source, &text, &n, diag);
        if (status == HL_OK) status = count_piece(tr, &walk, text, n, piece, diag);
    }
    hl_words_end(&walk);
    return status == HL_END ? HL_OK : status;
}

static enum hl_status count_words(struct trainer *tr, struct hl_text_source *source,
                                  struct hl_diag *diag) {
    struct hl_pretokenizer *pretokenizer;
    enum hl_status status = hl_pretokenizer_new(tr->mem, HL_PRETOKENIZER_GPT2, &pretokenizer, diag);
    if (status != HL_OK) return status;
    status = count_pieces(tr, source, pretokenizer, diag);
    hl_pretokenizer_free(pretokenizer);
    if (status == HL_OK && tr->words.n_words == 0)
        return hl_fail(diag, HL_E_USER, "there is no text to train a tokenizer on");
    return status;
}

/* ---- start: every byte is a token ---- */

static enum hl_status spell_words(struct trainer *tr, struct hl_diag *diag) {
    size_t n = tr->words.n_bytes;
    tr->symbols = hl_alloc(tr->mem, n, sizeof *tr->symbols);
    tr->length = hl_alloc(tr->mem, tr->words.n_words, sizeof *tr->length);
    if (!tr->symbols || !tr->length)
        return hl_fail_memory(diag, n * sizeof *tr->symbols, "training words");
    for (size_t i = 0; i < n; i++) tr->symbols[i] = (unsigned char)tr->words.bytes[i];
    for (size_t w = 0; w < tr->words.n_words; w++) tr->length[w] = tr->words.words[w].n;
    return HL_OK;
}

static enum hl_status count_pairs(struct trainer *tr, struct hl_diag *diag) {
    for (size_t w = 0; w < tr->words.n_words; w++) {
        const struct hl_counted_word *word = &tr->words.words[w];
        const int32_t *ids = tr->symbols + word->start;
        for (uint32_t i = 0; i + 1 < word->n; i++) {
            enum hl_status status = hl_pair_counts_raise(&tr->pairs, ids[i], ids[i + 1],
                                                         word->count, (uint32_t)w, diag);
            if (status != HL_OK) return status;
        }
    }
    return hl_pair_counts_settle(&tr->pairs, diag);
}

/* ---- one merge ---- */

/* Merge all places of one word; counts of the pairs beside each place follow. */
static enum hl_status merge_in_word(struct trainer *tr, const struct hl_merge *merge, uint32_t w,
                                    struct hl_diag *diag) {
    int32_t *ids = tr->symbols + tr->words.words[w].start;
    int64_t count = tr->words.words[w].count;
    uint32_t n = tr->length[w], used = 0;
    enum hl_status status = HL_OK;
    for (uint32_t i = 0; i < n; used++) {
        if (i + 1 == n || ids[i] != merge->left || ids[i + 1] != merge->right) {
            ids[used] = ids[i++];
            continue;
        }
        if (used) {
            hl_pair_counts_lower(&tr->pairs, ids[used - 1], merge->left, count);
            status = hl_pair_counts_raise(&tr->pairs, ids[used - 1], merge->result, count, w, diag);
            if (status != HL_OK) return status;
        }
        if (i + 2 < n) {
            hl_pair_counts_lower(&tr->pairs, merge->right, ids[i + 2], count);
            status = hl_pair_counts_raise(&tr->pairs, merge->result, ids[i + 2], count, w, diag);
            if (status != HL_OK) return status;
        }
        hl_pair_counts_lower(&tr->pairs, merge->left, merge->right, count);
        ids[used] = merge->result;
        i += 2;
    }
    tr->length[w] = used;
    return HL_OK;
}

static enum hl_status merge_pair(struct trainer *tr, uint32_t pair, struct hl_diag *diag) {
    if (tr->n_merges == tr->merges_capacity) {
        size_t capacity = tr->merges_capacity * 2 + 256;
        struct hl_merge *merges = hl_realloc(tr->mem, tr->merges, capacity, sizeof *merges);
        if (!merges) return hl_fail_memory(diag, capacity * sizeof *merges, "merges");
        tr->merges = merges;
        tr->merges_capacity = capacity;
    }
    struct hl_merge *merge = &tr->merges[tr->n_merges];
    *merge = (struct hl_merge){tr->pairs.pairs[pair].left, tr->pairs.pairs[pair].right,
                               N_BYTES + (int32_t)tr->n_merges};
    tr->n_merges++;
    for (uint32_t at = tr->pairs.pairs[pair].links; at != HL_NO_LINK;
         at = tr->pairs.links[at].next) {
        enum hl_status status = merge_in_word(tr, merge, tr->pairs.links[at].word, diag);
        if (status != HL_OK) return status;
    }
    assert(tr->pairs.pairs[pair].count == 0);
    hl_pair_counts_clear(&tr->pairs, pair);
    return hl_pair_counts_settle(&tr->pairs, diag);
}

/* ---- the whole training ---- */

static enum hl_status learn(struct trainer *tr, int64_t n_merges, struct hl_diag *diag) {
    enum hl_status status = spell_words(tr, diag);
    if (status == HL_OK) status = count_pairs(tr, diag);
    while (status == HL_OK && (int64_t)tr->n_merges < n_merges) {
        uint32_t pair;
        if (hl_pair_counts_best(&tr->pairs, 2, &pair) == HL_END) break;
        status = merge_pair(tr, pair, diag);
    }
    return status;
}

/* Spell all tokens; those that a merge makes from tokens before them. */
static enum hl_status spell_tokens(const struct trainer *tr, struct hl_token_spec *tokens,
                                   char **bytes_out, struct hl_diag *diag) {
    size_t n_bytes = N_BYTES;
    for (size_t i = 0; i < N_BYTES; i++) tokens[i].n = 1;
    for (size_t i = 0; i < tr->n_merges; i++) {
        tokens[N_BYTES + i].n = tokens[tr->merges[i].left].n + tokens[tr->merges[i].right].n;
        n_bytes += tokens[N_BYTES + i].n;
    }
    char *to = *bytes_out = hl_alloc(tr->mem, n_bytes, 1);
    if (!to) return hl_fail_memory(diag, n_bytes, "the vocabulary");
    for (size_t id = 0; id < N_BYTES + tr->n_merges; id++) {
        tokens[id].id = (int32_t)id;
        tokens[id].bytes = to;
        if (id < N_BYTES) *to++ = (char)id;
        else {
            const struct hl_token_spec *left = &tokens[tr->merges[id - N_BYTES].left];
            const struct hl_token_spec *right = &tokens[tr->merges[id - N_BYTES].right];
            to = mempcpy(mempcpy(to, left->bytes, left->n), right->bytes, right->n);
        }
    }
    return HL_OK;
}

static enum hl_status freeze(struct trainer *tr, struct hl_tokenizer **out, struct hl_diag *diag) {
    size_t n = N_BYTES + tr->n_merges;
    char *bytes = NULL;
    struct hl_token_spec *tokens = hl_alloc(tr->mem, n, sizeof *tokens);
    if (!tokens) return hl_fail_memory(diag, n * sizeof *tokens, "the vocabulary");
    struct hl_added_spec end = {(int32_t)n, true, false, HL_END_OF_TEXT, strlen(HL_END_OF_TEXT)};
    struct hl_tokenizer_spec spec = {.tokens = tokens,
                                     .n_tokens = n,
                                     .merges = tr->merges,
                                     .n_merges = tr->n_merges,
                                     .added = &end,
                                     .n_added = 1,
                                     .pretokenizer = HL_PRETOKENIZER_GPT2};
    enum hl_status status = spell_tokens(tr, tokens, &bytes, diag);
    if (status == HL_OK) status = hl_tokenizer_build(tr->mem, &spec, out, diag);
    hl_free(tr->mem, bytes);
    hl_free(tr->mem, tokens);
    return status;
}

static void tell(const struct trainer *tr, int64_t vocab_size, struct hl_log *log) {
    int64_t got = N_BYTES + (int64_t)tr->n_merges + 1;
    hl_log(log, HL_LOG_INFO,
           "tokenizer: %zu merges learned from %zu different words, vocabulary %lld", tr->n_merges,
           tr->words.n_words, (long long)got);
    if (got < vocab_size)
        hl_log(log, HL_LOG_WARN,
               "tokenizer: the vocabulary has %lld tokens instead of %lld: no pair "
               "occurs twice any more; give more text",
               (long long)got, (long long)vocab_size);
}

enum hl_status hl_bpe_train(struct hl_mem *mem, struct hl_text_source *source, int64_t vocab_size,
                            struct hl_tokenizer **out, struct hl_log *log, struct hl_diag *diag) {
    if (vocab_size < N_BYTES + 1 || vocab_size > MAX_VOCAB)
        return hl_fail(diag, HL_E_USER,
                       "vocabulary size %lld: at least 257 (256 bytes and %s), at most %d",
                       (long long)vocab_size, HL_END_OF_TEXT, MAX_VOCAB);
    struct trainer tr = {
        .mem = mem, .words = {.mem = mem}, .pairs = {.mem = mem, .free_links = HL_NO_LINK}};
    enum hl_status status = count_words(&tr, source, diag);
    if (status == HL_OK) status = learn(&tr, vocab_size - N_BYTES - 1, diag);
    if (status == HL_OK) status = freeze(&tr, out, diag);
    if (status == HL_OK) tell(&tr, vocab_size, log);
    hl_word_counts_free(&tr.words);
    hl_pair_counts_free(&tr.pairs);
    hl_free(mem, tr.symbols);
    hl_free(mem, tr.length);
    hl_free(mem, tr.merges);
    return status;
}
