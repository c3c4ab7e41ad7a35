/* Text inside HTML and SVG. */
#ifndef HALLEY_REPORT_MARKUP_H
#define HALLEY_REPORT_MARKUP_H

#include "halley/mem.h"

/* Text as character data or as an attribute in double quotes: no byte of it can open a tag or close
 * the quotes; bytes that are not UTF-8 and characters that XML forbids become U+FFFD. */
void hl_markup_text(struct hl_buf *out, const char *text, size_t n);
void hl_markup_puts(struct hl_buf *out, const char *text);
void hl_markup_coord(struct hl_buf *out, double value); /* a tenth of a unit is enough; no ".0" */

#endif
