/* Ranks that differ are told so, with rank, key and both values; all of them are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "halley/kernels.h"
#include "support/ranks.h"
#include "train/agree.h"

/* What the odd rank (2) says instead of "3e-4", and how many items it has. */
struct odd {
    const char *value;
    int n;
    const char *want; /* in the message; NULL: they agree */
};

static void agree(struct rank_context *r) {
    const struct odd *odd = r->shared;
    const struct hl_kernels *kernels;
    struct hl_group *group;
    struct hl_diag diag = {0};
    struct hl_agree_item items[3];
    bool is_odd = r->rank == 2;
    ranks_check(r, hl_kernels_get(HL_F32, &kernels, &diag) == HL_OK);
    ranks_check(r, hl_group_new(hl_mem_default(), r->wire, kernels, 60000000000, &group, &diag) ==
                       HL_OK);
    hl_agree_set(&items[0], "optim", "adamw");
    hl_agree_set(&items[1], "learning_rate", is_odd ? odd->value : "3e-4");
    hl_agree_set_hash(&items[2], "the data", 0x1234);
    enum hl_status status =
        hl_agree(hl_mem_default(), group, "configuration", items, is_odd ? odd->n : 3, &diag);
    if (status != (odd->want ? HL_E_USER : HL_OK) || (odd->want && !strstr(diag.text, odd->want)))
        ranks_fail(r, "%s: %s", hl_status_name(status), diag.text);
    hl_group_free(group);
}

static void test_agree(void **state) {
    (void)state;
    char longer[200], other[200];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    memcpy(other, longer, sizeof other);
    other[190] = 'y';
    struct odd cases[] = {
        {"3e-4", 3, NULL},
        {"3e-5", 3, "learning_rate is 3e-4 on rank 0 and 3e-5 on rank 2"},
        {"", 3, "learning_rate is 3e-4 on rank 0 and empty on rank 2"},
        {"3e-4", 2, "rank 2 tells 2 values of its configuration and rank 0 tells 3"},
        {longer, 3, "learning_rate is 3e-4 on rank 0 and xxxxxx"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ranks_run(i ? 4 : 3, 1, 4096, agree, &cases[i]);
    struct hl_agree_item a, b;
    hl_agree_set(&a, "k", longer);
    hl_agree_set(&b, "k", other);
    assert_memory_not_equal(a.value, b.value, sizeof a.value);
}

static void test_alone(void **state) {
    (void)state;
    struct hl_agree_item item;
    hl_agree_set_hash(&item, "the data", 7);
    assert_string_equal(item.value, "0000000000000007");
    assert_int_equal(hl_agree(hl_mem_default(), NULL, "data", &item, 1, NULL), HL_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_agree), cmocka_unit_test(test_alone)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
