/* Cache lines, by hand: for memory that several machines map and that no hardware keeps coherent.
 * On processors without these instructions hl_flush_kind says so and flushes do nothing. */
#ifndef HALLEY_OS_LINES_H
#define HALLEY_OS_LINES_H

#include <stddef.h>

enum { HL_LINE_BYTES = 64 };

enum hl_flush { HL_FLUSH_NONE, HL_FLUSH_IN_ORDER, HL_FLUSH_ANY_ORDER };
/* What this processor can do; asking is slow. */
enum hl_flush hl_flush_kind(void);
/* Write back and drop the lines that [at, at + n) touches; done after the next fence. */
void hl_lines_flush(enum hl_flush kind, const void *at, size_t n);
/* One line, in order with stores and other flushes of this kind. */
void hl_line_flush(const void *at);
/* n and `to` are multiples of 64. Past the caches; done after the next fence. */
void hl_lines_stream(void *to, const void *from, size_t n);
void hl_fence_stores(void);
void hl_fence_loads(void);
void hl_fence_all(void);

#endif
