/* SHA-256, HMAC and PBKDF2 against published vectors: FIPS 180-4's examples, RFC 4231, RFC 7914 and
 * the SHA-256 versions of RFC 6070's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/sha256.h"

static void check(const unsigned char got[HL_SHA256_BYTES], const char *want) {
    char text[2 * HL_SHA256_BYTES + 1];
    for (int i = 0; i < HL_SHA256_BYTES; i++) (void)snprintf(text + 2 * i, 3, "%02x", got[i]);
    assert_string_equal(text, want);
}

static void hash(const char *text, size_t step, unsigned char out[HL_SHA256_BYTES]) {
    struct hl_sha256 s;
    size_t n = strlen(text);
    hl_sha256_begin(&s);
    for (size_t i = 0; i < n; i += step) hl_sha256_add(&s, text + i, n - i < step ? n - i : step);
    hl_sha256_end(&s, out);
}

static void test_hash(void **state) {
    static const char *const two_blocks =
        "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    unsigned char out[HL_SHA256_BYTES];
    (void)state;
    hash("", 1, out);
    check(out, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    hash("abc", 3, out);
    check(out, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    for (size_t step = 1; step < 60; step += 7) {
        hash(two_blocks, step, out);
        check(out, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    }
}

static void test_a_million(void **state) {
    unsigned char out[HL_SHA256_BYTES];
    char some[1000];
    struct hl_sha256 s;
    (void)state;
    memset(some, 'a', sizeof some);
    hl_sha256_begin(&s);
    for (int i = 0; i < 1000; i++) hl_sha256_add(&s, some, sizeof some);
    hl_sha256_end(&s, out);
    check(out, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

static void test_hmac(void **state) {
    unsigned char out[HL_SHA256_BYTES], key[131];
    static const char *const long_key = "Test Using Larger Than Block-Size Key - Hash Key First";
    (void)state;
    memset(key, 0x0b, 20);
    hl_hmac_sha256(key, 20, "Hi There", 8, out);
    check(out, "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    hl_hmac_sha256("Jefe", 4, "what do ya want for nothing?", 28, out);
    check(out, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    memset(key, 0xaa, sizeof key);
    hl_hmac_sha256(key, sizeof key, long_key, strlen(long_key), out);
    check(out, "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

static void test_pbkdf2(void **state) {
    unsigned char out[HL_SHA256_BYTES];
    (void)state;
    hl_pbkdf2_sha256("password", "salt", 1, out);
    check(out, "120fb6cffcf8b32c43e7225256c4f837a86548c92ccc35480805987cb70be17b");
    hl_pbkdf2_sha256("password", "salt", 2, out);
    check(out, "ae4d0c95af6b46d32d0adff928f06dd02a303f8ef3c251dfd6e2d85a95474c43");
    hl_pbkdf2_sha256("password", "salt", 4096, out);
    check(out, "c5e478d59288c841aa530db6845c4c8d962893a001ce4e11a4963873aa98134a");
    hl_pbkdf2_sha256("passwd", "salt", 1, out);
    check(out, "55ac046e56e3089fec1691c22544b605f94185216dde0465e68b9d57c20dacbc");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hash),
        cmocka_unit_test(test_a_million),
        cmocka_unit_test(test_hmac),
        cmocka_unit_test(test_pbkdf2),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
