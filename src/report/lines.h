/* Lines of a file, one at a time, with their place: for JSON-lines files that may be huge, damaged
 * or cut short. */
#ifndef HALLEY_REPORT_LINES_H
#define HALLEY_REPORT_LINES_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "halley/mem.h"
#include "halley/status.h"

enum { HL_LINE_MAX = 16 << 20 }; /* a longer line is damage: its text is not kept */

struct hl_line {
    const char *text; /* NUL-terminated, without the newline; owner: reader, until the next call */
    size_t n;
    long number;    /* from 1 */
    int64_t offset; /* of its first byte */
    bool whole;     /* ended by a newline */
    bool too_long;  /* text is empty */
};

struct hl_lines {
    struct hl_mem *mem;
    FILE *file;
    const char *path; /* borrowed, for messages */
    char *data;
    size_t begin, end, capacity;
    long number;
    int64_t offset;
};

/* errors  HL_E_IO the file cannot be opened */
enum hl_status hl_lines_open(struct hl_lines *lines, struct hl_mem *mem, const char *path,
                             struct hl_diag *diag) HL_MUST_CHECK;
/* returns HL_OK a line, HL_END no more; errors HL_E_IO, HL_E_MEMORY */
enum hl_status hl_lines_next(struct hl_lines *lines, struct hl_line *out,
                             struct hl_diag *diag) HL_MUST_CHECK;
void hl_lines_close(struct hl_lines *lines);

#endif
