/* Lines of a file through one growing window. The window holds a line and whatever was read behind
 * it; a line that would outgrow HL_LINE_MAX is skipped to its newline, so that a hostile file
 * cannot take the memory. */
#include "report/lines.h"

#include <string.h>

enum { FIRST_WINDOW = 1 << 16 };

enum hl_status hl_lines_open(struct hl_lines *lines, struct hl_mem *mem, const char *path,
                             struct hl_diag *diag) {
    *lines = (struct hl_lines){.mem = mem, .path = path};
    lines->file = fopen(path, "rbe");
    if (!lines->file) return hl_fail(diag, HL_E_IO, "cannot read %s: %m", path);
    return HL_OK;
}

void hl_lines_close(struct hl_lines *lines) {
    if (lines->file) (void)fclose(lines->file);
    hl_free(lines->mem, lines->data);
    *lines = (struct hl_lines){0};
}

/* Read more behind the window's end; *got 0 at the end of the file. One byte is kept free for the
 * NUL. */
static enum hl_status fill(struct hl_lines *lines, size_t *got, struct hl_diag *diag) {
    if (lines->begin) {
        memmove(lines->data, lines->data + lines->begin, lines->end - lines->begin);
        lines->end -= lines->begin;
        lines->begin = 0;
    }
    if (lines->end + 1 >= lines->capacity) {
        size_t capacity = lines->capacity ? lines->capacity * 2 : FIRST_WINDOW;
        char *data = hl_realloc(lines->mem, lines->data, capacity, 1);
        if (!data) return hl_fail_memory(diag, capacity, "a line");
        lines->data = data;
        lines->capacity = capacity;
    }
    *got = fread(lines->data + lines->end, 1, lines->capacity - 1 - lines->end, lines->file);
    lines->end += *got;
    if (!*got && ferror(lines->file))
        return hl_fail(diag, HL_E_IO, "cannot read %s: %m", lines->path);
    return HL_OK;
}

enum hl_status hl_lines_next(struct hl_lines *lines, struct hl_line *out, struct hl_diag *diag) {
    struct hl_line line = {.number = ++lines->number, .offset = lines->offset};
    size_t seen = 0; /* bytes of the window known to hold no newline */
    char *newline = NULL;
    for (;;) {
        size_t have = lines->end - lines->begin;
        if (have > seen) newline = memchr(lines->data + lines->begin + seen, '\n', have - seen);
        if (newline) break;
        seen = have;
        if (seen > HL_LINE_MAX) {
            line.too_long = true;
            lines->offset += (int64_t)seen;
            lines->begin = lines->end = seen = 0;
        }
        size_t got = 0;
        enum hl_status status = fill(lines, &got, diag);
        if (status) return status;
        if (!got) break;
    }
    size_t n = newline ? (size_t)(newline - (lines->data + lines->begin)) : seen;
    if (n > HL_LINE_MAX) line.too_long = true;
    if (!newline && !n && !line.too_long) return HL_END;
    line.whole = newline != NULL;
    line.text = lines->data + lines->begin;
    line.n = line.too_long ? 0 : n;
    lines->data[lines->begin + line.n] = 0;
    lines->begin += n + line.whole;
    lines->offset += (int64_t)(n + line.whole);
    *out = line;
    return HL_OK;
}
