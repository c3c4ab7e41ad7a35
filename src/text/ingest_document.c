/* A whole file as one document. Its bytes are kept as they are: CR LF, lone CR and NUL stay; only a byte order mark at the
 * start goes, and bytes that are not UTF-8 unless the tokenizer takes any bytes. */
#include <inttypes.h>
#include <string.h>

#include "text/ingest_formats.h"
#include "text/unicode.h"

static void count_position(const char *text, size_t n, uint64_t *line, uint64_t *column) {
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '\n') ++*line, *column = 1;
        else ++*column;
    }
}

/* Take the invalid sequences out of text[0, n) in place. n_out: bytes that remain. */
static enum hl_status remove_invalid(struct hl_ingest *ingest, struct hl_text_file *file, size_t n,
                                     struct hl_complaints *complaints, size_t *n_out, struct hl_diag *diag) {
    char *text = file->data;
    uint64_t line = file->line, column = file->column;
    size_t kept = 0, i = 0;
    while (i < n) {
        size_t good = hl_utf8_valid(text + i, n - i);
        count_position(text + i, good, &line, &column);
        if (kept != i) memmove(text + kept, text + i, good);
        kept += good;
        i += good;
        if (i == n) break;
        enum hl_status status = hl_ingest_complain(ingest, complaints, file->path, line, column, "not UTF-8", diag);
        if (status) return status;
        size_t bad = hl_utf8_invalid(text + i, n - i);
        complaints->n += bad;
        column += bad;
        i += bad;
    }
    *n_out = kept;
    return HL_OK;
}

/* Bytes of the next piece: to a place where cutting changes no token, or to the end of the file. */
static enum hl_status next_piece(struct hl_ingest *ingest, struct hl_text_file *file, size_t *out,
                                 struct hl_diag *diag) {
    for (size_t want = ingest->piece_bytes;; want *= 2) {
        enum hl_status status = hl_text_file_fill(file, want, diag);
        if (status) return status;
        *out = file->n;
        if (file->end && file->n <= ingest->piece_bytes) return HL_OK;
        size_t cut = hl_text_cut(file->data, file->n);
        if (cut) return *out = cut, HL_OK;
        if (file->end) return HL_OK;
        if (want >= ingest->most_bytes) break;
    }
    size_t cut = file->n; /* nowhere to cut: at least not inside a character */
    for (int back = 0; back < 3 && cut > 1 && ((unsigned char)file->data[cut - 1] & 0xC0) == 0x80; back++) cut--;
    if (cut > 1 && (unsigned char)file->data[cut - 1] >= 0xC0) cut--;
    *out = cut;
    return HL_OK;
}

static void report(struct hl_ingest *ingest, const struct hl_text_file *file, const struct hl_complaints *complaints,
                   uint64_t n_kept) {
    if (complaints->n)
        hl_log(ingest->log, HL_LOG_WARN, "%s: %" PRIu64 " bytes that are not UTF-8 were skipped", file->path,
               complaints->n);
    if (n_kept)
        hl_log(ingest->log, HL_LOG_INFO, "%s: not all of it is UTF-8; the byte tokenizer keeps it as it is", file->path);
    ingest->n_skipped += complaints->n;
}

enum hl_status hl_ingest_document(struct hl_ingest *ingest, struct hl_text_file *file, struct hl_diag *diag) {
    struct hl_complaints complaints = {0};
    uint64_t before = ingest->n_bytes, n_kept = 0;
    bool empty = true;
    for (;;) {
        size_t n;
        enum hl_status status = next_piece(ingest, file, &n, diag);
        if (status) return status;
        bool last = file->end && n == file->n;
        size_t good = hl_utf8_valid(file->data, n), use = n;
        if (good < n && ingest->any_bytes) n_kept++;
        else if (good < n) status = remove_invalid(ingest, file, n, &complaints, &use, diag);
        if (status) return status;
        empty = empty && !use;
        ingest->n_bytes = before + file->n_read;
        if (use || (last && !empty)) status = hl_ingest_add(ingest, file->data, use, last, diag);
        if (status) return status;
        hl_text_file_consume(file, n);
        if (last) break;
    }
    report(ingest, file, &complaints, n_kept);
    return HL_OK;
}
