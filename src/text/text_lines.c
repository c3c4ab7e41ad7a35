/* One document per line, as plain text or JSONL. A line that cannot be used is skipped, said and
 * counted. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "text/text_reader.h"
#include "text/unicode.h"

enum { WINDOW = 1 << 20 };

/* A line that yields no document is HL_PENDING: the next one is looked at. */
static enum hl_status skip(struct hl_text_reader *reader, uint64_t column, const char *what,
                           struct hl_diag *diag) {
    enum hl_status status = hl_text_complain(reader, 1, reader->file.line, column, what, diag);
    return status ? status : HL_PENDING;
}

static enum hl_status blank(struct hl_text_reader *reader) {
    reader->n_blank++;
    return HL_PENDING;
}

static enum hl_status take_line(struct hl_text_reader *reader, size_t n, struct hl_text_piece *out,
                                struct hl_diag *diag) {
    size_t good = reader->any_bytes ? n : hl_utf8_valid(reader->file.data, n);
    if (good < n) return skip(reader, good + 1, "not UTF-8", diag);
    *out = (struct hl_text_piece){reader->file.data, n, true};
    return HL_OK;
}

static enum hl_status no_text(struct hl_text_reader *reader, json_t *row, struct hl_diag *diag) {
    const char *key = reader->text_key, *first = json_object_iter_key(json_object_iter(row));
    char what[200];
    if (!json_is_object(row)) (void)snprintf(what, sizeof what, "not a JSON object");
    else if (json_object_get(row, key))
        (void)snprintf(what, sizeof what, "the value of \"%.60s\" is not a string", key);
    else if (!first) (void)snprintf(what, sizeof what, "no key \"%.60s\"", key);
    else
        (void)snprintf(what, sizeof what,
                       "no key \"%.60s\"; --text_key names another, the first here is \"%.60s\"",
                       key, first);
    return skip(reader, 1, what, diag);
}

static enum hl_status take_json(struct hl_text_reader *reader, size_t n, bool cut_off,
                                struct hl_text_piece *out, struct hl_diag *diag) {
    json_error_t error;
    json_t *row = json_loadb(reader->file.data, n, JSON_ALLOW_NUL | JSON_DECODE_ANY, &error);
    if (!row && json_error_code(&error) == json_error_out_of_memory)
        return hl_fail_memory(diag, n, "a JSON row");
    if (!row) {
        char what[JSON_ERROR_TEXT_LENGTH + 100];
        (void)snprintf(what, sizeof what, "not JSON: %s%s", error.text,
                       cut_off ? " (the file ends without a line feed: was it cut off?)" : "");
        return skip(reader, error.position > 0 ? (uint64_t)error.position : 1, what, diag);
    }
    reader->row = row; /* dropped at the next call */
    const json_t *text = json_object_get(row, reader->text_key);
    if (!json_is_string(text)) return no_text(reader, row, diag);
    if (!json_string_length(text)) return blank(reader);
    *out = (struct hl_text_piece){json_string_value(text), json_string_length(text), true};
    return HL_OK;
}

static enum hl_status take(struct hl_text_reader *reader, size_t n, bool cut_off,
                           struct hl_text_piece *out, struct hl_diag *diag) {
    const char *text = reader->file.data;
    if (n && text[n - 1] == '\r') n--;
    size_t blanks = 0;
    while (blanks < n && (text[blanks] == ' ' || text[blanks] == '\t')) blanks++;
    if (blanks == n) return blank(reader);
    return reader->format == HL_TEXT_JSONL ? take_json(reader, n, cut_off, out, diag)
                                           : take_line(reader, n, out, diag);
}

/* A line beyond the limit: move to its line feed without holding it. */
static enum hl_status skip_giant(struct hl_text_reader *reader, struct hl_diag *diag) {
    char what[100];
    struct hl_text_file *file = &reader->file;
    (void)snprintf(what, sizeof what, "a line of more than %zu MiB", reader->most_bytes >> 20);
    enum hl_status status = hl_text_complain(reader, 1, file->line, 1, what, diag);
    while (!status) {
        const char *feed = memchr(file->data, '\n', file->n);
        hl_text_file_consume(file, feed ? (size_t)(feed - file->data) : file->n);
        reader->n_used = feed ? 1 : 0;
        if (feed || (file->end && !file->n)) return HL_PENDING;
        status = hl_text_file_fill(file, WINDOW, diag);
    }
    return status;
}

/* Fill until the window holds a line feed or the end of the file. n: bytes of the line, without the
 * feed. */
static enum hl_status find_line(struct hl_text_reader *reader, size_t *n, bool *has_feed,
                                struct hl_diag *diag) {
    struct hl_text_file *file = &reader->file;
    size_t seen = 0;
    for (size_t want = WINDOW;; want *= 2) {
        const char *feed = file->n > seen ? memchr(file->data + seen, '\n', file->n - seen) : NULL;
        *has_feed = feed;
        *n = feed ? (size_t)(feed - file->data) : file->n;
        if (feed || file->end || file->n > reader->most_bytes) return HL_OK;
        seen = file->n;
        enum hl_status status = hl_text_file_fill(file, want > seen ? want : seen + 1, diag);
        if (status) return status;
    }
}

enum hl_status hl_text_next_of_lines(struct hl_text_reader *reader, struct hl_text_piece *out,
                                     struct hl_diag *diag) {
    enum hl_status status = HL_PENDING;
    while (status == HL_PENDING) {
        size_t n;
        bool has_feed;
        hl_text_reader_drop(reader);
        status = find_line(reader, &n, &has_feed, diag);
        if (status) return status;
        if (!n && !has_feed) {
            reader->done = true;
            return HL_END;
        }
        if (n > reader->most_bytes) status = skip_giant(reader, diag);
        else {
            reader->n_used = n + has_feed;
            status = take(reader, n, !has_feed, out, diag);
        }
    }
    return status;
}
