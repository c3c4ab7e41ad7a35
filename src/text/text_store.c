/* Tokenise text files, or find their tokens in the cache. See text_store.h.
 *
 * The cache's key is a hash of each file's name, size, time of change and first and last 64 KiB, of
 * the tokenizer and of the options that decide about tokens. It does not read whole files: that
 * would cost as much as the cache saves. */
#include "text/text_store.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "halley/text_number.h"
#include "text/ingest.h"
#include "text/shard.h"
#include "text/tokenizer_internal.h"

enum { KEY_VERSION = 1, EDGE_BYTES = 64 << 10, SAY_FROM_BYTES = 32 << 20 };

uint64_t hl_bytes_of_files(char *const *paths, size_t n) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < n; i++) {
        struct stat info;
        if (!stat(paths[i], &info) && S_ISREG(info.st_mode)) bytes += (uint64_t)info.st_size;
    }
    return bytes;
}

static enum hl_status ingest_all(const struct hl_text_job *job, char *const *paths, size_t n,
                                 struct hl_token_sink *sink, struct hl_diag *diag) {
    struct hl_ingest ingest;
    enum hl_status status = HL_OK;
    hl_ingest_init(&ingest, job->mem, job->tokenizer, sink, job->log);
    ingest.reader.text_key = job->options->text_key;
    ingest.reader.text_format = job->options->text_format;
    ingest.reader.strict = job->options->strict;
    ingest.n_threads = job->n_threads;
    for (size_t i = 0; i < n && !status; i++) status = hl_ingest_file(&ingest, paths[i], diag);
    hl_ingest_free(&ingest);
    return status;
}

static enum hl_status read_into_memory(const struct hl_text_job *job, char *const *paths, size_t n,
                                       uint64_t n_bytes, struct hl_store *out,
                                       struct hl_diag *diag) {
    struct hl_store_builder builder;
    uint64_t expect = job->tokenizer->plain ? n_bytes + n_bytes / 64 : n_bytes / 3;
    hl_store_builder_init(&builder, job->mem, hl_tokenizer_vocab_size(job->tokenizer), expect);
    enum hl_status status = ingest_all(job, paths, n, &builder.sink, diag);
    if (!status) {
        hl_store_builder_finish(&builder, out);
        out->tokenizer_hash = hl_tokenizer_hash(job->tokenizer);
    }
    hl_store_builder_free(&builder);
    return status;
}

/* ---- cache ---- */

static uint64_t hash_text(const char *text, uint64_t seed) {
    return XXH3_64bits_withSeed(text, strlen(text), seed);
}

static bool hash_edges(const char *path, uint64_t n_bytes, char *room, uint64_t *hash) {
    FILE *file = fopen(path, "rbe");
    if (!file) return false;
    size_t n = fread(room, 1, EDGE_BYTES, file);
    *hash = XXH3_64bits_withSeed(room, n, *hash);
    if (n_bytes > EDGE_BYTES && !fseek(file, -(long)EDGE_BYTES, SEEK_END)) {
        n = fread(room, 1, EDGE_BYTES, file);
        *hash = XXH3_64bits_withSeed(room, n, *hash);
    }
    fclose(file);
    return true;
}

static bool hash_file(const char *path, char *room, uint64_t *hash) {
    struct stat info;
    if (stat(path, &info) || !S_ISREG(info.st_mode)) return false;
    const char *slash = strrchr(path, '/');
    *hash = hash_text(slash ? slash + 1 : path, *hash);
    const int64_t facts[] = {info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec};
    *hash = XXH3_64bits_withSeed(facts, sizeof facts, *hash);
    return hash_edges(path, (uint64_t)info.st_size, room, hash);
}

/* False when a file cannot be looked at: reading it will say why. */
static bool cache_key(const struct hl_text_job *job, char *const *paths, size_t n, uint64_t *out) {
    char *room = hl_alloc(job->mem, EDGE_BYTES, 1);
    if (!room) return false;
    const uint64_t options[] = {KEY_VERSION, (uint64_t)job->options->text_format,
                                job->options->strict, n};
    uint64_t hash =
        XXH3_64bits_withSeed(options, sizeof options, hl_tokenizer_hash(job->tokenizer));
    hash = hash_text(job->options->text_key, hash);
    bool good = true;
    for (size_t i = 0; i < n && good; i++) good = hash_file(paths[i], room, &hash);
    hl_free(job->mem, room);
    *out = hash;
    return good;
}

static enum hl_status write_cache(const struct hl_text_job *job, char *const *paths, size_t n,
                                  const char *path, struct hl_diag *diag) {
    struct hl_shard_writer writer;
    const char *folder = job->options->cache_dir;
    if (mkdir(folder, 0777) && errno != EEXIST)
        return hl_fail_at(diag, HL_E_IO, folder, 0, 0,
                          "cannot create the folder of --cache_dir: %m");
    enum hl_status status =
        hl_shard_writer_open(&writer, job->mem, path, hl_tokenizer_vocab_size(job->tokenizer),
                             hl_tokenizer_hash(job->tokenizer), diag);
    if (status) return status;
    status = ingest_all(job, paths, n, &writer.sink, diag);
    if (!status) status = hl_shard_writer_commit(&writer, diag);
    hl_shard_writer_close(&writer);
    return status;
}

static enum hl_status open_cached(const struct hl_text_job *job, char *const *paths, size_t n,
                                  char *path, struct hl_store *out, struct hl_diag *diag) {
    if (!access(path, R_OK)) {
        bool verify = hl_bytes_of_files(&path, 1) <= HL_VERIFY_BYTES;
        if (!hl_shard_open(job->mem, path, -1, verify, out, diag) &&
            out->tokenizer_hash == hl_tokenizer_hash(job->tokenizer)) {
            hl_log(job->log, HL_LOG_INFO, "data: %" PRIu64 " tokens found in %s", out->n_tokens,
                   path);
            return HL_OK;
        }
        hl_store_free(out);
        hl_log(job->log, HL_LOG_WARN, "%s: not usable, it is built again", path);
    }
    enum hl_status status = write_cache(job, paths, n, path, diag);
    if (status) return status;
    hl_log(job->log, HL_LOG_INFO, "data: tokens kept in %s", path);
    return hl_shard_open(job->mem, path, -1, false, out, diag);
}

enum hl_status hl_text_store_open(const struct hl_text_job *job, char *const *paths, size_t n,
                                  struct hl_store *out, struct hl_diag *diag) {
    uint64_t n_bytes = hl_bytes_of_files(paths, n), key;
    const char *folder = job->options->cache_dir;
    if (n_bytes >= SAY_FROM_BYTES) {
        char size[32];
        hl_print_bytes(size, sizeof size, n_bytes);
        hl_log(job->log, HL_LOG_INFO, "data: reading %s of text%s", size,
               folder && *folder ? "" : "; --cache_dir FOLDER keeps its tokens for the next run");
    }
    if (!folder || !*folder || n_bytes < HL_CACHE_FROM_BYTES || !cache_key(job, paths, n, &key))
        return read_into_memory(job, paths, n, n_bytes, out, diag);
    struct hl_buf path = {.mem = job->mem};
    hl_buf_printf(&path, "%s/tokens-%016" PRIx64 ".hls", folder, key);
    if (path.failed) return hl_fail_memory(diag, strlen(folder) + 32, "a file name");
    enum hl_status status = open_cached(job, paths, n, path.data, out, diag);
    hl_buf_free(&path);
    return status;
}
