/* The pieces under a tokenizer: UTF-8 checks, the byte alphabet, the GPT-2 pre-tokenizer, merging
 * short and long words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "text/bpe_merge.h"
#include "text/byte_alphabet.h"
#include "text/pretokenize.h"
#include "text/unicode.h"

/* ---- UTF-8 ---- */

static size_t put_utf8(uint32_t c, char *out) {
    if (c < 0x80) return out[0] = (char)c, 1;
    if (c < 0x800) return out[0] = (char)(0xC0 | c >> 6), out[1] = (char)(0x80 | (c & 63)), 2;
    size_t n = c < 0x10000 ? 3 : 4;
    out[0] = (char)((n == 3 ? 0xE0 : 0xF0) | c >> 6 * (n - 1));
    for (size_t i = 1; i < n; i++) out[i] = (char)(0x80 | ((c >> 6 * (n - 1 - i)) & 63));
    return n;
}

static void test_every_code_point(void **state) {
    (void)state;
    for (uint32_t c = 0; c < 0x120000; c++) {
        char text[4];
        size_t n = put_utf8(c, text);
        bool valid = c < 0x110000 && (c < 0xD800 || c > 0xDFFF);
        uint32_t back;
        if ((hl_utf8_valid(text, n) == n) != valid) fail_msg("U+%04X", (unsigned)c);
        if (!valid) continue;
        assert_int_equal(hl_utf8_next(text, n, &back), n);
        assert_int_equal(back, c);
        for (size_t cut = 1; cut < n; cut++) assert_int_equal(hl_utf8_valid(text, cut), 0);
    }
}

static void test_invalid_utf8(void **state) {
    (void)state;
    const struct {
        const char *text;
        size_t valid;
    } cases[] = {
        {"", 0},
        {"abcdefgh\x80", 8},
        {"abcdefghi\xC3", 9},
        {"\xC0\x80", 0},
        {"\xC1\xBF", 0},
        {"\xE0\x80\x80", 0},
        {"\xED\xA0\x80", 0},
        {"\xF0\x80\x80\x80", 0},
        {"\xF4\x90\x80\x80", 0},
        {"\xF5\x80\x80\x80", 0},
        {"\xFF", 0},
        {"a\xC3\xA9\xC3(", 3},
        {"\xE6\x97", 0},
        {"12345678\xE6\x97\xA5", 11},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(hl_utf8_valid(cases[i].text, strlen(cases[i].text)), cases[i].valid);
}

static void test_byte_alphabet(void **state) {
    (void)state;
    struct hl_byte_alphabet alphabet;
    hl_byte_alphabet_init(&alphabet);
    for (int byte = 0; byte < 256; byte++) {
        char text[2], back;
        size_t n = hl_byte_alphabet_put(&alphabet, (uint8_t)byte, text), n_back;
        assert_true(hl_byte_alphabet_bytes(&alphabet, text, n, &back, &n_back));
        assert_int_equal(n_back, 1);
        assert_int_equal((unsigned char)back, byte);
    }
    assert_int_equal(alphabet.character[' '], 0x120);
    assert_int_equal(alphabet.character['\n'], 0x10A);
    assert_int_equal(alphabet.character[0xAD], 0x143);
    char out[8];
    size_t n;
    assert_false(hl_byte_alphabet_bytes(&alphabet, "a b", 3, out, &n));
    assert_false(hl_byte_alphabet_bytes(&alphabet, "\xE6\x97\xA5", 3, out, &n));
}

/* ---- pre-tokenizer ---- */

static void expect_words(const struct hl_pretokenizer *p, const char *text, const char *const *want,
                         size_t n_want) {
    struct hl_words words;
    const char *word;
    size_t n, i = 0;
    enum hl_status status;
    assert_int_equal(hl_words_begin(&words, p, NULL), HL_OK);
    hl_words_reset(&words, text, strlen(text));
    for (; (status = hl_words_next(&words, &word, &n, NULL)) == HL_OK; i++) {
        if (i >= n_want || strlen(want[i]) != n || memcmp(want[i], word, n) != 0)
            fail_msg("\"%s\": word %zu is \"%.*s\"", text, i, (int)n, word);
    }
    assert_int_equal(status, HL_END);
    assert_int_equal(i, n_want);
    hl_words_end(&words);
}

#define WORDS(...)                                                                                 \
    (const char *const[]){__VA_ARGS__}, sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *)

static void test_gpt2_words(void **state) {
    (void)state;
    struct hl_pretokenizer *p;
    assert_int_equal(hl_pretokenizer_new(hl_mem_default(), HL_PRETOKENIZER_GPT2, &p, NULL), HL_OK);
    expect_words(p, "", NULL, 0);
    expect_words(p, "I'll say they've won't",
                 WORDS("I", "'ll", " say", " they", "'ve", " won", "'t"));
    expect_words(p, "I'LL", WORDS("I", "'", "LL"));
    expect_words(p, "a  b   c", WORDS("a", " ", " b", "  ", " c"));
    expect_words(p, " a \n", WORDS(" a", " \n"));
    expect_words(p, "x\r\n\r\ny", WORDS("x", "\r\n\r", "\n", "y"));
    expect_words(p, "abc123!?", WORDS("abc", "123", "!?"));
    expect_words(p, "\xE6\x97\xA5\xE6\x9C\xAC\xEF\xBC\x91\xC2\xBD",
                 WORDS("\xE6\x97\xA5\xE6\x9C\xAC", "\xEF\xBC\x91\xC2\xBD"));
    /* No-break space and next line are white space, the Mongolian vowel separator is not (since
     * Unicode 6.3). */
    expect_words(p, "a\xC2\xA0 b", WORDS("a", "\xC2\xA0", " b"));
    expect_words(p, "!\xC2\x85!", WORDS("!", "\xC2\x85", "!"));
    expect_words(p, "!\xE1\xA0\x8E!", WORDS("!\xE1\xA0\x8E!"));
    hl_pretokenizer_free(p);
}

static void test_one_word(void **state) {
    (void)state;
    struct hl_pretokenizer *p;
    assert_int_equal(hl_pretokenizer_new(hl_mem_default(), HL_PRETOKENIZER_NONE, &p, NULL), HL_OK);
    assert_null(p);
    expect_words(p, "a b\xFF", WORDS("a b\xFF"));
}

/* A million of one kind: one word (of blanks before a letter, the last goes with it). */
static void test_huge_words(void **state) {
    (void)state;
    enum { N = 1000000 };
    const char kinds[] = {'a', '1', '!', ' ', '\n'};
    struct hl_pretokenizer *p;
    struct hl_words words;
    char *text = malloc(N + 1);
    assert_int_equal(hl_pretokenizer_new(hl_mem_default(), HL_PRETOKENIZER_GPT2, &p, NULL), HL_OK);
    assert_int_equal(hl_words_begin(&words, p, NULL), HL_OK);
    for (size_t i = 0; i < sizeof kinds; i++) {
        const char *word;
        size_t n;
        memset(text, kinds[i], N);
        text[N] = 'b';
        hl_words_reset(&words, text, N + 1);
        assert_int_equal(hl_words_next(&words, &word, &n, NULL), HL_OK);
        assert_int_equal(n, kinds[i] == 'a'                       ? N + 1
                            : kinds[i] == ' ' || kinds[i] == '\n' ? N - 1
                                                                  : N);
    }
    hl_words_end(&words);
    hl_pretokenizer_free(p);
    free(text);
}

/* ---- merging ---- */

enum { N_LETTERS = 4, N_MERGES = 60, MAX_WORD = 400 };

static uint32_t next_random(uint64_t *x) {
    *x = *x * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*x >> 33);
}

/* Merges of random earlier tokens, some pairs twice. */
static void random_merges(struct hl_merge *merges, uint64_t *x) {
    for (int i = 0; i < N_MERGES; i++) {
        uint32_t n_ids = (uint32_t)(N_LETTERS + (i < 12 ? 0 : i / 2));
        merges[i] = (struct hl_merge){(int32_t)(next_random(x) % n_ids),
                                      (int32_t)(next_random(x) % n_ids), N_LETTERS + i};
    }
}

/* The definition: the last merge of a pair counts; lowest rank first, leftmost first, one at a
 * time. */
static size_t naive_merge(const struct hl_merge *merges, int32_t *ids, size_t n) {
    for (;;) {
        int best = -1;
        size_t best_at = 0;
        for (size_t at = 0; at + 1 < n; at++) {
            int rank = N_MERGES - 1;
            while (rank >= 0 && (merges[rank].left != ids[at] || merges[rank].right != ids[at + 1]))
                rank--;
            if (rank < 0 || (best >= 0 && rank >= best)) continue;
            best = rank;
            best_at = at;
        }
        if (best < 0) return n;
        ids[best_at] = merges[best].result;
        memmove(ids + best_at + 1, ids + best_at + 2, (n - best_at - 2) * sizeof *ids);
        n--;
    }
}

static void test_merging(void **state) {
    (void)state;
    uint64_t x = 1;
    const size_t sizes[] = {1, 2, 3, 5, 17, 47, 48, 49, 50, 63, 65, 130, MAX_WORD};
    for (int round = 0; round < 60; round++) {
        struct hl_merge merges[N_MERGES];
        struct hl_bpe bpe;
        struct hl_bpe_scratch scratch = {0};
        random_merges(merges, &x);
        assert_int_equal(hl_bpe_init(&bpe, hl_mem_default(), merges, N_MERGES, NULL), HL_OK);
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            int32_t ids[MAX_WORD], want[MAX_WORD];
            size_t n = sizes[s];
            for (size_t i = 0; i < n; i++)
                want[i] = ids[i] = (int32_t)(next_random(&x) % N_LETTERS);
            size_t n_want = naive_merge(merges, want, n);
            assert_int_equal(hl_bpe_merge(&bpe, hl_mem_default(), &scratch, ids, &n, NULL), HL_OK);
            assert_int_equal(n, n_want);
            assert_memory_equal(ids, want, n * sizeof *ids);
        }
        hl_bpe_scratch_free(&scratch, hl_mem_default());
        hl_bpe_fini(&bpe, hl_mem_default());
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_code_point), cmocka_unit_test(test_invalid_utf8),
        cmocka_unit_test(test_byte_alphabet),    cmocka_unit_test(test_gpt2_words),
        cmocka_unit_test(test_one_word),         cmocka_unit_test(test_huge_words),
        cmocka_unit_test(test_merging),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
