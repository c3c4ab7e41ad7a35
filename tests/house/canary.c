/* A test that must fail: when this one "passes", no green test means anything. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static void test_fails(void **state) {
    (void)state;
    assert_int_equal(1, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_fails)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
