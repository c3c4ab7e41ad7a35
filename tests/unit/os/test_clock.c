/* The clock goes on, and its facts are plausible; nothing here depends on how fast the machine is.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "os/clock.h"

static void test_never_backwards(void **state) {
    (void)state;
    int64_t before = hl_clock_ns();
    for (int i = 0; i < 1000; i++) {
        int64_t now = hl_clock_ns();
        assert_true(now >= before);
        before = now;
    }
}

static void test_facts(void **state) {
    struct hl_clock_facts c;
    (void)state;
    hl_clock_look(&c);
    assert_true(c.step_ns > 0);
    assert_true(c.read_ns >= 0);
    assert_null(strchr(c.source, '\n'));
    if (*c.source) assert_non_null(strstr(c.available, c.source));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_never_backwards),
        cmocka_unit_test(test_facts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
