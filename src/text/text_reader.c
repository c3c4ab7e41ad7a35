/* What all formats share: files, complaints, counts. See text_reader.h. */
#include "text/text_reader.h"

#include <inttypes.h>
#include <jansson.h>
#include <string.h>
#include <strings.h>

enum { PIECE = 1 << 20, MOST_LINE = 256 << 20, SAY_FIRST = 3 };

void hl_text_reader_init(struct hl_text_reader *reader, struct hl_mem *mem, struct hl_log *log) {
    *reader = (struct hl_text_reader){.mem = mem,
                                      .log = log,
                                      .text_key = "text",
                                      .text_format = HL_TEXT_AUTO,
                                      .piece_bytes = PIECE,
                                      .most_bytes = MOST_LINE};
}

static bool ends_with(const char *path, const char *end) {
    size_t n = strlen(path), k = strlen(end);
    return n >= k && !strcasecmp(path + n - k, end);
}

static int format_of(int text_format, const char *path) {
    if (text_format != HL_TEXT_AUTO) return text_format;
    return ends_with(path, ".jsonl") || ends_with(path, ".ndjson") ? HL_TEXT_JSONL
                                                                   : HL_TEXT_DOCUMENT;
}

enum hl_status hl_text_reader_open(struct hl_text_reader *reader, const char *path,
                                   struct hl_diag *diag) {
    hl_text_reader_close(reader);
    enum hl_status status = hl_text_file_open(&reader->file, reader->mem, path, diag);
    if (status) return status;
    reader->format = format_of(reader->text_format, path);
    reader->n_bytes_before = reader->n_bytes;
    reader->n_used = 0;
    reader->n_complaints = reader->n_said = reader->n_blank = 0;
    reader->empty = true;
    reader->done = reader->reported = reader->kept_invalid = false;
    reader->line_after = 0;
    return HL_OK;
}

void hl_text_reader_drop(struct hl_text_reader *reader) {
    json_decref(reader->row);
    reader->row = NULL;
    if (reader->n_used) hl_text_file_consume(&reader->file, reader->n_used);
    if (reader->line_after) {
        reader->file.line = reader->line_after;
        reader->file.column = reader->column_after;
    }
    reader->n_used = 0;
    reader->line_after = 0;
}

void hl_text_reader_close(struct hl_text_reader *reader) {
    json_decref(reader->row);
    reader->row = NULL;
    hl_text_file_close(&reader->file);
}

enum hl_status hl_text_complain(struct hl_text_reader *reader, uint64_t n, uint64_t line,
                                uint64_t column, const char *what, struct hl_diag *diag) {
    const char *path = reader->file.path;
    if (reader->strict)
        return hl_fail_at(diag, HL_E_FORMAT, path, (long)line, (long)column,
                          "%s; without --strict it is skipped", what);
    reader->n_complaints += n;
    if (reader->n_said < SAY_FIRST) {
        reader->n_said++;
        hl_log(reader->log, HL_LOG_WARN, "%s:%" PRIu64 ":%" PRIu64 ": %s: skipped", path, line,
               column, what);
    }
    return HL_OK;
}

static void report(struct hl_text_reader *reader) {
    if (reader->reported) return;
    reader->reported = true;
    const char *path = reader->file.path,
               *what = reader->format == HL_TEXT_DOCUMENT ? "bytes that are not UTF-8" : "lines";
    if (reader->n_complaints)
        hl_log(reader->log, HL_LOG_WARN, "%s: skipped %s: %" PRIu64, path, what,
               reader->n_complaints);
    if (reader->n_blank)
        hl_log(reader->log, HL_LOG_INFO, "%s: blank lines, which are no documents: %" PRIu64, path,
               reader->n_blank);
    if (reader->kept_invalid)
        hl_log(reader->log, HL_LOG_INFO,
               "%s: not all of it is UTF-8; the byte tokenizer keeps it as it is", path);
    reader->n_skipped += reader->n_complaints;
}

enum hl_status hl_text_reader_next(struct hl_text_reader *reader, struct hl_text_piece *out,
                                   struct hl_diag *diag) {
    hl_text_reader_drop(reader);
    enum hl_status status = HL_END;
    if (!reader->done) {
        bool document = reader->format == HL_TEXT_DOCUMENT;
        status = document ? hl_text_next_of_document(reader, out, diag)
                          : hl_text_next_of_lines(reader, out, diag);
    }
    if (status == HL_END) report(reader);
    reader->n_bytes = reader->n_bytes_before + reader->file.n_read;
    return status;
}
