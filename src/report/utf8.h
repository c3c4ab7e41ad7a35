/* Text of unknown origin (a byte-level model writes anything) made fit for JSON, a page or a
 * terminal. */
#ifndef HALLEY_REPORT_UTF8_H
#define HALLEY_REPORT_UTF8_H

#include "halley/mem.h"

/* Bytes of the valid UTF-8 character at text (1..4), 0 when it is none. n > 0 bytes are there.
 * Source: Unicode 15, table 3-7. */
int hl_utf8_length(const char *text, size_t n);

enum hl_clean {
    HL_CLEAN_KEEP_CONTROLS, /* only invalid bytes are replaced, by U+FFFD */
    HL_CLEAN_PAGE,          /* and what XML and HTML forbid: controls but tab and newline */
    HL_CLEAN_TERMINAL, /* and all controls but newline, so that no text can move the cursor; tab
                          becomes blanks */
    HL_CLEAN_TERMINAL_ASCII /* the same with '?' as the replacement, everything beyond ASCII
                               included */
};
void hl_utf8_clean(struct hl_buf *out, const char *text, size_t n, enum hl_clean how);

#endif
