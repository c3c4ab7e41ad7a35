/* Learning a BPE: against a naive trainer that counts everything again at every step, for the rule
 * of ties, for odd and hostile text, for each allocation failing in turn. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "text/bpe_train.h"
#include "text/pair_counts.h"
#include "text/tokenizer_internal.h"
#include "text/word_counts.h"

struct pieces {
    struct hl_text_source source;
    const char *const *text;
    const size_t *size; /* NULL: text is NUL-terminated */
    size_t n, at;
};

static enum hl_status next_piece(struct hl_text_source *source, const char **text, size_t *n,
                                 struct hl_diag *diag) {
    (void)diag;
    struct pieces *pieces = (struct pieces *)source;
    if (pieces->at == pieces->n) return HL_END;
    *text = pieces->text[pieces->at];
    *n = pieces->size ? pieces->size[pieces->at] : strlen(*text);
    pieces->at++;
    return HL_OK;
}

static enum hl_status train_text(struct hl_mem *mem, const char *text, size_t n, int64_t vocab_size,
                                 struct hl_tokenizer **out, struct hl_log *log,
                                 struct hl_diag *diag) {
    struct pieces pieces = {{next_piece}, &text, &n, 1, 0};
    return hl_bpe_train(mem, &pieces.source, vocab_size, out, log, diag);
}

/* ---- the naive trainer: one word per line of letters, no pre-tokenizer ---- */

enum { MAX_WORDS = 64, MAX_WORD = 24, MAX_TOKENS = 400 };

struct naive {
    int32_t id[MAX_WORDS][MAX_WORD];
    size_t length[MAX_WORDS], n_words;
    char spelling[MAX_TOKENS][MAX_WORD + 1];
    int32_t n_tokens;
    struct hl_merge merges[MAX_TOKENS];
    size_t n_merges;
};

static long count_pair(const struct naive *naive, int32_t left, int32_t right) {
    long count = 0;
    for (size_t w = 0; w < naive->n_words; w++)
        for (size_t i = 0; i + 1 < naive->length[w]; i++)
            count += naive->id[w][i] == left && naive->id[w][i + 1] == right;
    return count;
}

static long best_pair(const struct naive *naive, int32_t *left, int32_t *right) {
    long best = 0;
    for (size_t w = 0; w < naive->n_words; w++)
        for (size_t i = 0; i + 1 < naive->length[w]; i++) {
            int32_t l = naive->id[w][i], r = naive->id[w][i + 1];
            long count = count_pair(naive, l, r);
            bool smaller = l < *left || (l == *left && r < *right);
            if (count < best || (count == best && !smaller)) continue;
            best = count;
            *left = l;
            *right = r;
        }
    return best;
}

static int32_t name_of(struct naive *naive, int32_t left, int32_t right) {
    char spelling[2 * MAX_WORD + 1];
    strcpy(spelling, naive->spelling[left]);
    strcat(spelling, naive->spelling[right]);
    for (int32_t id = 1; id < naive->n_tokens; id++)
        assert_string_not_equal(naive->spelling[id], spelling); /* no token is made twice */
    strcpy(naive->spelling[naive->n_tokens], spelling);
    return naive->n_tokens++;
}

static void naive_merge(struct naive *naive, int32_t left, int32_t right) {
    int32_t result = name_of(naive, left, right);
    naive->merges[naive->n_merges++] = (struct hl_merge){left, right, result};
    for (size_t w = 0; w < naive->n_words; w++) {
        size_t used = 0;
        int32_t *id = naive->id[w];
        for (size_t i = 0; i < naive->length[w]; used++) {
            bool here = i + 1 < naive->length[w] && id[i] == left && id[i + 1] == right;
            id[used] = here ? result : id[i];
            i += here ? 2 : 1;
        }
        naive->length[w] = used;
    }
}

static void naive_train(struct naive *naive, int32_t n_tokens) {
    while (naive->n_tokens < n_tokens) {
        int32_t left = INT32_MAX, right = INT32_MAX;
        if (best_pair(naive, &left, &right) < 2) break;
        naive_merge(naive, left, right);
    }
}

/* Random words over few letters, so that ties and overlaps happen.
 */
static size_t random_text(struct naive *naive, char *text, uint64_t seed) {
    uint64_t x = seed * 0x9E3779B97F4A7C15u + 1;
    size_t n = 0;
    *naive = (struct naive){.n_tokens = 256};
    for (int byte = 0; byte < 256; byte++) naive->spelling[byte][0] = (char)byte;
    for (naive->n_words = 0; naive->n_words < 40; naive->n_words++) {
        size_t length = 0;
        x = x * 6364136223846793005u + 1442695040888963407u;
        size_t want = 1 + (x >> 33) % (MAX_WORD - 1);
        for (; length < want; length++) {
            x = x * 6364136223846793005u + 1442695040888963407u;
            text[n] = (char)('a' + (x >> 33) % (2 + seed % 3));
            naive->id[naive->n_words][length] = text[n++];
        }
        naive->length[naive->n_words] = length;
        text[n++] = '0'; /* a digit between letters: a word of its own, one byte */
    }
    return n;
}

static void test_same_as_naive(void **state) {
    (void)state;
    static struct naive naive;
    char text[MAX_WORDS * (MAX_WORD + 1)];
    for (uint64_t seed = 0; seed < 60; seed++) {
        size_t n = random_text(&naive, text, seed);
        naive_train(&naive, 390);
        struct hl_tokenizer *t = NULL;
        assert_int_equal(train_text(hl_mem_default(), text, n, 391, &t, NULL, NULL), HL_OK);
        assert_int_equal(t->vocab_size, naive.n_tokens + 1);
        assert_int_equal(t->bpe.n_merges, naive.n_merges);
        assert_memory_equal(t->bpe.merges, naive.merges, naive.n_merges * sizeof *naive.merges);
        hl_tokenizer_free(t);
    }
}

/* ---- rules ---- */

static void expect_merges(const char *text, int64_t vocab_size, const struct hl_merge *want,
                          size_t n) {
    struct hl_tokenizer *t = NULL;
    assert_int_equal(train_text(hl_mem_default(), text, strlen(text), vocab_size, &t, NULL, NULL),
                     HL_OK);
    assert_int_equal(t->bpe.n_merges, n);
    if (n) assert_memory_equal(t->bpe.merges, want, n * sizeof *want);
    assert_int_equal(hl_tokenizer_vocab_size(t), 257 + (int64_t)n);
    assert_int_equal(hl_tokenizer_eos(t), 256 + (int)n);
    hl_tokenizer_free(t);
}

static void test_ties(void **state) {
    (void)state;
    const struct hl_merge left_first[] = {{'a', 'z', 256}, {'b', 'c', 257}};
    expect_merges("bc0az0bc0az", 259, left_first, 2);
    const struct hl_merge right_first[] = {{'a', 'b', 256}, {'a', 'c', 257}};
    expect_merges("ac0ab0ac0ab", 259, right_first, 2);
    const struct hl_merge overlaps[] = {{'a', 'a', 256}};
    expect_merges("aaa", 258, overlaps, 1);
    expect_merges("abcdefgh", 300, NULL, 0); /* nothing occurs twice */
    expect_merges("anything anything", 257, NULL, 0);
}

static void test_order_of_text_does_not_matter(void **state) {
    (void)state;
    const char *forward[] = {"the cat sat on the mat. ", "", "The dog? The dog! ",
                             "don't, can't, won't"};
    const char *backward[] = {forward[3], forward[2], forward[1], forward[0]};
    struct pieces a = {{next_piece}, forward, NULL, 4, 0}, b = {{next_piece}, backward, NULL, 4, 0};
    struct hl_tokenizer *x = NULL, *y = NULL;
    assert_int_equal(hl_bpe_train(hl_mem_default(), &a.source, 280, &x, NULL, NULL), HL_OK);
    assert_int_equal(hl_bpe_train(hl_mem_default(), &b.source, 280, &y, NULL, NULL), HL_OK);
    assert_true(hl_tokenizer_hash(x) == hl_tokenizer_hash(y));
    hl_tokenizer_free(x);
    hl_tokenizer_free(y);
}

static void count_warnings(struct hl_log *log, enum hl_log_level level, const char *text) {
    if (level == HL_LOG_WARN && strstr(text, "257 tokens instead of 500")) ++*(int *)log->context;
}

static void test_refusals(void **state) {
    (void)state;
    struct hl_tokenizer *t = NULL;
    struct hl_diag diag;
    assert_int_equal(train_text(hl_mem_default(), "text", 4, 256, &t, NULL, &diag), HL_E_USER);
    assert_non_null(strstr(diag.text, "at least 257"));
    assert_int_equal(train_text(hl_mem_default(), "text", 4, INT64_MAX, &t, NULL, &diag),
                     HL_E_USER);
    assert_int_equal(train_text(hl_mem_default(), "text", 4, -1, &t, NULL, &diag), HL_E_USER);
    assert_int_equal(train_text(hl_mem_default(), "", 0, 300, &t, NULL, &diag), HL_E_USER);
    assert_non_null(strstr(diag.text, "no text"));
    assert_int_equal(train_text(hl_mem_default(), "ab\xC3(", 4, 300, &t, NULL, &diag), HL_E_FORMAT);
    assert_non_null(strstr(diag.text, "byte 2 of document 1"));
    assert_null(t);
    int n_warnings = 0;
    struct hl_log log = {count_warnings, HL_LOG_DEBUG, &n_warnings};
    assert_int_equal(train_text(hl_mem_default(), "a b c", 5, 500, &t, &log, &diag), HL_OK);
    assert_int_equal(n_warnings, 1);
    hl_tokenizer_free(t);
}

static enum hl_status broken_source(struct hl_text_source *source, const char **text, size_t *n,
                                    struct hl_diag *diag) {
    (void)source;
    (void)text;
    (void)n;
    return hl_fail(diag, HL_E_IO, "the disk is gone");
}

static void test_source_error_travels(void **state) {
    (void)state;
    struct hl_text_source source = {broken_source};
    struct hl_tokenizer *t = NULL;
    struct hl_diag diag;
    assert_int_equal(hl_bpe_train(hl_mem_default(), &source, 300, &t, NULL, &diag), HL_E_IO);
    assert_string_equal(diag.text, "the disk is gone");
}

/* Encoding what was trained on gives fewer tokens, and decodes to the same bytes. */
static void test_long_words(void **state) {
    (void)state;
    enum { N = 5000 };
    char *text = malloc(N);
    for (size_t i = 0; i < N; i++) text[i] = "abracadabra"[i % 11];
    struct hl_tokenizer *t = NULL;
    assert_int_equal(train_text(hl_mem_default(), text, N, 300, &t, NULL, NULL), HL_OK);
    struct hl_tokens tokens = {.mem = hl_mem_default()};
    struct hl_buf back = {.mem = hl_mem_default()};
    assert_int_equal(hl_tokenizer_encode(t, text, N, false, &tokens, NULL), HL_OK);
    assert_true(tokens.n < N / 100);
    assert_int_equal(hl_tokenizer_decode(t, tokens.ids, tokens.n, true, &back, NULL), HL_OK);
    assert_int_equal(back.n, N);
    assert_memory_equal(back.data, text, N);
    hl_tokens_free(&tokens);
    hl_buf_free(&back);
    hl_tokenizer_free(t);
    free(text);
}

/* ---- the tables, beyond their first size ---- */

static void test_many_words(void **state) {
    (void)state;
    enum { N = 5000 };
    struct hl_word_counts counts = {.mem = hl_mem_default()};
    for (uint32_t round = 0; round < 2; round++)
        for (uint32_t i = 0; i < N; i++) {
            uint32_t index, word = i * 2654435761u;
            assert_int_equal(
                hl_word_counts_add(&counts, (const char *)&word, 1 + i % 4, 1, &index, NULL),
                HL_OK);
            if (i % 4 == 3) assert_int_equal(counts.words[index].count, round + 1);
        }
    assert_true(counts.n_words > N / 2);
    int64_t sum = 0;
    for (size_t i = 0; i < counts.n_words; i++) sum += counts.words[i].count;
    assert_int_equal(sum, 2 * N);
    hl_word_counts_free(&counts);
}

/* All pairs come out: most frequent first, of equals the smaller; counts that fell in between are
 * respected. */
static void test_order_of_pairs(void **state) {
    (void)state;
    enum { N = 100 };
    struct hl_pair_counts counts = {.mem = hl_mem_default(), .free_links = HL_NO_LINK};
    for (int32_t left = 0; left < N; left++)
        for (int32_t right = 0; right < N; right++)
            assert_int_equal(
                hl_pair_counts_raise(&counts, left, right, 10 + (left * 7 + right) % 5, 0, NULL),
                HL_OK);
    assert_int_equal(hl_pair_counts_settle(&counts, NULL), HL_OK);
    for (int32_t left = 0; left < N; left++) hl_pair_counts_lower(&counts, left, left, 5);
    struct hl_pair last = {-1, -1, INT64_MAX, 0};
    uint32_t pair;
    for (size_t i = 0; i < (size_t)N * N - N; i++) {
        assert_int_equal(hl_pair_counts_best(&counts, 10, &pair), HL_OK);
        struct hl_pair now = counts.pairs[pair];
        assert_true(now.left != now.right && now.count <= last.count);
        if (now.count == last.count)
            assert_true(now.left > last.left || (now.left == last.left && now.right > last.right));
        last = now;
    }
    assert_int_equal(hl_pair_counts_best(&counts, 10, &pair), HL_END);
    hl_pair_counts_free(&counts);
}

static enum hl_status whole_life(struct hl_mem *mem, const char *text, size_t n) {
    struct hl_tokenizer *t = NULL;
    struct hl_tokens tokens = {.mem = mem};
    enum hl_status status = train_text(mem, text, n, 290, &t, NULL, NULL);
    if (status == HL_OK) status = hl_tokenizer_encode(t, text, n, true, &tokens, NULL);
    hl_tokens_free(&tokens);
    if (t) hl_tokenizer_free(t);
    return status;
}

static void test_each_allocation_fails(void **state) {
    (void)state;
    char text[400];
    for (size_t i = 0; i < sizeof text; i++) text[i] = "tomato potato "[i % (i < 300 ? 14 : 6)];
    struct hl_mem_probe probe;
    hl_mem_probe_init(&probe, 0);
    assert_int_equal(whole_life(&probe.mem, text, sizeof text), HL_OK);
    assert_int_equal(probe.n_live, 0);
    for (long k = 1, n = probe.n_taken; k <= n; k++) {
        hl_mem_probe_init(&probe, k);
        assert_int_equal(whole_life(&probe.mem, text, sizeof text), HL_E_MEMORY);
        assert_int_equal(probe.n_live, 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_as_naive),
        cmocka_unit_test(test_ties),
        cmocka_unit_test(test_order_of_text_does_not_matter),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_source_error_travels),
        cmocka_unit_test(test_long_words),
        cmocka_unit_test(test_many_words),
        cmocka_unit_test(test_order_of_pairs),
        cmocka_unit_test(test_each_allocation_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
