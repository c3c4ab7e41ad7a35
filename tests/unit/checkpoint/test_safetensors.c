/* Hostile and odd safetensors headers; the f16 and bf16 values; writing and reading back. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/safetensors.h"
#include "support/fake_fs.h"

static struct fake_fs *disk;

static int make_disk(void **state) {
    (void)state;
    disk = fake_fs_new();
    return 0;
}

static int drop_disk(void **state) {
    (void)state;
    assert_int_equal(fake_fs_open_handles(disk), 0);
    fake_fs_free(disk);
    return 0;
}

static void put_raw(uint64_t length, const char *json, size_t n_data) {
    static char bytes[1 << 16];
    for (int i = 0; i < 8; i++) bytes[i] = (char)(length >> (8 * i));
    size_t n = strlen(json);
    memcpy(bytes + 8, json, n);
    for (size_t i = 0; i < n_data; i++) bytes[8 + n + i] = (char)i;
    fake_fs_put(disk, "/f.safetensors", bytes, 8 + n + n_data);
}

static enum hl_status open_file(struct hl_st_file *file, struct hl_diag *diag) {
    *diag = (struct hl_diag){0};
    return hl_st_open(hl_mem_default(), fake_fs_table(disk), "/f.safetensors", file, diag);
}

static void refused(enum hl_status want, const char *part) {
    struct hl_st_file file;
    struct hl_diag diag;
    enum hl_status status = open_file(&file, &diag);
    if (status != want || !strstr(diag.text, part))
        fail_msg("%s: '%s', wanted '%s'", hl_status_name(status), diag.text, part);
    assert_non_null(strstr(diag.text, "/f.safetensors"));
}

static void refused_json(const char *json, size_t n_data, const char *part) {
    put_raw(strlen(json), json, n_data);
    refused(HL_E_FORMAT, part);
}

static void test_lengths(void **state) {
    (void)state;
    static const struct {
        uint64_t length;
        const char *part;
    } cases[] = {
        {0, "header length 0"}, {1, "header length 1"},
        {7, "header, line 1"},  {(uint64_t)1 << 63, "claims 9223372036854775808"},
        {UINT64_MAX, "claims"}, {UINT64_MAX - 7, "claims"},
        {14, "claims 14"},      {200, "claims 200"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        put_raw(cases[i].length, "{\"a\":{}     }", 0);
        refused(HL_E_FORMAT, cases[i].part);
    }
    for (size_t n = 0; n < 8; n++) {
        fake_fs_put(disk, "/f.safetensors", "\x02\0\0\0\0\0\0", n);
        refused(HL_E_FORMAT, "too few");
    }
}

static void test_impostors(void **state) {
    (void)state;
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 5\n", "git lfs pull"},
        {"<!DOCTYPE html><html>", "web page"},
        {"PK\3\4 archive", "pickle"},
        {"GGUF....", "GGUF"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fake_fs_put(disk, "/f.safetensors", cases[i].text, strlen(cases[i].text));
        refused(HL_E_FORMAT, cases[i].part);
    }
}

/* A header's length may begin with the bytes of a pickle (0x280) or of a web page (0x213c). */
static void test_lengths_like_impostors(void **state) {
    static const int lengths[] = {0x280, 0x213c};
    static char json[0x2200];
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct hl_st_file file;
        struct hl_diag diag;
        (void)snprintf(json, sizeof json, "%-*s", lengths[i],
                       "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}");
        put_raw((uint64_t)lengths[i], json, 8);
        if (open_file(&file, &diag) != HL_OK) fail_msg("%s", diag.text);
        hl_st_close(&file);
    }
}

#define T(offsets) "{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[" offsets "]}"

static void test_headers(void **state) {
    (void)state;
    refused_json("[]", 0, "not an object");
    refused_json("{\"a\":3}", 0, "'a': not an object");
    refused_json("{\"a\":{\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "dtype is missing");
    refused_json("{\"a\":{\"dtype\":7,\"shape\":[2],\"data_offsets\":[0,8]}}", 8,
                 "dtype is missing");
    refused_json("{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,8]}}", 8, "shape");
    refused_json("{\"a\":{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}}", 8, "counts");
    refused_json("{\"a\":{\"dtype\":\"F32\",\"shape\":[2.0],\"data_offsets\":[0,8]}}", 8, "counts");
    refused_json("{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,2],\"data_offsets\":[0,8]}}",
                 8, "dimensions");
    refused_json(
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,8]}}", 8,
        "overflows");
    refused_json(
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387906],\"data_offsets\":[0,8]}}", 8,
        "do not match");
    refused_json("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,9]}}", 9,
                 "do not match");
    refused_json("{\"a\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8,
                 "do not match");
    refused_json("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0]}}", 8, "pair");
    refused_json("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}}", 8,
                 "damaged or cut off");
    refused_json("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[-8,0]}}", 8,
                 "damaged or cut off");
    refused_json("{\"a\":" T("0,8") "}", 7, "damaged or cut off");
    refused_json(
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,99999999999999999999]}}", 8,
        "integer");
    refused_json("{\"a\":" T("0,8") ",\"b\":" T("4,12") "}", 12, "'b': overlaps");
    refused_json("{\"a\":" T("0,8") ",\"b\":" T("0,8") "}", 8, "overlaps");
    refused_json("{\"b\":" T("12,20") ",\"a\":" T("0,8") "}", 20, "'b': leaves a gap");
    refused_json("{\"a\":" T("4,12") "}", 12, "'a': leaves a gap");
    refused_json("{\"a\":" T("0,8") "}", 11, "3 bytes follow");
    refused_json("{\"a\":" T("0,8") ",\"a\":" T("8,16") "}", 16, "duplicate");
    refused_json("{\"a\":" T("0,8"), 8, "header, line 1");
    static char deep[8000];
    memset(deep, '[', sizeof deep - 1);
    refused_json(deep, 0, "header, line 1");
    put_raw(strlen("{\"a\":{\"dtype\":\"Q9\",\"shape\":[8],\"data_offsets\":[0,8]}}"),
            "{\"a\":{\"dtype\":\"Q9\",\"shape\":[8],\"data_offsets\":[0,8]}}", 8);
    refused(HL_E_UNSUPPORTED, "'Q9'");
}

/* Odd, but right. */
static void test_accepted(void **state) {
    (void)state;
    static const struct {
        const char *json;
        size_t n_data;
        int n_tensors;
    } cases[] = {
        {"{}", 0, 0},
        {"{\"__metadata__\":{\"format\":\"pt\"}}    ", 0, 0},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}", 4, 1},
        {"{\"b\":" T("8,16") ",\"z\":{\"dtype\":\"F32\",\"shape\":[0,3],\"data_offsets\":[8,8]},"
                             "\"a\":" T("0,8") "}",
         16, 3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct hl_st_file file;
        struct hl_diag diag;
        put_raw(strlen(cases[i].json), cases[i].json, cases[i].n_data);
        if (open_file(&file, &diag)) fail_msg("%s", diag.text);
        assert_int_equal(file.table.n_tensors, cases[i].n_tensors);
        hl_st_close(&file);
    }
}

static void test_f16(void **state) {
    (void)state;
    for (uint32_t bits = 0; bits < 65536; bits++) {
        float got = hl_f16_to_f32((uint16_t)bits);
        int exponent = bits >> 10 & 31, mantissa = bits & 1023;
        double want = exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24);
        if (exponent == 31) want = mantissa ? (double)NAN : (double)INFINITY;
        if (bits >> 15) want = -want;
        if (isnan(want)) assert_true(isnan(got));
        else if ((double)got != want || !signbit(got) != !signbit(want))
            fail_msg("%04x gives %a, not %a", bits, (double)got, want);
    }
}

static void test_narrow_types(void **state) {
    (void)state;
    const char *json = "{\"h\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[0,4]},"
                       "\"b\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[4,8]},"
                       "\"i\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[8,16]}}";
    put_raw(strlen(json), json, 16); /* bytes 0, 1, 2 ... */
    struct hl_st_file file;
    struct hl_diag diag;
    assert_int_equal(open_file(&file, &diag), HL_OK);
    float out[2];
    uint16_t scratch[2];
    assert_int_equal(hl_st_read(&file, &file.table.tensors[0], 0, 2, out, scratch, &diag), HL_OK);
    assert_true(out[0] == hl_f16_to_f32(0x0100) && out[1] == hl_f16_to_f32(0x0302));
    assert_int_equal(hl_st_read(&file, &file.table.tensors[1], 1, 1, out, scratch, &diag), HL_OK);
    uint32_t bits;
    memcpy(&bits, out, sizeof bits);
    assert_int_equal(bits, 0x07060000);
    assert_int_equal(hl_st_read(&file, &file.table.tensors[2], 0, 1, out, scratch, &diag),
                     HL_E_UNSUPPORTED);
    assert_non_null(strstr(diag.text, "I64"));
    hl_st_close(&file);
}

/* Sizes that do not fit the tiles of the transposition; a name that needs escaping. */
static void test_write(void **state) {
    (void)state;
    static const int64_t sizes[] = {1, 3, 16, 17, 63, 65};
    for (size_t i = 0; i < 36; i++) {
        int64_t R = sizes[i / 6], S = sizes[i % 6];
        float data[65 * 65], back[65 * 65];
        for (int64_t k = 0; k < R * S; k++) data[k] = (float)k;
        const struct hl_st_plan_row rows[] = {
            {.name = "plain \"\n", .n_dims = 2, .shape = {R, S}, .data = data},
            {.name = "turned", .n_dims = 2, .shape = {R, S}, .data = data, .transposed = true},
            {.name = "v", .n_dims = 1, .shape = {R}, .data = data, .transposed = false}};
        struct hl_out_file out;
        struct hl_diag diag = {0};
        uint64_t written, read;
        assert_int_equal(
            hl_out_open(hl_mem_default(), fake_fs_table(disk), "/f.safetensors", &out, &diag),
            HL_OK);
        assert_int_equal(hl_st_write(hl_mem_default(), &out, rows, 3, &diag), HL_OK);
        assert_int_equal(hl_out_commit(&out, &written, &diag), HL_OK);
        assert_int_equal(
            hl_file_xxh3(hl_mem_default(), fake_fs_table(disk), "/f.safetensors", &read, &diag),
            HL_OK);
        assert_true(written == read);
        struct hl_st_file file;
        if (open_file(&file, &diag)) fail_msg("%s", diag.text);
        assert_int_equal(file.table.n_tensors, 3);
        assert_string_equal(file.table.tensors[0].name, "plain \"\n");
        assert_int_equal(file.table.tensors[0].begin % 8, 0);
        assert_int_equal(hl_st_read(&file, &file.table.tensors[0], 0, R * S, back, back, &diag),
                         HL_OK);
        assert_memory_equal(back, data, (size_t)(R * S) * sizeof *data);
        assert_int_equal(hl_st_read(&file, &file.table.tensors[1], 0, R * S, back, back, &diag),
                         HL_OK);
        for (int64_t r = 0; r < R; r++)
            for (int64_t s = 0; s < S; s++) assert_true(back[r * S + s] == data[s * R + r]);
        hl_st_close(&file);
    }
}

static void test_no_memory(void **state) {
    (void)state;
    const char *json = "{\"b\":" T("8,16") ",\"a\":" T("0,8") "}";
    put_raw(strlen(json), json, 16);
    enum hl_status status = HL_E_MEMORY;
    for (long k = 1; status; k++) {
        struct hl_mem_probe probe;
        struct hl_st_file file;
        struct hl_diag diag = {0};
        hl_mem_probe_init(&probe, k);
        status = hl_st_open(&probe.mem, fake_fs_table(disk), "/f.safetensors", &file, &diag);
        if (status) assert_int_equal(status, HL_E_MEMORY);
        else hl_st_close(&file);
        assert_int_equal(probe.n_live, 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_impostors),
        cmocka_unit_test(test_lengths_like_impostors),
        cmocka_unit_test(test_headers),
        cmocka_unit_test(test_accepted),
        cmocka_unit_test(test_f16),
        cmocka_unit_test(test_narrow_types),
        cmocka_unit_test(test_write),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, make_disk, drop_disk);
}
