/* See build.h. */
#include "text/build.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "os/glob.h"
#include "text/bpe_train.h"
#include "text/ingest.h"
#include "text/shard.h"
#include "text/text_store.h"

/* ---- inputs ---- */

static enum hl_status find_files(const struct hl_build *build, struct hl_paths *paths,
                                 struct hl_diag *diag) {
    if (!build->data->n)
        return hl_fail(diag, HL_E_USER,
                       "no data: name text files with --data, for example --data 'corpus/*.txt'");
    enum hl_status status = HL_OK;
    for (size_t i = 0; i < build->data->n && !status; i++)
        status = hl_glob(paths, build->data->items[i], diag);
    for (size_t i = 0; i < paths->n && !status; i++)
        if (hl_shard_kind_of(paths->items[i]) != HL_SHARD_NONE)
            status = hl_fail_at(diag, HL_E_USER, paths->items[i], 0, 0,
                                "is a shard already; text is needed here");
    return status;
}

static void set_rules(const struct hl_build *build, struct hl_text_reader *reader) {
    reader->text_key = build->text_key;
    reader->text_format = build->text_format;
    reader->strict = build->strict;
}

/* ---- shards ---- */

/* A sink that begins the next shard when one is full. */
struct shelf {
    struct hl_token_sink sink;
    const struct hl_build *build;
    const struct hl_tokenizer *tokenizer;
    const char *folder;
    uint64_t shard_tokens, n_shards, n_tokens;
    struct hl_shard_writer writer;
    bool open;
};

static enum hl_status open_shard(struct shelf *shelf, struct hl_diag *diag) {
    struct hl_buf path = {.mem = shelf->build->mem};
    hl_buf_printf(&path, "%s/data-%06" PRIu64 ".hls", shelf->folder, shelf->n_shards);
    if (path.failed) return hl_fail_memory(diag, strlen(shelf->folder) + 24, "a file name");
    enum hl_status status = hl_shard_writer_open(&shelf->writer, path.mem, path.data,
                                                 hl_tokenizer_vocab_size(shelf->tokenizer),
                                                 hl_tokenizer_hash(shelf->tokenizer), diag);
    hl_buf_free(&path);
    shelf->open = !status;
    return status;
}

static enum hl_status commit_shard(struct shelf *shelf, struct hl_diag *diag) {
    if (!shelf->open) return HL_OK;
    enum hl_status status = hl_shard_writer_commit(&shelf->writer, diag);
    shelf->n_tokens += shelf->writer.n_tokens;
    shelf->n_shards += !status;
    hl_shard_writer_close(&shelf->writer);
    shelf->open = false;
    return status;
}

static enum hl_status shelf_tokens(struct hl_token_sink *sink, const int32_t *ids, size_t n,
                                   struct hl_diag *diag) {
    struct shelf *shelf = (struct shelf *)sink;
    enum hl_status status = shelf->open ? HL_OK : open_shard(shelf, diag);
    return status ? status : shelf->writer.sink.tokens(&shelf->writer.sink, ids, n, diag);
}

static enum hl_status shelf_document_end(struct hl_token_sink *sink, struct hl_diag *diag) {
    struct shelf *shelf = (struct shelf *)sink;
    if (!shelf->open) return HL_OK;
    enum hl_status status = shelf->writer.sink.document_end(&shelf->writer.sink, diag);
    return !status && shelf->writer.n_tokens >= shelf->shard_tokens ? commit_shard(shelf, diag)
                                                                    : status;
}

struct progress {
    const struct hl_build *build;
    uint64_t total_bytes;
};

static void forward_progress(void *context, uint64_t n_bytes) {
    const struct progress *progress = context;
    if (progress->build->progress)
        progress->build->progress(progress->build->progress_context, n_bytes,
                                  progress->total_bytes);
}

static enum hl_status fill_shelf(struct shelf *shelf, const struct hl_paths *paths,
                                 struct hl_built *built, struct hl_diag *diag) {
    const struct hl_build *build = shelf->build;
    struct progress progress = {build, hl_bytes_of_files(paths->items, paths->n)};
    struct hl_ingest ingest;
    hl_ingest_init(&ingest, build->mem, shelf->tokenizer, &shelf->sink, build->log);
    set_rules(build, &ingest.reader);
    ingest.n_threads = build->n_threads;
    ingest.progress = forward_progress;
    ingest.progress_context = &progress;
    enum hl_status status = HL_OK;
    for (size_t i = 0; i < paths->n && !status; i++)
        status = hl_ingest_file(&ingest, paths->items[i], diag);
    if (!status) status = commit_shard(shelf, diag);
    if (shelf->open) hl_shard_writer_close(&shelf->writer);
    *built = (struct hl_built){paths->n,           ingest.reader.n_bytes,
                               ingest.n_documents, ingest.reader.n_skipped,
                               shelf->n_tokens,    shelf->n_shards};
    hl_ingest_free(&ingest);
    return status;
}

static enum hl_status make_folder(const struct hl_build *build, const char *folder,
                                  struct hl_diag *diag) {
    if (mkdir(folder, 0777) && errno != EEXIST)
        return hl_fail_at(diag, HL_E_IO, folder, 0, 0, "cannot create the folder: %m");
    struct hl_paths old = {.mem = build->mem};
    struct hl_buf pattern = {.mem = build->mem};
    hl_buf_printf(&pattern, "%s/data-*.hls", folder);
    enum hl_status status = pattern.failed
                                ? hl_fail_memory(diag, strlen(folder) + 16, "a file name")
                                : hl_glob(&old, pattern.data, diag);
    if (!status)
        status = hl_fail_at(diag, HL_E_USER, folder, 0, 0,
                            "holds shards already (%s); remove them or choose another --out",
                            old.items[0]);
    else if (status == HL_E_USER) status = HL_OK; /* no file matches */
    hl_buf_free(&pattern);
    hl_paths_free(&old);
    return status;
}

static enum hl_status write_beside(const struct hl_build *build,
                                   const struct hl_tokenizer *tokenizer, const char *folder,
                                   struct hl_diag *diag) {
    struct hl_buf path = {.mem = build->mem};
    hl_buf_printf(&path, "%s/tokenizer.json", folder);
    enum hl_status status = path.failed
                                ? hl_fail_memory(diag, strlen(folder) + 16, "a file name")
                                : hl_tokenizer_write(build->mem, tokenizer, path.data, diag);
    hl_buf_free(&path);
    return status;
}

enum hl_status hl_build_shards(const struct hl_build *build, const struct hl_tokenizer *tokenizer,
                               const char *folder, uint64_t shard_tokens, struct hl_built *out,
                               struct hl_diag *diag) {
    struct hl_paths paths = {.mem = build->mem};
    struct hl_built built = {0};
    struct shelf shelf = {.sink = {shelf_tokens, shelf_document_end},
                          .build = build,
                          .tokenizer = tokenizer,
                          .folder = folder,
                          .shard_tokens = shard_tokens};
    enum hl_status status = find_files(build, &paths, diag);
    if (!status) status = make_folder(build, folder, diag);
    if (!status) status = fill_shelf(&shelf, &paths, &built, diag);
    if (!status && !built.n_tokens)
        status =
            hl_fail(diag, HL_E_USER, "the data is empty: there is nothing to put into a shard");
    if (!status) status = write_beside(build, tokenizer, folder, diag);
    if (!status) *out = built;
    hl_paths_free(&paths);
    return status;
}

/* ---- tokenizer ---- */

struct files { /* texts of all files, one after another */
    struct hl_text_source source;
    struct progress progress;
    const struct hl_paths *paths;
    size_t next_file;
    bool open;
    struct hl_text_reader reader;
    uint64_t n_documents;
};

static enum hl_status next_text(struct hl_text_source *source, const char **text, size_t *n,
                                struct hl_diag *diag) {
    struct files *files = (struct files *)source;
    for (;;) {
        struct hl_text_piece piece;
        enum hl_status status =
            files->open ? hl_text_reader_next(&files->reader, &piece, diag) : HL_END;
        if (!status) {
            *text = piece.text;
            *n = piece.n;
            files->n_documents += piece.ends_document;
            return HL_OK;
        }
        if (status != HL_END) return status;
        forward_progress(&files->progress, files->reader.n_bytes);
        if (files->next_file == files->paths->n) return HL_END;
        status = hl_text_reader_open(&files->reader, files->paths->items[files->next_file++], diag);
        if (status) return status;
        files->open = true;
    }
}

enum hl_status hl_build_tokenizer(const struct hl_build *build, int64_t vocab_size,
                                  struct hl_tokenizer **tokenizer_out, struct hl_built *out,
                                  struct hl_diag *diag) {
    struct hl_paths paths = {.mem = build->mem};
    enum hl_status status = find_files(build, &paths, diag);
    struct files files = {.source = {next_text},
                          .progress = {build, hl_bytes_of_files(paths.items, paths.n)},
                          .paths = &paths};
    hl_text_reader_init(&files.reader, build->mem, build->log);
    set_rules(build, &files.reader);
    if (!status)
        status =
            hl_bpe_train(build->mem, &files.source, vocab_size, tokenizer_out, build->log, diag);
    hl_text_reader_close(&files.reader);
    if (!status)
        *out = (struct hl_built){paths.n,
                                 files.reader.n_bytes,
                                 files.n_documents,
                                 files.reader.n_skipped,
                                 (uint64_t)hl_tokenizer_vocab_size(*tokenizer_out),
                                 0};
    hl_paths_free(&paths);
    return status;
}

static enum hl_status write_file(const char *temporary, const char *path, const struct hl_buf *json,
                                 struct hl_diag *diag) {
    FILE *file = fopen(temporary, "wbe");
    if (!file) return hl_fail_at(diag, HL_E_IO, path, 0, 0, "cannot create: %m");
    bool good =
        fwrite(json->data, 1, json->n, file) == json->n && !fflush(file) && !fsync(fileno(file));
    enum hl_status status =
        good ? HL_OK : hl_fail_at(diag, HL_E_IO, path, 0, 0, "cannot write: %m");
    if (fclose(file) && !status) status = hl_fail_at(diag, HL_E_IO, path, 0, 0, "cannot write: %m");
    if (!status && rename(temporary, path))
        status = hl_fail_at(diag, HL_E_IO, path, 0, 0, "cannot rename to it: %m");
    if (status) unlink(temporary);
    return status;
}

enum hl_status hl_tokenizer_write(struct hl_mem *mem, const struct hl_tokenizer *tokenizer,
                                  const char *path, struct hl_diag *diag) {
    struct hl_buf json = {.mem = mem}, temporary = {.mem = mem};
    hl_buf_printf(&temporary, "%s.tmp-%ld", path, (long)getpid());
    enum hl_status status = temporary.failed
                                ? hl_fail_memory(diag, strlen(path) + 24, "a file name")
                                : hl_tokenizer_to_json(tokenizer, &json, diag);
    if (!status) status = write_file(temporary.data, path, &json, diag);
    hl_buf_free(&json);
    hl_buf_free(&temporary);
    return status;
}
