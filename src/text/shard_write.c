/* Writing shards: tokens stream through, index and header follow, the name comes last. See shard.h.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "text/shard.h"
#include "text/shard_format.h"

enum { CHUNK_TOKENS = 1 << 16 };

static enum hl_status failed(const struct hl_shard_writer *writer, struct hl_diag *diag) {
    return hl_fail_at(diag, HL_E_IO, writer->path, 0, 0,
                      "cannot write the shard: %m; nothing was left behind");
}

static enum hl_status put(struct hl_shard_writer *writer, const void *bytes, size_t n,
                          struct hl_diag *diag) {
    return fwrite(bytes, 1, n, writer->file) == n ? HL_OK : failed(writer, diag);
}

static enum hl_status open_document(struct hl_shard_writer *writer, struct hl_diag *diag) {
    if (writer->n_documents == writer->capacity) {
        size_t capacity = writer->capacity ? 2 * writer->capacity : 256;
        uint64_t *documents =
            hl_realloc(writer->mem, writer->documents, capacity, sizeof *documents);
        if (!documents)
            return hl_fail_memory(diag, capacity * sizeof *documents, "the document index");
        writer->documents = documents;
        writer->capacity = capacity;
    }
    writer->documents[writer->n_documents++] = writer->n_tokens;
    writer->document_open = true;
    return HL_OK;
}

static enum hl_status add_tokens(struct hl_token_sink *sink, const int32_t *ids, size_t n,
                                 struct hl_diag *diag) {
    struct hl_shard_writer *writer = (struct hl_shard_writer *)sink;
    if (!n) return HL_OK;
    enum hl_status status = writer->document_open ? HL_OK : open_document(writer, diag);
    while (n && !status) {
        size_t part = n < CHUNK_TOKENS ? n : CHUNK_TOKENS, bytes = part * (size_t)writer->width;
        for (size_t i = 0; i < part; i++)
            if (ids[i] > writer->max_token) writer->max_token = ids[i];
        hl_tokens_narrow(ids, part, writer->width, writer->narrow);
        XXH3_64bits_update(&writer->checksum, writer->narrow, bytes);
        status = put(writer, writer->narrow, bytes, diag);
        writer->n_tokens += part;
        ids += part;
        n -= part;
    }
    return status;
}

static enum hl_status end_document(struct hl_token_sink *sink, struct hl_diag *diag) {
    (void)diag;
    ((struct hl_shard_writer *)sink)->document_open = false;
    return HL_OK;
}

static char *temporary_name(struct hl_mem *mem, const char *path) {
    struct hl_buf name = {.mem = mem};
    hl_buf_printf(&name, "%s.tmp-%ld", path, (long)getpid());
    if (!name.failed) return name.data;
    hl_buf_free(&name);
    return NULL;
}

enum hl_status hl_shard_writer_open(struct hl_shard_writer *writer, struct hl_mem *mem,
                                    const char *path, int64_t vocab_size, uint64_t tokenizer_hash,
                                    struct hl_diag *diag) {
    *writer = (struct hl_shard_writer){.sink = {add_tokens, end_document},
                                       .mem = mem,
                                       .width = hl_token_width(vocab_size),
                                       .tokenizer_hash = tokenizer_hash,
                                       .max_token = -1};
    XXH3_INITSTATE(&writer->checksum);
    XXH3_64bits_reset(&writer->checksum);
    writer->path = hl_strdup(mem, path);
    writer->temporary = temporary_name(mem, path);
    writer->narrow = hl_alloc(mem, CHUNK_TOKENS, (size_t)writer->width);
    enum hl_status status = HL_OK;
    if (!writer->path || !writer->temporary || !writer->narrow)
        status = hl_fail_memory(diag, CHUNK_TOKENS * (unsigned)writer->width, "a shard writer");
    if (!status) {
        writer->file = fopen(writer->temporary, "wbe");
        const char nothing[HL_SHARD_HEADER_BYTES] = {0};
        status = writer->file
                     ? put(writer, nothing, sizeof nothing, diag)
                     : hl_fail_at(diag, HL_E_IO, writer->temporary, 0, 0, "cannot create: %m");
    }
    if (status) hl_shard_writer_close(writer);
    return status;
}

static struct hl_shard_header header_of(struct hl_shard_writer *writer, uint64_t tokens_end) {
    uint64_t documents_at = (tokens_end + 7) / 8 * 8;
    struct hl_shard_header head = {.version = HL_SHARD_VERSION,
                                   .token_bytes = (uint32_t)writer->width,
                                   .n_tokens = writer->n_tokens,
                                   .n_documents = writer->n_documents,
                                   .tokenizer_hash = writer->tokenizer_hash,
                                   .max_token = writer->n_tokens ? (uint64_t)writer->max_token : 0,
                                   .checksum = XXH3_64bits_digest(&writer->checksum),
                                   .tokens_at = HL_SHARD_HEADER_BYTES,
                                   .documents_at = documents_at,
                                   .file_bytes = documents_at + writer->n_documents * 8};
    memcpy(head.magic, HL_SHARD_MAGIC, sizeof head.magic);
    head.header_checksum = XXH3_64bits(&head, offsetof(struct hl_shard_header, header_checksum));
    return head;
}

static enum hl_status finish_file(struct hl_shard_writer *writer, struct hl_diag *diag) {
    const char zeros[8] = {0};
    uint64_t end = HL_SHARD_HEADER_BYTES + writer->n_tokens * (uint64_t)writer->width;
    size_t index_bytes = writer->n_documents * sizeof(uint64_t);
    enum hl_status status = put(writer, zeros, (size_t)((8 - end % 8) % 8), diag);
    if (!status && index_bytes) {
        XXH3_64bits_update(&writer->checksum, writer->documents, index_bytes);
        status = put(writer, writer->documents, index_bytes, diag);
    }
    struct hl_shard_header head = header_of(writer, end);
    if (!status && fseek(writer->file, 0, SEEK_SET)) status = failed(writer, diag);
    if (!status) status = put(writer, &head, sizeof head, diag);
    if (!status && (fflush(writer->file) || fsync(fileno(writer->file))))
        status = failed(writer, diag);
    return status;
}

enum hl_status hl_shard_writer_commit(struct hl_shard_writer *writer, struct hl_diag *diag) {
    assert(writer->file);
    enum hl_status status = finish_file(writer, diag);
    if (fclose(writer->file) && !status) status = failed(writer, diag);
    writer->file = NULL;
    if (!status && rename(writer->temporary, writer->path)) status = failed(writer, diag);
    if (status) unlink(writer->temporary);
    return status;
}

void hl_shard_writer_close(struct hl_shard_writer *writer) {
    if (!writer->mem) return;
    if (writer->file) {
        fclose(writer->file);
        unlink(writer->temporary);
    }
    hl_free(writer->mem, writer->path);
    hl_free(writer->mem, writer->temporary);
    hl_free(writer->mem, writer->documents);
    hl_free(writer->mem, writer->narrow);
    *writer = (struct hl_shard_writer){0};
}
