/* Cleaning of text, character by character. Does not normalise and does not know widths. */
#include "report/utf8.h"

#include <stdbool.h>

static bool tail(unsigned char c) { return (c & 0xC0) == 0x80; }

int hl_utf8_length(const char *text, size_t n) {
    const unsigned char *c = (const unsigned char *)text;
    if (c[0] < 0x80) return 1;
    if (c[0] < 0xC2 || c[0] > 0xF4) return 0;
    if (n < 2 || !tail(c[1])) return 0;
    if (c[0] < 0xE0) return 2;
    if (n < 3 || !tail(c[2])) return 0;
    if (c[0] < 0xF0) {
        bool overlong = c[0] == 0xE0 && c[1] < 0xA0, surrogate = c[0] == 0xED && c[1] > 0x9F;
        return overlong || surrogate ? 0 : 3;
    }
    if (n < 4 || !tail(c[3])) return 0;
    bool overlong = c[0] == 0xF0 && c[1] < 0x90, beyond = c[0] == 0xF4 && c[1] > 0x8F;
    return overlong || beyond ? 0 : 4;
}

static bool is_control(const unsigned char *c, int length) {
    return (length == 1 && (c[0] < 0x20 || c[0] == 0x7F)) ||
           (length == 2 && c[0] == 0xC2 && c[1] < 0xA0);
}

/* U+FFFE, U+FFFF: no characters, and forbidden in XML. */
static bool is_nothing(const unsigned char *c, int length) {
    return length == 3 && c[0] == 0xEF && c[1] == 0xBF && c[2] >= 0xBE;
}

void hl_utf8_clean(struct hl_buf *out, const char *text, size_t n, enum hl_clean how) {
    const char *replacement = how == HL_CLEAN_TERMINAL_ASCII ? "?" : "\xEF\xBF\xBD";
    bool terminal = how >= HL_CLEAN_TERMINAL;
    for (size_t i = 0; i < n;) {
        const unsigned char *c = (const unsigned char *)text + i;
        int length = hl_utf8_length(text + i, n - i);
        bool bad = !length || (how == HL_CLEAN_TERMINAL_ASCII && length > 1);
        if (!bad && how != HL_CLEAN_KEEP_CONTROLS) {
            bool allowed = c[0] == '\n' || (c[0] == '\t' && !terminal);
            bad = (is_control(c, length) && !allowed) || is_nothing(c, length);
        }
        if (terminal && c[0] == '\t') hl_buf_puts(out, "    ");
        else if (bad) hl_buf_puts(out, replacement);
        else hl_buf_add(out, c, (size_t)length);
        i += length ? (size_t)length : 1;
    }
}
