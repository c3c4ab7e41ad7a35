/* A text file read in pieces: a window that moves over it, with the line and column of its first
 * byte. Never the whole file in memory. A UTF-8 byte order mark is removed; UTF-16 and compressed
 * files are refused by name. */
#ifndef HALLEY_TEXT_TEXT_FILE_H
#define HALLEY_TEXT_TEXT_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "halley/mem.h"
#include "halley/status.h"

struct hl_text_file {
    struct hl_mem *mem;
    const char *path; /* borrowed */
    FILE *file;
    char *buffer;
    size_t capacity;
    char *data; /* the window: n bytes of the file */
    size_t n;
    bool end;        /* the window reaches to the end of the file */
    uint64_t n_read; /* bytes taken from the file so far */
    uint64_t line;   /* of data[0], from 1 */
    uint64_t column; /* of data[0], in bytes, from 1 */
};

/* errors HL_E_IO; HL_E_USER for folders and files that are not text, with what to do. */
enum hl_status hl_text_file_open(struct hl_text_file *file, struct hl_mem *mem, const char *path,
                                 struct hl_diag *diag) HL_MUST_CHECK;
void hl_text_file_close(struct hl_text_file *file);
/* Make the window at least `want` bytes long, or reach the end of the file. data may move. */
enum hl_status hl_text_file_fill(struct hl_text_file *file, size_t want,
                                 struct hl_diag *diag) HL_MUST_CHECK;
/* Drop k bytes from the front of the window. */
void hl_text_file_consume(struct hl_text_file *file, size_t k);

/* Bytes of the invalid sequence at text (after hl_utf8_valid stopped there): what one replacement
 * character would stand for; at least 1 when n > 0. */
size_t hl_utf8_invalid(const char *text, size_t n);

/* Where a long text may be cut so that its pieces encode to the same tokens as the whole: after a
 * single line feed, or before a single space, with characters that are not white space on both
 * sides. The largest such place <= n - 1, or 0. Pre-tokenisers of the GPT-2, Llama 3 and Qwen kind
 * never build a word across such a place, and look ahead no further. */
size_t hl_text_cut(const char *text, size_t n);

#endif
