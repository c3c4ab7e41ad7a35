/* UTF-8: checking and walking. No properties, no normalisation: those are PCRE2's work.
 *
 * Valid means Unicode's table 3-7: no overlong forms, no surrogates, nothing above U+10FFFF. */
#ifndef HALLEY_TEXT_UNICODE_H
#define HALLEY_TEXT_UNICODE_H

#include <stddef.h>
#include <stdint.h>

/* Length of the longest valid beginning of the text: n when all of it is valid UTF-8.
 * cost: ASCII at several bytes per cycle */
size_t hl_utf8_valid(const char *text, size_t n);

/* The first character of valid UTF-8, n > 0; returns its length. */
size_t hl_utf8_next(const char *text, size_t n, uint32_t *character);

#endif
