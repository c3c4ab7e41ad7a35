/* Shards: what is written is read; every damage is found; llm.c's files are read as they are; large
 * offsets hold. */
#include "data_support.h"

#include <fcntl.h>

#include "text/shard.h"
#include "text/shard_format.h"

static void write_shard(struct hl_mem *mem, const char *path, int64_t vocab, const int32_t *ids,
                        const size_t *ends, size_t n) {
    struct hl_shard_writer writer;
    struct hl_diag diag;
    size_t from = 0;
    assert_int_equal(hl_shard_writer_open(&writer, mem, path, vocab, 77, &diag), HL_OK);
    for (size_t d = 0; d < n; d++) {
        for (size_t i = from; i < ends[d]; i += 2) /* in small additions */
            assert_int_equal(
                writer.sink.tokens(&writer.sink, ids + i, ends[d] - i < 2 ? 1 : 2, &diag), HL_OK);
        assert_int_equal(writer.sink.document_end(&writer.sink, &diag), HL_OK);
        from = ends[d];
    }
    assert_int_equal(hl_shard_writer_commit(&writer, &diag), HL_OK);
    hl_shard_writer_close(&writer);
}

static void test_round_trip(void **state) {
    (void)state;
    struct scratch scratch;
    struct hl_mem_probe probe;
    scratch_make(&scratch);
    hl_mem_probe_init(&probe, 0);
    char path[256];
    int32_t ids[101];
    const size_t ends[] = {1, 4, 4, 101}; /* an empty document is none */
    for (int wide = 0; wide < 2; wide++) {
        for (int i = 0; i < 101; i++) ids[i] = wide ? i * 1000003 % 100000 : i * 31;
        write_shard(&probe.mem, scratch_path(&scratch, "a.hls", path), wide ? 100000 : 65536, ids,
                    ends, 4);
        assert_int_equal(hl_shard_kind_of(path), HL_SHARD_HALLEY);
        struct hl_store store, memory;
        struct hl_diag diag;
        assert_int_equal(hl_shard_open(&probe.mem, path, -1, true, &store, &diag), HL_OK);
        assert_int_equal(store.width, wide ? 4 : 2);
        assert_int_equal(store.n_tokens, 101);
        assert_int_equal(store.n_documents, 3);
        assert_int_equal(store.document_D[1], 1);
        assert_int_equal(store.document_D[2], 4);
        assert_int_equal(store.tokenizer_hash, 77);
        int32_t back[101], most = 0;
        uint32_t largest = hl_store_copy(&store, 0, 101, back);
        assert_memory_equal(back, ids, sizeof ids);
        for (int i = 0; i < 101; i++) most = ids[i] > most ? ids[i] : most;
        assert_int_equal(store.max_token, most);
        assert_int_equal(largest, most);
        struct hl_store_builder builder; /* the same in memory has the same checksum */
        hl_store_builder_init(&builder, &probe.mem, wide ? 100000 : 65536, 0);
        for (size_t d = 0, from = 0; d < 4; from = ends[d++]) {
            assert_int_equal(builder.sink.tokens(&builder.sink, ids + from, ends[d] - from, &diag),
                             HL_OK);
            assert_int_equal(builder.sink.document_end(&builder.sink, &diag), HL_OK);
        }
        hl_store_builder_finish(&builder, &memory);
        assert_true(memory.checksum == store.checksum);
        hl_store_free(&memory);
        hl_store_free(&store);
    }
    assert_int_equal(probe.n_live, 0);
    scratch_remove(&scratch);
}

/* Every single changed byte and every shorter length is refused. */
static void test_every_damage(void **state) {
    (void)state;
    struct scratch scratch;
    struct hl_mem_probe probe;
    scratch_make(&scratch);
    hl_mem_probe_init(&probe, 0);
    char path[256];
    const int32_t ids[] = {5, 6, 7, 8, 9};
    const size_t ends[] = {2, 5};
    write_shard(&probe.mem, scratch_path(&scratch, "a.hls", path), 100, ids, ends, 2);
    _Alignas(8) char bytes[256];
    FILE *file = fopen(path, "rb");
    size_t n = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    assert_int_equal(n, 128 + 16 + 16);
    struct hl_store store;
    struct hl_diag diag;
    assert_int_equal(hl_shard_parse(&probe.mem, bytes, n, "a.hls", -1, true, &store, &diag), HL_OK);
    hl_store_free(&store);
    int undetected = 0;
    for (size_t i = 0; i < n; i++) {
        bytes[i] ^= 0x10;
        enum hl_status status =
            hl_shard_parse(&probe.mem, bytes, n, "a.hls", -1, true, &store, &diag);
        undetected += status == HL_OK;
        if (status == HL_OK) hl_store_free(&store);
        bytes[i] ^= 0x10;
    }
    assert_int_equal(undetected, 0);
    for (size_t k = 0; k < n; k++) {
        enum hl_status status =
            hl_shard_parse(&probe.mem, bytes, k, "a.hls", -1, true, &store, &diag);
        assert_true(status == HL_E_FORMAT);
        assert_non_null(strstr(diag.text, "a.hls: "));
    }
    assert_int_equal(probe.n_live, 0);
    scratch_remove(&scratch);
}

/* A header that lies, with a right checksum. */
static void test_lying_headers(void **state) {
    (void)state;
    struct hl_shard_header good = {.magic = "",
                                   .version = 1,
                                   .token_bytes = 2,
                                   .n_tokens = 4,
                                   .n_documents = 1,
                                   .max_token = 9,
                                   .tokens_at = 128,
                                   .documents_at = 136,
                                   .file_bytes = 144};
    memcpy(good.magic, HL_SHARD_MAGIC, 8);
    for (int k = 0; k < 14; k++) {
        struct hl_shard_header bad = good;
        _Alignas(8) char bytes[144] = {0};
        switch (k) {
        case 1: bad.n_tokens = UINT64_MAX; break;
        case 2: bad.n_tokens = 1ull << 63; break;
        case 3: bad.n_documents = UINT64_MAX; break;
        case 4: bad.n_documents = (1ull << 61) + 1; break;
        case 5: bad.token_bytes = 0; break;
        case 6: bad.token_bytes = 3; break;
        case 7: bad.tokens_at = 120; break;
        case 8: bad.documents_at = UINT64_MAX - 7; break;
        case 9: bad.max_token = 1 << 16; break;
        case 10: bad.reserved[4] = 1; break;
        case 11: bad.file_bytes = 145; break;
        case 12: bad.version = 2; break;
        case 13: bytes[136] = 1; break; /* the first document does not start at 0 */
        default: break;
        }
        bad.header_checksum = XXH3_64bits(&bad, 120);
        memcpy(bytes, &bad, sizeof bad);
        struct hl_store store;
        struct hl_diag diag;
        enum hl_status status =
            hl_shard_parse(hl_mem_default(), bytes, sizeof bytes, "x", -1, false, &store, &diag);
        if (k == 12) assert_int_equal(status, HL_E_UNSUPPORTED);
        else assert_int_equal(status, k ? HL_E_FORMAT : HL_OK);
    }
}

static void test_llmc(void **state) {
    (void)state;
    _Alignas(8) char bytes[1024 + 14] = {0};
    const int32_t head[] = {20240520, 1, 7};
    const uint16_t tokens[] = {9, 1, 2, 9, 3, 9, 4};
    memcpy(bytes, head, sizeof head);
    memcpy(bytes + 1024, tokens, sizeof tokens);
    struct hl_mem_probe probe;
    hl_mem_probe_init(&probe, 0);
    struct hl_store store;
    struct hl_diag diag;
    assert_int_equal(
        hl_shard_parse(&probe.mem, bytes, sizeof bytes, "l.bin", 9, true, &store, &diag), HL_OK);
    const uint64_t starts[] = {0, 1, 4, 6};
    assert_int_equal(store.n_documents, 4);
    assert_memory_equal(store.document_D, starts, sizeof starts);
    assert_int_equal(store.max_token, 9);
    hl_store_free(&store);
    assert_int_equal(
        hl_shard_parse(&probe.mem, bytes, sizeof bytes, "l.bin", -1, true, &store, &diag), HL_OK);
    assert_int_equal(store.n_documents, 1);
    hl_store_free(&store);
    assert_int_equal(
        hl_shard_parse(&probe.mem, bytes, sizeof bytes - 1, "l.bin", 9, true, &store, &diag),
        HL_E_FORMAT);
    assert_non_null(strstr(diag.text, "cut off"));
    bytes[4] = 2;
    assert_int_equal(
        hl_shard_parse(&probe.mem, bytes, sizeof bytes, "l.bin", 9, true, &store, &diag),
        HL_E_UNSUPPORTED);
    assert_int_equal(probe.n_live, 0);
}

/* 2^31 + 5 tokens behind a sparse file: offsets beyond 32 bits lead to the right token. */
static void test_beyond_four_gigabytes(void **state) {
    (void)state;
    struct scratch scratch;
    scratch_make(&scratch);
    char path[256];
    uint64_t n = ((uint64_t)1 << 31) + 5, documents_at = (128 + 2 * n + 7) / 8 * 8;
    struct hl_shard_header head = {.version = 1,
                                   .token_bytes = 2,
                                   .n_tokens = n,
                                   .n_documents = 2,
                                   .max_token = 300,
                                   .tokens_at = 128,
                                   .documents_at = documents_at,
                                   .file_bytes = documents_at + 16};
    memcpy(head.magic, HL_SHARD_MAGIC, 8);
    head.header_checksum = XXH3_64bits(&head, 120);
    const uint64_t starts[] = {0, n - 3};
    const uint16_t last[] = {297, 298, 299, 300};
    int file = open(scratch_path(&scratch, "big.hls", path), O_CREAT | O_RDWR, 0666);
    assert_true(file >= 0);
    if (ftruncate(file, (off_t)head.file_bytes)) {
        print_message("SKIP: no sparse file of 4 GiB here\n");
        close(file);
        scratch_remove(&scratch);
        skip();
    }
    assert_int_equal(pwrite(file, &head, sizeof head, 0), sizeof head);
    assert_int_equal(pwrite(file, last, sizeof last, (off_t)(128 + 2 * (n - 4))), sizeof last);
    assert_int_equal(pwrite(file, starts, sizeof starts, (off_t)documents_at), sizeof starts);
    close(file);
    struct hl_store store;
    struct hl_diag diag;
    assert_int_equal(hl_shard_open(hl_mem_default(), path, -1, false, &store, &diag), HL_OK);
    int32_t back[4];
    hl_store_copy(&store, n - 4, 4, back);
    for (int i = 0; i < 4; i++) assert_int_equal(back[i], last[i]);
    assert_int_equal(hl_store_document_from(&store, 1), 1);
    assert_int_equal(hl_store_document_from(&store, n - 2), 2);
    hl_store_free(&store);
    scratch_remove(&scratch);
}

/* A full disk and a name that cannot be created: said, and nothing is left. */
static void test_write_fails(void **state) {
    (void)state;
    struct scratch scratch;
    scratch_make(&scratch);
    struct hl_shard_writer writer;
    struct hl_diag diag;
    char path[256];
    assert_int_equal(hl_shard_writer_open(&writer, hl_mem_default(),
                                          scratch_path(&scratch, "no/a.hls", path), 10, 0, &diag),
                     HL_E_IO);
    assert_non_null(strstr(diag.text, "No such file"));
    assert_int_equal(hl_shard_writer_open(&writer, hl_mem_default(),
                                          scratch_path(&scratch, "a.hls", path), 10, 0, &diag),
                     HL_OK);
    hl_shard_writer_close(&writer); /* not committed */
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(rmdir(scratch.folder), 0); /* nothing is left in it */
}

static void test_each_allocation_fails(void **state) {
    (void)state;
    struct scratch scratch;
    scratch_make(&scratch);
    char path[256];
    const int32_t ids[] = {1, 2, 3};
    for (long k = 1; k <= 4; k++) {
        struct hl_mem_probe probe;
        struct hl_shard_writer writer;
        struct hl_diag diag;
        hl_mem_probe_init(&probe, k);
        enum hl_status status = hl_shard_writer_open(
            &writer, &probe.mem, scratch_path(&scratch, "a.hls", path), 10, 0, &diag);
        if (!status) status = writer.sink.tokens(&writer.sink, ids, 3, &diag);
        assert_int_equal(status, HL_E_MEMORY);
        hl_shard_writer_close(&writer);
        assert_int_equal(probe.n_live, 0);
    }
    assert_int_equal(rmdir(scratch.folder), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_round_trip),
                                       cmocka_unit_test(test_every_damage),
                                       cmocka_unit_test(test_lying_headers),
                                       cmocka_unit_test(test_llmc),
                                       cmocka_unit_test(test_beyond_four_gigabytes),
                                       cmocka_unit_test(test_write_fails),
                                       cmocka_unit_test(test_each_allocation_fails)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
