/* Escaping for HTML and XML alike: the five characters and nothing else, after cleaning the
 * encoding. */
#include "report/markup.h"

#include <string.h>

#include "halley/text_number.h"
#include "report/utf8.h"

void hl_markup_text(struct hl_buf *out, const char *text, size_t n) {
    struct hl_buf clean = {.mem = out->mem};
    hl_utf8_clean(&clean, text, n, HL_CLEAN_PAGE);
    if (clean.failed) out->failed = true;
    for (size_t i = 0; i < clean.n; i++) {
        size_t plain = strcspn(clean.data + i, "&<>\"'");
        if (plain > clean.n - i) plain = clean.n - i;
        hl_buf_add(out, clean.data + i, plain);
        i += plain;
        if (i == clean.n) break;
        switch (clean.data[i]) {
        case '&': hl_buf_puts(out, "&amp;"); break;
        case '<': hl_buf_puts(out, "&lt;"); break;
        case '>': hl_buf_puts(out, "&gt;"); break;
        case '"': hl_buf_puts(out, "&quot;"); break;
        default: hl_buf_puts(out, "&#39;");
        }
    }
    hl_buf_free(&clean);
}

void hl_markup_puts(struct hl_buf *out, const char *text) {
    hl_markup_text(out, text, strlen(text));
}

void hl_markup_coord(struct hl_buf *out, double value) {
    char digits[40];
    hl_print_fixed(digits, sizeof digits, value, 1);
    size_t n = strlen(digits);
    if (n > 2 && digits[n - 1] == '0' && digits[n - 2] == '.') digits[n - 2] = 0;
    hl_buf_puts(out, strcmp(digits, "-0") ? digits : "0");
}
