/* Which table one gets: every entry filled, HALLEY_ISA obeyed, unknown names refused with a hint.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "halley/kernels.h"

static void test_every_isa(void **state) {
    (void)state;
    for (int isa = HL_ISA_REF; isa <= HL_ISA_AVX512BF16; isa++)
        for (int dtype = HL_F32; dtype <= HL_BF16; dtype++) {
            const struct hl_kernels *k = NULL;
            struct hl_diag diag = {0};
            const enum hl_status status =
                hl_kernels_of((enum hl_isa)isa, (enum hl_dtype)dtype, &k, &diag);
            if (status != HL_OK) {
                assert_int_equal(status, HL_E_USER);
                assert_non_null(strstr(diag.text, hl_isa_name((enum hl_isa)isa)));
                continue;
            }
            assert_int_equal(k->isa, isa);
            assert_int_equal(k->dtype, dtype);
            assert_non_null(k->layernorm_fwd);
            assert_non_null(k->cross_entropy);
            assert_non_null(k->scale);
        }
}

static void test_environment(void **state) {
    (void)state;
    const struct hl_kernels *k = NULL, *best = NULL;
    struct hl_diag diag = {0};
    setenv("HALLEY_ISA", "ref", 1);
    assert_int_equal(hl_kernels_get(HL_BF16, &k, &diag), HL_OK);
    assert_int_equal(k->isa, HL_ISA_REF);
    setenv("HALLEY_ISA", "avx1024", 1);
    k = NULL;
    assert_int_equal(hl_kernels_get(HL_F32, &k, &diag), HL_E_USER);
    assert_null(k);
    assert_non_null(strstr(diag.text, "\"avx1024\""));
    assert_non_null(strstr(diag.text, "ref, avx2, avx512 or avx512bf16"));
    unsetenv("HALLEY_ISA");
    assert_int_equal(hl_kernels_get(HL_F32, &best, &diag), HL_OK);
    setenv("HALLEY_ISA", "", 1);
    assert_int_equal(hl_kernels_get(HL_F32, &k, &diag), HL_OK);
    assert_ptr_equal(k, best);
    unsetenv("HALLEY_ISA");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_isa),
                                       cmocka_unit_test(test_environment)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
