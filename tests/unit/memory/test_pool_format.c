/* The first page of a pool: every field where docs/formats/pool.md says, its checksum, what is
 * refused, and the stripes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "memory/pool_format.h"

static void test_golden_offsets(void **state) {
    (void)state;
#define AT(field, offset) assert_int_equal(offsetof(struct hl_pool_head, field), offset)
    AT(magic, 0), AT(version, 8), AT(flags, 12), AT(uuid, 16), AT(n_devices, 32), AT(device, 36);
    AT(n_records, 40), AT(record_bytes, 44), AT(stripe_bytes, 48), AT(device_bytes, 56);
    AT(records.offset, 64), AT(records.bytes, 72), AT(lines.offset, 80), AT(bulk.offset, 96);
    AT(spare, 112), AT(generation, 192), AT(incarnation, 200), AT(job.n_ranks, 208);
    AT(job.n_lanes, 212), AT(job.n_slots, 216), AT(job.part_bytes, 224);
    AT(job.dead_after_ns, 232), AT(job.owner.boot, 240), AT(job.owner.pid_space, 256);
    AT(job.owner.pid, 264), AT(job.owner.birth, 272), AT(job.host, 280), AT(plan_hash, 344);
    AT(crc32c, 4092);
#undef AT
    assert_int_equal(sizeof(struct hl_pool_head), 4096);
    assert_int_equal(offsetof(struct hl_pool_record, who.boot), 0);
    assert_int_equal(offsetof(struct hl_pool_record, who.pid), 24);
    assert_int_equal(offsetof(struct hl_pool_record, incarnation), 40);
    assert_int_equal(offsetof(struct hl_pool_record, attached), 44);
}

static struct hl_pool_head good(void) {
    struct hl_pool_head head;
    hl_pool_head_begin(&head, 3, 64 << 20, HL_POOL_WRITE_BACK, true);
    uint64_t needed = hl_pool_head_lay_out(&head, 1000064, 3 * 3 * (2 << 20));
    assert_int_equal(needed, 2 * (2 << 20) / 2 + 3 * (2 << 20));
    hl_pool_head_seal(&head, 1);
    return head;
}

static void test_golden_bytes(void **state) {
    struct hl_pool_head head = good();
    const unsigned char *byte = (const unsigned char *)&head;
    static const unsigned char begin[16] = {'H', 'A', 'L', 'L', 'E', 'Y', 'P', 'L',
                                            1,   0,   0,   0,   5,   0,   0,   0};
    (void)state;
    assert_memory_equal(byte, begin, sizeof begin);
    assert_int_equal(head.records.offset, 4096);
    assert_int_equal(head.records.bytes, 64 * 256);
    assert_int_equal(head.lines.offset, 4096 + 64 * 256);
    assert_int_equal(head.bulk.offset, 2 << 20);
    assert_int_equal(head.crc32c, 0xb57df361);
}

static void refused(const struct hl_pool_head *head, enum hl_status status, const char *words) {
    struct hl_diag diag = {0};
    assert_int_equal(hl_pool_head_check(head, "dev1", &diag), status);
    if (!strstr(diag.text, words)) fail_msg("'%s' is not in: %s", words, diag.text);
}

static void test_refusals(void **state) {
    struct hl_pool_head head = good();
    (void)state;
    assert_int_equal(hl_pool_head_check(&head, "dev1", NULL), HL_OK);
    head.magic[3] = 'X';
    refused(&head, HL_E_FORMAT, "holds no pool");
    head = good();
    head.version = 2;
    hl_pool_head_seal(&head, 1);
    refused(&head, HL_E_UNSUPPORTED, "format version 2, and this program knows version 1");
    head = good();
    for (size_t i = 16; i < sizeof head; i += 7) { /* any changed byte is found */
        ((unsigned char *)&head)[i] ^= 0x10;
        refused(&head, HL_E_FORMAT, "damaged");
        ((unsigned char *)&head)[i] ^= 0x10;
    }
}

static void test_sizes_that_deceive(void **state) {
    struct hl_pool_head head = good();
    (void)state;
    head.n_devices = 65;
    hl_pool_head_seal(&head, 1);
    refused(&head, HL_E_FORMAT, "damaged");
    head = good();
    head.bulk.bytes = UINT64_MAX - 4096;
    hl_pool_head_seal(&head, 1);
    refused(&head, HL_E_FORMAT, "damaged");
    head = good();
    hl_pool_head_seal(&head, 3);
    refused(&head, HL_E_FORMAT, "damaged");
}

/* Every byte of the bulk has one place, and no place two bytes. */
static void test_stripes(void **state) {
    (void)state;
    for (uint32_t n = 1; n <= 7; n++) {
        struct hl_pool_head head;
        uint64_t stripes = 5 * n, s = HL_POOL_STRIPE_BYTES;
        unsigned char seen[8][5] = {{0}};
        hl_pool_head_begin(&head, n, 1 << 30, HL_POOL_COHERENT, false);
        (void)hl_pool_head_lay_out(&head, 64, stripes * s);
        for (uint64_t i = 0; i < stripes; i++) {
            uint32_t first, last;
            uint64_t a = hl_pool_stripe(&head, i * s, &first);
            uint64_t b = hl_pool_stripe(&head, i * s + s - 1, &last);
            assert_int_equal(first, i % n);
            assert_int_equal(last, first);
            assert_int_equal(b - a, s - 1);
            assert_true(a >= head.bulk.offset && b < head.bulk.offset + head.bulk.bytes);
            assert_int_equal((a - head.bulk.offset) % s, 0);
            assert_int_equal(seen[first][(a - head.bulk.offset) / s]++, 0);
        }
    }
}

static void test_modes(void **state) {
    enum hl_pool_mode mode;
    (void)state;
    for (int m = 0; m < 3; m++) {
        assert_true(hl_pool_mode_find(hl_pool_mode_name((enum hl_pool_mode)m), &mode));
        assert_int_equal(mode, m);
    }
    assert_false(hl_pool_mode_find("wb", &mode));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden_offsets), cmocka_unit_test(test_golden_bytes),
        cmocka_unit_test(test_refusals),       cmocka_unit_test(test_sizes_that_deceive),
        cmocka_unit_test(test_stripes),        cmocka_unit_test(test_modes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
