/* One document per line, as plain text or JSONL. A line that cannot be used is skipped, said and counted. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "text/ingest_formats.h"
#include "text/unicode.h"

enum { WINDOW = 1 << 20 };

struct lines {
    struct hl_ingest *ingest;
    struct hl_text_file *file;
    struct hl_complaints complaints;
    uint64_t n_blank;
};

static enum hl_status skip(struct lines *lines, uint64_t column, const char *what, struct hl_diag *diag) {
    lines->complaints.n++;
    return hl_ingest_complain(lines->ingest, &lines->complaints, lines->file->path, lines->file->line, column, what, diag);
}

static enum hl_status add_line(struct lines *lines, const char *text, size_t n, struct hl_diag *diag) {
    size_t good = hl_utf8_valid(text, n);
    if (good < n && !lines->ingest->any_bytes) return skip(lines, good + 1, "not UTF-8", diag);
    return hl_ingest_add(lines->ingest, text, n, true, diag);
}

static enum hl_status add_text_of(struct lines *lines, const json_t *row, struct hl_diag *diag) {
    const char *key = lines->ingest->text_key;
    char what[200];
    const json_t *text = json_object_get(row, key);
    if (!json_is_object(row)) return skip(lines, 1, "not a JSON object", diag);
    if (!text) {
        const char *first = json_object_iter_key(json_object_iter((json_t *)(uintptr_t)row));
        if (first) (void)snprintf(what, sizeof what, "no key \"%.60s\"; --text_key names another, the first here is \"%.60s\"", key, first);
        else (void)snprintf(what, sizeof what, "no key \"%.60s\"", key);
        return skip(lines, 1, what, diag);
    }
    if (!json_is_string(text)) {
        (void)snprintf(what, sizeof what, "the value of \"%.60s\" is not a string", key);
        return skip(lines, 1, what, diag);
    }
    size_t n = json_string_length(text);
    if (!n) return lines->n_blank++, HL_OK;
    return hl_ingest_add(lines->ingest, json_string_value(text), n, true, diag);
}

static enum hl_status add_json(struct lines *lines, const char *text, size_t n, bool cut_off, struct hl_diag *diag) {
    json_error_t error;
    json_t *row = json_loadb(text, n, JSON_ALLOW_NUL | JSON_DECODE_ANY, &error);
    if (row) {
        enum hl_status status = add_text_of(lines, row, diag);
        json_decref(row);
        return status;
    }
    if (json_error_code(&error) == json_error_out_of_memory) return hl_fail_memory(diag, n, "a JSON row");
    char what[JSON_ERROR_TEXT_LENGTH + 100];
    (void)snprintf(what, sizeof what, "not JSON: %s%s", error.text,
                   cut_off ? " (the file ends without a line feed: was it cut off?)" : "");
    return skip(lines, error.position > 0 ? (uint64_t)error.position : 1, what, diag);
}

static enum hl_status use_line(struct lines *lines, const char *text, size_t n, bool jsonl, bool cut_off,
                               struct hl_diag *diag) {
    if (n && text[n - 1] == '\r') n--;
    size_t blanks = 0;
    while (blanks < n && (text[blanks] == ' ' || text[blanks] == '\t')) blanks++;
    if (blanks == n) return lines->n_blank++, HL_OK;
    return jsonl ? add_json(lines, text, n, cut_off, diag) : add_line(lines, text, n, diag);
}

/* A line beyond the limit: skip to its end without holding it. */
static enum hl_status skip_giant(struct lines *lines, struct hl_diag *diag) {
    char what[100];
    (void)snprintf(what, sizeof what, "a line of more than %zu MiB", lines->ingest->most_bytes >> 20);
    enum hl_status status = skip(lines, 1, what, diag);
    while (!status) {
        const char *feed = memchr(lines->file->data, '\n', lines->file->n);
        hl_text_file_consume(lines->file, feed ? (size_t)(feed - lines->file->data) : lines->file->n);
        if (feed || (lines->file->end && !lines->file->n)) break;
        status = hl_text_file_fill(lines->file, WINDOW, diag);
    }
    return status;
}

/* Fill until the window holds a line feed or the end of the file. n: bytes of the line, without the feed. */
static enum hl_status find_line(struct lines *lines, size_t *n, bool *has_feed, struct hl_diag *diag) {
    struct hl_text_file *file = lines->file;
    size_t seen = 0;
    for (size_t want = WINDOW;; want *= 2) {
        const char *feed = file->n > seen ? memchr(file->data + seen, '\n', file->n - seen) : NULL;
        *has_feed = feed;
        *n = feed ? (size_t)(feed - file->data) : file->n;
        if (feed || file->end || file->n > lines->ingest->most_bytes) return HL_OK;
        seen = file->n;
        enum hl_status status = hl_text_file_fill(file, want > seen ? want : seen + 1, diag);
        if (status) return status;
    }
}

static void report(const struct lines *lines) {
    const char *path = lines->file->path;
    if (lines->complaints.n)
        hl_log(lines->ingest->log, HL_LOG_WARN, "%s: %" PRIu64 " lines were skipped", path, lines->complaints.n);
    if (lines->n_blank)
        hl_log(lines->ingest->log, HL_LOG_INFO, "%s: %" PRIu64 " blank lines are no documents", path, lines->n_blank);
    lines->ingest->n_skipped += lines->complaints.n;
}

enum hl_status hl_ingest_lines(struct hl_ingest *ingest, struct hl_text_file *file, bool jsonl, struct hl_diag *diag) {
    struct lines lines = {.ingest = ingest, .file = file};
    uint64_t before = ingest->n_bytes;
    enum hl_status status = HL_OK;
    while (!status) {
        size_t n;
        bool has_feed;
        status = find_line(&lines, &n, &has_feed, diag);
        ingest->n_bytes = before + file->n_read;
        if (status || (!n && !has_feed)) break;
        if (n > ingest->most_bytes) status = skip_giant(&lines, diag);
        else {
            status = use_line(&lines, file->data, n, jsonl, !has_feed, diag);
            if (!status) hl_text_file_consume(file, n);
        }
        if (!status && file->n && file->data[0] == '\n') hl_text_file_consume(file, 1);
    }
    if (!status) report(&lines);
    return status;
}
