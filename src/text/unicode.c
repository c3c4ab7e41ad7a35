/* UTF-8 checking. See unicode.h. Source: The Unicode Standard, table 3-7. */
#include "text/unicode.h"

#include <assert.h>
#include <string.h>

static int is_tail(unsigned char c) { return (c & 0xC0) == 0x80; }

/* Length (1-4) of the valid character at the beginning of text, 0 when there is none. */
static size_t length_of(const char *text, size_t n) {
    const unsigned char *c = (const unsigned char *)text;
    if (n == 0) return 0;
    if (c[0] < 0x80) return 1;
    if (c[0] < 0xC2 || c[0] > 0xF4 || n < 2 || !is_tail(c[1])) return 0;
    if (c[0] < 0xE0) return 2;
    if (n < 3 || !is_tail(c[2])) return 0;
    if (c[0] < 0xF0) {
        if (c[0] == 0xE0 && c[1] < 0xA0) return 0; /* overlong */
        if (c[0] == 0xED && c[1] > 0x9F) return 0; /* surrogate */
        return 3;
    }
    if (n < 4 || !is_tail(c[3])) return 0;
    if (c[0] == 0xF0 && c[1] < 0x90) return 0; /* overlong */
    if (c[0] == 0xF4 && c[1] > 0x8F) return 0; /* above U+10FFFF */
    return 4;
}

size_t hl_utf8_valid(const char *text, size_t n) {
    size_t at = 0;
    while (at < n) {
        uint64_t eight;
        while (n - at >= 8) {
            memcpy(&eight, text + at, 8);
            if (eight & 0x8080808080808080u) break;
            at += 8;
        }
        if (at == n) break;
        size_t length = length_of(text + at, n - at);
        if (length == 0) break;
        at += length;
    }
    return at;
}

size_t hl_utf8_next(const char *text, size_t n, uint32_t *character) {
    const unsigned char *c = (const unsigned char *)text;
    size_t length = length_of(text, n);
    assert(length > 0);
    switch (length) {
    case 2: *character = (c[0] & 0x1Fu) << 6 | (c[1] & 0x3Fu); break;
    case 3: *character = (c[0] & 0xFu) << 12 | (c[1] & 0x3Fu) << 6 | (c[2] & 0x3Fu); break;
    case 4:
        *character =
            (c[0] & 7u) << 18 | (c[1] & 0x3Fu) << 12 | (c[2] & 0x3Fu) << 6 | (c[3] & 0x3Fu);
        break;
    default: *character = c[0]; break;
    }
    return length ? length : 1;
}
