/* Text files as a sequence of texts: whole files in pieces, lines, or the strings of JSONL rows.
 * What cannot be used is skipped, said with file:line:column (the first few of a file) and counted;
 * with `strict` it is an error. */
#ifndef HALLEY_TEXT_TEXT_READER_H
#define HALLEY_TEXT_TEXT_READER_H

#include "halley/data.h"
#include "text/text_file.h"

struct hl_text_reader {
    struct hl_mem *mem;
    struct hl_log *log;
    const char *text_key; /* borrowed */
    int text_format;      /* enum hl_text_format; AUTO goes by the file's name */
    bool strict;
    bool any_bytes;     /* invalid UTF-8 is kept as it is (the byte tokenizer takes it) */
    size_t piece_bytes; /* a long document comes in pieces of about this size */
    size_t most_bytes;  /* the longest line, and the longest piece when there is nowhere to cut */

    uint64_t n_bytes; /* read so far, of all files */
    uint64_t
        n_skipped; /* lines, or for whole-file documents bytes, that were left out of all files */

    /* the open file */
    struct hl_text_file file;
    int format;
    uint64_t n_bytes_before;
    size_t n_used; /* front of the window that was handed out: dropped at the next call */
    uint64_t line_after, column_after; /* behind it, when bytes were taken out of it; else 0 */
    void *row;                         /* the JSON row whose string was handed out */
    uint64_t n_complaints, n_said, n_blank;
    bool empty, done, reported, kept_invalid;
};

struct hl_text_piece {
    const char *text; /* borrowed until the next call */
    size_t n;
    bool ends_document;
};

/* Sets the defaults: AUTO, key "text", pieces of 1 MiB, lines up to 256 MiB. */
void hl_text_reader_init(struct hl_text_reader *reader, struct hl_mem *mem, struct hl_log *log);
enum hl_status hl_text_reader_open(struct hl_text_reader *reader, const char *path,
                                   struct hl_diag *diag) HL_MUST_CHECK;
/* HL_END after the last one; what was skipped has then been reported. */
enum hl_status hl_text_reader_next(struct hl_text_reader *reader, struct hl_text_piece *out,
                                   struct hl_diag *diag) HL_MUST_CHECK;
void hl_text_reader_close(struct hl_text_reader *reader); /* the file; harmless without one */

/* ---- between the files of the reader ---- */
/* The whole file is one document, in pieces cut where no token changes (hl_text_cut). */
enum hl_status hl_text_next_of_document(struct hl_text_reader *reader, struct hl_text_piece *out,
                                        struct hl_diag *diag) HL_MUST_CHECK;
/* One document per line: the line itself without its LF or CR LF (blank lines are none), or for
 * JSONL the string under text_key of the object in it. */
enum hl_status hl_text_next_of_lines(struct hl_text_reader *reader, struct hl_text_piece *out,
                                     struct hl_diag *diag) HL_MUST_CHECK;
/* Let go of what was handed out: the window moves behind it. */
void hl_text_reader_drop(struct hl_text_reader *reader);
/* Something at line:column cannot be used: strict makes it an error, otherwise the first few are
 * logged. n counts what is left out. */
enum hl_status hl_text_complain(struct hl_text_reader *reader, uint64_t n, uint64_t line,
                                uint64_t column, const char *what,
                                struct hl_diag *diag) HL_MUST_CHECK;

#endif
