/* A whole file as one document. Its bytes are kept as they are: CR LF, lone CR and NUL stay; only a
 * byte order mark at the start goes, and bytes that are not UTF-8 unless the tokenizer takes any
 * bytes. */
#include <string.h>

#include "text/text_reader.h"
#include "text/unicode.h"

static void count_position(const char *text, size_t n, uint64_t *line, uint64_t *column) {
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '\n') ++*line, *column = 1;
        else ++*column;
    }
}

/* Move the valid parts of the first n bytes of the window to its front, and note the place behind
 * them. */
static enum hl_status remove_invalid(struct hl_text_reader *reader, size_t n, size_t *n_out,
                                     struct hl_diag *diag) {
    struct hl_text_file *file = &reader->file;
    uint64_t line = file->line, column = file->column;
    char *text = file->data;
    size_t kept = 0, i = 0;
    while (i < n) {
        size_t good = hl_utf8_valid(text + i, n - i);
        count_position(text + i, good, &line, &column);
        if (kept != i) memmove(text + kept, text + i, good);
        kept += good;
        i += good;
        if (i == n) break;
        size_t bad = hl_utf8_invalid(text + i, n - i);
        enum hl_status status = hl_text_complain(reader, bad, line, column, "not UTF-8", diag);
        if (status) return status;
        column += bad;
        i += bad;
    }
    reader->line_after = line;
    reader->column_after = column;
    *n_out = kept;
    return HL_OK;
}

/* Where to end a piece that has nowhere to be cut: at least not inside a character. */
static size_t forced_cut(const char *text, size_t n) {
    size_t cut = n;
    for (int back = 0; back < 3 && cut > 1 && ((unsigned char)text[cut - 1] & 0xC0) == 0x80; back++)
        cut--;
    if (cut > 1 && (unsigned char)text[cut - 1] >= 0xC0) cut--;
    return cut;
}

/* Bytes of the next piece: to a place where cutting changes no token, or to the end of the file. */
static enum hl_status next_piece(struct hl_text_reader *reader, size_t *out, struct hl_diag *diag) {
    struct hl_text_file *file = &reader->file;
    for (size_t want = reader->piece_bytes;; want *= 2) {
        enum hl_status status = hl_text_file_fill(file, want, diag);
        if (status) return status;
        *out = file->n;
        if (file->end && file->n <= reader->piece_bytes) return HL_OK;
        size_t cut = hl_text_cut(file->data, file->n);
        if (cut) return *out = cut, HL_OK;
        if (file->end) return HL_OK;
        if (want >= reader->most_bytes) break;
    }
    *out = forced_cut(file->data, file->n);
    return HL_OK;
}

enum hl_status hl_text_next_of_document(struct hl_text_reader *reader, struct hl_text_piece *out,
                                        struct hl_diag *diag) {
    struct hl_text_file *file = &reader->file;
    for (bool last = false; !last;) {
        size_t n, use;
        enum hl_status status = next_piece(reader, &n, diag);
        if (status) return status;
        last = file->end && n == file->n;
        use = n;
        bool valid = hl_utf8_valid(file->data, n) == n;
        reader->kept_invalid |= !valid && reader->any_bytes;
        if (!valid && !reader->any_bytes) status = remove_invalid(reader, n, &use, diag);
        if (status) return status;
        reader->empty &= !use;
        reader->done = last && !reader->empty;
        if (use || reader->done) {
            *out = (struct hl_text_piece){file->data, use, last};
            reader->n_used = n;
            return HL_OK;
        }
        reader->n_used = n; /* all of it was taken out */
        hl_text_reader_drop(reader);
    }
    reader->done = true;
    return HL_END;
}
