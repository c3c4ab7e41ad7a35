/* What the option table says to people: --help, the table in the docs, and the saved configuration.
 */
#include "halley/option.h"

#include <stdio.h>
#include <string.h>

#include "base/option_internal.h"

/* ---- saved configuration ---- */

/* A double-quoted YAML scalar. What libyaml does not read raw is escaped. */
static void put_quoted(struct hl_buf *out, const char *text) {
    hl_buf_puts(out, "\"");
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        bool c1 = c[0] == 0xc2 && c[1] < 0xa0; /* U+0080 .. U+009F */
        bool mark =
            c[0] == 0xef && ((c[1] == 0xbb && c[2] == 0xbf) ||                  /* U+FEFF */
                             (c[1] == 0xbf && (c[2] == 0xbe || c[2] == 0xbf))); /* U+FFFE, U+FFFF */
        bool separator = c[0] == 0xe2 && c[1] == 0x80 &&
                         (c[2] == 0xa8 || c[2] == 0xa9); /* U+2028, U+2029 fold */
        if (*c == '"' || *c == '\\') hl_buf_printf(out, "\\%c", *c);
        else if (*c < 0x20 || *c == 0x7f) hl_buf_printf(out, "\\x%02x", (unsigned)*c);
        else if (c1) hl_buf_printf(out, "\\x%02x", (unsigned)c[1]), c += 1;
        else if (mark || separator) {
            hl_buf_printf(out, "\\u%04x",
                          (unsigned)((c[0] & 0xf) << 12 | (c[1] & 0x3f) << 6 | (c[2] & 0x3f)));
            c += 2;
        } else hl_buf_add(out, c, 1);
    }
    hl_buf_puts(out, "\"");
}

static void put_value(struct hl_buf *out, const struct hl_option *row, const void *value) {
    char word[HL_KEY_BYTES];
    switch (row->kind) {
    case HL_OPT_BOOL: hl_buf_puts(out, *(const bool *)value ? "true" : "false"); break;
    case HL_OPT_I64: hl_buf_printf(out, "%lld", (long long)*(const int64_t *)value); break;
    case HL_OPT_F64: hl_buf_f64(out, *(const double *)value); break;
    case HL_OPT_STRING: put_quoted(out, *(char *const *)value ? *(char *const *)value : ""); break;
    case HL_OPT_CHOICE:
        hl_buf_puts(out,
                    hl_option_has_choice(row, *(const int *)value, word, sizeof word) ? word : "");
        break;
    case HL_OPT_LIST: {
        const struct hl_string_list *list = value;
        hl_buf_puts(out, "[");
        for (size_t i = 0; i < list->n; i++) {
            hl_buf_puts(out, i ? ", " : "");
            put_quoted(out, list->items[i]);
        }
        hl_buf_puts(out, "]");
    }
    }
}

/* Range, choices or unit as one phrase; empty when there is nothing to say. */
static void describe(const struct hl_option *row, char *out, size_t capacity) {
    hl_option_range(row, out, capacity);
    if (row->kind == HL_OPT_CHOICE) (void)snprintf(out, capacity, "one of: %s", row->choices);
    else if (!out[0] && row->unit) (void)snprintf(out, capacity, "in %s", row->unit);
}

void hl_config_print_yaml(const struct hl_config *config, bool teach, struct hl_buf *out) {
    const char *prefix = NULL, *section = NULL;
    for (size_t i = 0; i < config->n_entries; i++) {
        const struct hl_option_entry *entry = &config->entries[i];
        const struct hl_option *row = entry->row;
        if (entry->prefix && (!prefix || strcmp(prefix, entry->prefix)))
            hl_buf_printf(out, "%s:\n", entry->prefix);
        prefix = entry->prefix;
        const char *indent = prefix ? "  " : "";
        if (teach) {
            char range[512];
            describe(row, range, sizeof range);
            if (row->section && (!section || strcmp(section, row->section)))
                hl_buf_printf(out, "\n%s# ---- %s ----\n", indent, row->section);
            section = row->section;
            hl_buf_printf(out, "%s# %s%s%s%s\n", indent, row->help ? row->help : row->name,
                          range[0] ? " (" : "", range, range[0] ? ")" : "");
        }
        hl_buf_printf(out, "%s%s: ", indent, row->name);
        put_value(out, row, entry->value);
        hl_buf_puts(out, "\n");
    }
}

/* ---- help ---- */

/* Text that is wrapped as it comes. */
struct page {
    struct hl_buf *out;
    int columns, indent, at;
};

/* Columns of UTF-8 text, one per code point. */
static int width(const char *text, size_t n) {
    int columns = 0;
    for (size_t i = 0; i < n; i++) columns += (text[i] & 0xc0) != 0x80;
    return columns;
}

static void new_line(struct page *page) {
    hl_buf_printf(page->out, "\n%*s", page->indent, "");
    page->at = page->indent;
}

static void put_words(struct page *page, const char *text) {
    size_t n;
    for (const char *word; (word = hl_option_word(&text, &n));) {
        int w = width(word, n);
        if (page->at > page->indent && page->at + 1 + w > page->columns) new_line(page);
        if (page->at > page->indent) hl_buf_puts(page->out, " "), page->at++;
        hl_buf_add(page->out, word, n);
        page->at += w;
    }
}

static const char *placeholder(const struct hl_option *row) {
    switch (row->kind) {
    case HL_OPT_BOOL: return "";
    case HL_OPT_I64: return " N";
    case HL_OPT_F64: return " X";
    case HL_OPT_CHOICE: return " WORD";
    case HL_OPT_LIST: return " TEXT...";
    case HL_OPT_STRING: return " TEXT";
    }
    return "";
}

/* One more fact: "(" or "; " in front. */
HL_PRINTF(2, 3) static void add_fact(struct hl_buf *facts, const char *format, ...) {
    char text[640];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    hl_buf_printf(facts, "%s%s", facts->n ? "; " : "(", text);
}

/* "(from 0 to 10; default 5e-5; also --lr)" */
static void put_facts(struct page *page, const struct hl_option_set *set,
                      const struct hl_option *row) {
    struct hl_buf facts = {.mem = page->out->mem};
    char range[512], key[HL_KEY_BYTES];
    describe(row, range, sizeof range);
    const char *initial = row->initial ? row->initial : row->kind == HL_OPT_BOOL ? "false" : "";
    if (range[0]) add_fact(&facts, "%s", range);
    if (initial[0]) add_fact(&facts, "default %s", initial);
    size_t n;
    bool first = true;
    for (const char *rest = row->aliases, *word; (word = hl_option_word(&rest, &n));
         first = false) {
        char alias[HL_KEY_BYTES];
        (void)snprintf(alias, sizeof alias, "%.*s", (int)n, word);
        hl_option_key(key, set->prefix, alias);
        if (first) add_fact(&facts, "also --%s", key);
        else hl_buf_printf(&facts, " --%s", key);
    }
    if (facts.n) hl_buf_puts(&facts, ")");
    if (facts.data) put_words(page, facts.data);
    if (facts.failed) page->out->failed = true;
    hl_buf_free(&facts);
}

static void put_option(struct hl_buf *out, int columns, const struct hl_option_set *set,
                       const struct hl_option *row) {
    enum { WIDE = 30, NARROW = 6 };
    char key[HL_KEY_BYTES];
    hl_option_key(key, set->prefix, row->name);
    struct page page = {out, columns, columns >= 70 ? WIDE : NARROW, 0};
    int n = 4 + (int)strlen(key) + (int)strlen(placeholder(row));
    hl_buf_printf(out, "  --%s%s", key, placeholder(row));
    if (n + 2 > page.indent) {
        new_line(&page);
    } else {
        hl_buf_printf(out, "%*s", page.indent - n, "");
        page.at = page.indent;
    }
    if (row->help) put_words(&page, row->help);
    put_facts(&page, set, row);
    hl_buf_puts(out, "\n");
}

static const char *heading(const struct hl_option_set *set, const struct hl_option *row) {
    return row->section ? row->section : set->prefix ? set->prefix : "options";
}

/* True when an earlier option has the same heading. */
static bool seen(const struct hl_option_set *sets, size_t s, size_t i, const char *title) {
    for (size_t t = 0; t <= s; t++)
        for (size_t j = 0; j < (t == s ? i : sets[t].n_rows); j++)
            if (!strcmp(heading(&sets[t], &sets[t].rows[j]), title)) return true;
    return false;
}

/* Calls put for each option, heading by heading in order of first appearance. */
static void by_section(const struct hl_option_set *sets, size_t n_sets, int columns,
                       struct hl_buf *out, void (*open)(struct hl_buf *, const char *),
                       void (*put)(struct hl_buf *, int, const struct hl_option_set *,
                                   const struct hl_option *)) {
    for (size_t s = 0; s < n_sets; s++)
        for (size_t i = 0; i < sets[s].n_rows; i++) {
            const char *title = heading(&sets[s], &sets[s].rows[i]);
            if (seen(sets, s, i, title)) continue;
            open(out, title);
            for (size_t t = s; t < n_sets; t++)
                for (size_t j = 0; j < sets[t].n_rows; j++)
                    if (!strcmp(heading(&sets[t], &sets[t].rows[j]), title))
                        put(out, columns, &sets[t], &sets[t].rows[j]);
        }
}

static void open_help(struct hl_buf *out, const char *title) {
    hl_buf_printf(out, "%s%s:\n", out->n ? "\n" : "", title);
}

void hl_config_print_help(const struct hl_option_set *sets, size_t n_sets, int columns,
                          struct hl_buf *out) {
    enum { NARROWEST = 40, WIDEST = 120 };
    int at_most = columns > WIDEST ? WIDEST : columns < NARROWEST ? NARROWEST : columns;
    by_section(sets, n_sets, at_most, out, open_help, put_option);
}

/* ---- documentation ---- */

static void open_table(struct hl_buf *out, const char *title) {
    hl_buf_printf(
        out, "%s## %s\n\n| option | default | allowed | also | meaning |\n|---|---|---|---|---|\n",
        out->n ? "\n" : "", title);
}

/* A cell must not end its column. */
static void put_cell(struct hl_buf *out, const char *text) {
    for (; *text; text++) {
        if (*text == '|') hl_buf_puts(out, "\\");
        hl_buf_add(out, text, 1);
    }
}

static void put_table_row(struct hl_buf *out, int columns, const struct hl_option_set *set,
                          const struct hl_option *row) {
    (void)columns;
    char key[HL_KEY_BYTES], range[512];
    hl_option_key(key, set->prefix, row->name);
    describe(row, range, sizeof range);
    hl_buf_printf(out, "| `%s` | ", key);
    put_cell(out, row->initial ? row->initial : row->kind == HL_OPT_BOOL ? "false" : "");
    hl_buf_puts(out, " | ");
    put_cell(out, row->kind == HL_OPT_BOOL ? "true or false" : range);
    hl_buf_puts(out, " | ");
    put_cell(out, row->aliases ? row->aliases + (*row->aliases == '=') : "");
    hl_buf_puts(out, " | ");
    put_cell(out, row->help ? row->help : "");
    hl_buf_puts(out, " |\n");
}

void hl_config_print_markdown(const struct hl_option_set *sets, size_t n_sets, struct hl_buf *out) {
    by_section(sets, n_sets, 0, out, open_table, put_table_row);
}
