/* Options: finding a key, checking a value against its row, storing it; command-line flags.
 *
 * Every sentence about an option is written here, from its row. YAML is in option_yaml.c, help and
 * saved configurations in option_help.c. This file knows no option by name. */
#include "halley/option.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/option_internal.h"
#include "halley/text_number.h"

/* ---- words and keys ---- */

const char *hl_option_word(const char **rest, size_t *n_out) {
    if (!*rest) return NULL;
    const char *word = *rest + strspn(*rest, " ");
    *n_out = strcspn(word, " ");
    *rest = word + *n_out;
    return *n_out ? word : NULL;
}

bool hl_option_same_n(const char *a, const char *b, size_t n) {
    for (size_t i = 0; i < n; i++) {
        char x = a[i] == '-' ? '_' : a[i], y = b[i] == '-' ? '_' : b[i];
        if (x != y) return false;
        if (!x) return true;
    }
    return true;
}

bool hl_option_same(const char *a, const char *b) {
    size_t n = strlen(a);
    return n == strlen(b) && hl_option_same_n(a, b, n);
}

void hl_option_key(char out[HL_KEY_BYTES], const char *prefix, const char *name) {
    if (*name == '=') prefix = NULL, name++;
    (void)snprintf(out, HL_KEY_BYTES, "%s%s%s", prefix ? prefix : "", prefix ? "." : "", name);
}

static bool answers_to(const struct hl_option_entry *entry, const char *key) {
    char full[HL_KEY_BYTES], word[HL_KEY_BYTES];
    size_t n;
    hl_option_key(full, entry->prefix, entry->row->name);
    if (hl_option_same(full, key)) return true;
    for (const char *rest = entry->row->aliases, *w; (w = hl_option_word(&rest, &n));) {
        (void)snprintf(word, sizeof word, "%.*s", (int)n, w);
        hl_option_key(full, entry->prefix, word);
        if (hl_option_same(full, key)) return true;
    }
    return false;
}

struct hl_option_entry *hl_config_find(const struct hl_config *config, const char *key) {
    for (size_t i = 0; i < config->n_entries; i++)
        if (answers_to(&config->entries[i], key)) return &config->entries[i];
    return NULL;
}

/* ---- "did you mean" ---- */

static size_t least3(size_t a, size_t b, size_t c) {
    return a < b ? (a < c ? a : c) : b < c ? b : c;
}

/* Edit distance with transposition of neighbours (Damerau's restricted form); '-' equals '_', case
 * is ignored. */
static size_t edit_distance(const char *a, size_t n, const char *b, size_t m) {
    size_t rows[3][HL_KEY_BYTES + 1], *before = rows[0], *last = rows[1], *row = rows[2];
    for (size_t j = 0; j <= m; j++) before[j] = last[j] = j;
    for (size_t i = 1; i <= n; i++) {
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            bool equal = tolower((unsigned char)a[i - 1]) == tolower((unsigned char)b[j - 1]) ||
                         hl_option_same_n(a + i - 1, b + j - 1, 1);
            row[j] = least3(last[j] + 1, row[j - 1] + 1, last[j - 1] + !equal);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                before[j - 2] + 1 < row[j])
                row[j] = before[j - 2] + 1;
        }
        size_t *free_row = before;
        before = last;
        last = row;
        row = free_row;
    }
    return last[m];
}

struct nearest {
    char text[HL_KEY_BYTES];
    size_t distance;
};

/* Keep the candidate when it is nearer than what is kept; within a third of the word's length. */
static bool consider(struct nearest *best, const char *word, const char *candidate, size_t n) {
    size_t n_word = strlen(word), limit = n_word / 3 ? n_word / 3 : 1;
    if (n_word >= HL_KEY_BYTES || n >= HL_KEY_BYTES || n > n_word + limit || n_word > n + limit)
        return false;
    size_t distance = edit_distance(word, n_word, candidate, n);
    if (distance > limit || distance >= n || distance >= best->distance) return false;
    best->distance = distance;
    (void)snprintf(best->text, sizeof best->text, "%.*s", (int)n, candidate);
    return true;
}

const char *hl_nearest_word(const char *word, const char *const *candidates, size_t n) {
    struct nearest best = {.distance = SIZE_MAX};
    const char *found = NULL;
    for (size_t i = 0; i < n; i++)
        if (consider(&best, word, candidates[i], strlen(candidates[i]))) found = candidates[i];
    return found;
}

static void consider_entry(struct nearest *best, const char *key,
                           const struct hl_option_entry *entry) {
    char full[HL_KEY_BYTES], word[HL_KEY_BYTES];
    hl_option_key(full, entry->prefix, entry->row->name);
    consider(best, key, full, strlen(full));
    size_t n;
    for (const char *rest = entry->row->aliases, *w; (w = hl_option_word(&rest, &n));) {
        (void)snprintf(word, sizeof word, "%.*s", (int)n, w);
        hl_option_key(full, entry->prefix, word);
        consider(best, key, full, strlen(full));
    }
}

/* The key as a person would write it here: in the manner of the flag that was typed. */
static void in_manner(char *text, const char *typed) {
    if (strchr(typed, '-') && !strchr(typed, '_'))
        for (char *c = text; *c; c++)
            if (*c == '_') *c = '-';
}

enum hl_status hl_config_unknown(const struct hl_config *config, const char *key,
                                 const struct hl_place *place, struct hl_diag *diag) {
    struct nearest best = {.distance = SIZE_MAX};
    const char *part = strrchr(key, '.'); /* "model.hidden_size": perhaps "hidden_size" was meant */
    for (size_t i = 0; i < config->n_entries; i++) {
        consider_entry(&best, key, &config->entries[i]);
        if (part && part[1]) consider_entry(&best, part + 1, &config->entries[i]);
    }
    const char *dashes = place->flag ? "--" : "";
    if (place->flag) in_manner(best.text, key);
    char name[HL_KEY_BYTES + 4] = "";
    if (!place->flag) (void)snprintf(name, sizeof name, " '%.*s'", HL_KEY_BYTES - 1, key);
    if (best.distance == SIZE_MAX)
        return hl_fail_at(diag, HL_E_USER, place->file, place->line, 0,
                          "unknown option%s; --help lists them all", name);
    return hl_fail_at(diag, HL_E_USER, place->file, place->line, 0,
                      "unknown option%s; did you mean '%s%s'?", name, dashes, best.text);
}

/* ---- values ---- */

enum { HUGE_RANGE = 1000000000 }; /* nobody reads a bound above it */

void hl_option_range(const struct hl_option *row, char *out, size_t capacity) {
    char least[40], most[40];
    const char *unit = row->unit ? row->unit : "", *space = row->unit ? " " : "";
    out[0] = 0;
    if (row->kind != HL_OPT_I64 && row->kind != HL_OPT_F64) return;
    hl_print_f64(least, sizeof least, row->least);
    hl_print_f64(most, sizeof most, row->most);
    if (row->least == 0 && row->most == 0) return;
    if (row->most >= HUGE_RANGE)
        (void)snprintf(out, capacity, "at least %s%s%s", least, space, unit);
    else if (row->least <= -HUGE_RANGE)
        (void)snprintf(out, capacity, "at most %s%s%s", most, space, unit);
    else (void)snprintf(out, capacity, "from %s to %s%s%s", least, most, space, unit);
}

bool hl_option_has_choice(const struct hl_option *row, int index, char *out, size_t capacity) {
    size_t n;
    const char *rest = row->choices, *word;
    for (int i = 0; (word = hl_option_word(&rest, &n)); i++)
        if (i == index) return snprintf(out, capacity, "%.*s", (int)n, word) > 0;
    return false;
}

/* Why a value was refused: "run.yaml:3: learning_rate: 'abc' ..." or "--learning-rate: 'abc' ...".
 */
struct refusal {
    const struct hl_option_entry *entry;
    const struct hl_place *place;
    struct hl_diag *diag;
};

HL_PRINTF(2, 3)
static enum hl_status refuse(const struct refusal *refusal, const char *format, ...) {
    char why[768], key[HL_KEY_BYTES] = "";
    va_list args;
    va_start(args, format);
    (void)vsnprintf(why, sizeof why, format, args);
    va_end(args);
    if (!refusal->place->flag)
        hl_option_key(key, refusal->entry->prefix, refusal->entry->row->name);
    return hl_fail_at(refusal->diag, HL_E_USER, refusal->place->file, refusal->place->line, 0,
                      "%s%s%s", key, refusal->place->flag ? "" : ": ", why);
}

/* Longest part of a user's text that is quoted back. */
enum { QUOTED = 80 };

static enum hl_status out_of_range(const struct refusal *refusal, const char *text, double value) {
    const struct hl_option *row = refusal->entry->row;
    char range[128], most[40];
    hl_option_range(row, range, sizeof range);
    if (value > row->most && row->most >= HUGE_RANGE) { /* the range does not show that one */
        hl_print_f64(most, sizeof most, row->most);
        return refuse(refusal, "%.*s is out of range; allowed is at most %s%s%s", QUOTED, text,
                      most, row->unit ? " " : "", row->unit ? row->unit : "");
    }
    return refuse(refusal, "%.*s is out of range; allowed is %s", QUOTED, text, range);
}

/* The default itself is always allowed: it may be a mark such as -1, and a saved run must read
 * back. */
static bool in_range(const struct hl_option *row, double value) {
    double initial = 0;
    if (row->least == 0 && row->most == 0) return true;
    if (value >= row->least && value <= row->most) return true;
    return (!row->initial || hl_parse_f64(row->initial, &initial)) && value == initial;
}

static enum hl_status parse_bool(const struct refusal *refusal, const char *text, bool *out) {
    static const char *const yes[] = {"true", "yes", "on", "1"}, *const no[] = {"false", "no",
                                                                                "off", "0"};
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++) {
        if (!strcasecmp(text, yes[i])) return *out = true, HL_OK;
        if (!strcasecmp(text, no[i])) return *out = false, HL_OK;
    }
    return refuse(refusal, "'%.*s' is neither true nor false", QUOTED, text);
}

static const char *number_hint(const char *text, const char *unit) {
    static const char digits[] = "+-.0123456789";
    if (strchr(text, '_') || strchr(text, ',')) return "; write it without '_' and ','";
    if (strspn(text, digits) && (!unit || !strcmp(unit, "bytes")))
        return "; write a plain number, without suffix";
    return "";
}

static enum hl_status parse_i64(const struct refusal *refusal, const char *text, int64_t *out) {
    const struct hl_option *row = refusal->entry->row;
    double real;
    int64_t value;
    if (!hl_parse_i64(text, &value)) {
        if (!hl_parse_f64(text, &real))
            return refuse(refusal, "'%.*s' is not a whole number%s", QUOTED, text,
                          number_hint(text, row->unit));
        if (real != floor(real)) return refuse(refusal, "%.*s is not a whole number", QUOTED, text);
        if (fabs(real) >= 1e15) return refuse(refusal, "%.*s is too large", QUOTED, text);
        return refuse(refusal, "%.*s is not written as a whole number; write %lld", QUOTED, text,
                      (long long)real);
    }
    if (!in_range(row, (double)value)) return out_of_range(refusal, text, (double)value);
    *out = value;
    return HL_OK;
}

static enum hl_status parse_f64(const struct refusal *refusal, const char *text, double *out) {
    double value;
    if (!hl_parse_f64(text, &value))
        return refuse(refusal, "'%.*s' is not a number%s", QUOTED, text,
                      number_hint(text, refusal->entry->row->unit));
    if (!in_range(refusal->entry->row, value)) return out_of_range(refusal, text, value);
    *out = value;
    return HL_OK;
}

static enum hl_status parse_choice(const struct refusal *refusal, const char *text, int *out) {
    const char *rest = refusal->entry->row->choices, *word;
    size_t n, n_text = strlen(text);
    struct nearest best = {.distance = SIZE_MAX};
    for (int i = 0; (word = hl_option_word(&rest, &n)); i++) {
        if (n == n_text && hl_option_same_n(word, text, n)) return *out = i, HL_OK;
        consider(&best, text, word, n);
    }
    if (best.distance == SIZE_MAX)
        return refuse(refusal, "'%.*s' is not one of: %s", QUOTED, text,
                      refusal->entry->row->choices);
    return refuse(refusal, "'%.*s' is not one of: %s; did you mean '%s'?", QUOTED, text,
                  refusal->entry->row->choices, best.text);
}

/* Bytes of the UTF-8 sequence at text, 0 when it is not one (overlong forms and surrogates are
 * not). */
static size_t utf8_length(const unsigned char *text) {
    if (text[0] < 0x80) return 1;
    size_t n = text[0] >= 0xf0 ? 4 : text[0] >= 0xe0 ? 3 : 2;
    if (text[0] < 0xc2 || text[0] > 0xf4) return 0;
    for (size_t i = 1; i < n; i++)
        if ((text[i] & 0xc0) != 0x80) return 0;
    bool wrong = (text[0] == 0xe0 && text[1] < 0xa0) || (text[0] == 0xed && text[1] > 0x9f) ||
                 (text[0] == 0xf0 && text[1] < 0x90) || (text[0] == 0xf4 && text[1] > 0x8f);
    return wrong ? 0 : n;
}

static enum hl_status check_text(const struct refusal *refusal, const char *text) {
    size_t n;
    for (const unsigned char *c = (const unsigned char *)text; *c; c += n)
        if (!(n = utf8_length(c)))
            return refuse(
                refusal,
                "the text is not valid UTF-8 at byte %zu; it could not be saved with the run",
                (size_t)(c - (const unsigned char *)text) + 1);
    return HL_OK;
}

static void free_list(struct hl_mem *mem, struct hl_string_list *list) {
    for (size_t i = 0; i < list->n; i++) hl_free(mem, list->items[i]);
    hl_free(mem, list->items);
    *list = (struct hl_string_list){NULL, 0};
}

/* The new list is whole before the old one is let go. */
static enum hl_status store_list(struct hl_config *config, const struct refusal *refusal,
                                 const char *const *values, size_t n_values, bool add) {
    struct hl_string_list *list = refusal->entry->value, grown = {NULL, 0};
    size_t kept = add ? list->n : 0;
    for (size_t i = 0; i < n_values; i++) {
        enum hl_status status = check_text(refusal, values[i]);
        if (status) return status;
    }
    grown.items = hl_alloc(config->mem, kept + n_values, sizeof *grown.items);
    if (!grown.items) return hl_fail_memory(refusal->diag, kept + n_values, "a list option");
    for (size_t i = 0; i < kept + n_values; i++) {
        grown.items[i] = hl_strdup(config->mem, i < kept ? list->items[i] : values[i - kept]);
        if (!grown.items[i]) {
            free_list(config->mem, &grown);
            return hl_fail_memory(refusal->diag, 1, "a list option");
        }
        grown.n++;
    }
    free_list(config->mem, list);
    *list = grown;
    return HL_OK;
}

static enum hl_status store_string(struct hl_config *config, const struct refusal *refusal,
                                   const char *text) {
    enum hl_status status = check_text(refusal, text);
    if (status) return status;
    char *copy = hl_strdup(config->mem, text);
    if (!copy) return hl_fail_memory(refusal->diag, strlen(text) + 1, "an option");
    char **value = refusal->entry->value;
    hl_free(config->mem, *value);
    *value = copy;
    return HL_OK;
}

static enum hl_status store_value(struct hl_config *config, const struct refusal *refusal,
                                  const char *const *values, size_t n_values, bool add) {
    void *value = refusal->entry->value;
    if (refusal->entry->row->kind == HL_OPT_LIST)
        return store_list(config, refusal, values, n_values, add);
    if (n_values != 1) return refuse(refusal, "takes one value, and %zu are given", n_values);
    switch (refusal->entry->row->kind) {
    case HL_OPT_BOOL: return parse_bool(refusal, values[0], value);
    case HL_OPT_I64: return parse_i64(refusal, values[0], value);
    case HL_OPT_F64: return parse_f64(refusal, values[0], value);
    case HL_OPT_CHOICE: return parse_choice(refusal, values[0], value);
    case HL_OPT_STRING: return store_string(config, refusal, values[0]);
    case HL_OPT_LIST: break;
    }
    return refuse(refusal, "an option kind without a parser");
}

enum hl_status hl_config_store(struct hl_config *config, struct hl_option_entry *entry,
                               const char *const *values, size_t n_values, bool add,
                               const struct hl_place *place, struct hl_diag *diag) {
    struct refusal refusal = {entry, place, diag};
    enum hl_status status = store_value(config, &refusal, values, n_values, add);
    if (status) return status;
    entry->given = true;
    entry->reading = config->reading;
    entry->line = place->line;
    return HL_OK;
}

/* ---- the configuration ---- */

static size_t value_bytes(enum hl_option_kind kind) {
    switch (kind) {
    case HL_OPT_BOOL: return sizeof(bool);
    case HL_OPT_I64: return sizeof(int64_t);
    case HL_OPT_F64: return sizeof(double);
    case HL_OPT_STRING: return sizeof(char *);
    case HL_OPT_CHOICE: return sizeof(int);
    case HL_OPT_LIST: return sizeof(struct hl_string_list);
    }
    return 0;
}

static enum hl_status store_default(struct hl_config *config, struct hl_option_entry *entry,
                                    struct hl_diag *diag) {
    const struct hl_place place = {"default", 0, false};
    const char *initial = entry->row->initial ? entry->row->initial : "";
    if (!entry->row->initial && entry->row->kind != HL_OPT_STRING) return HL_OK;
    enum hl_status status = hl_config_store(config, entry, &initial, 1, false, &place, diag);
    entry->given = false;
    return status;
}

enum hl_status hl_config_new(struct hl_mem *mem, const struct hl_option_set *sets, size_t n_sets,
                             struct hl_config **out, struct hl_diag *diag) {
    size_t n = 0;
    for (size_t s = 0; s < n_sets; s++) n += sets[s].n_rows;
    struct hl_config *config = hl_alloc(mem, 1, sizeof *config);
    if (!config) return hl_fail_memory(diag, sizeof *config, "the configuration");
    config->mem = mem;
    config->entries = hl_alloc(mem, n, sizeof *config->entries);
    if (!config->entries) {
        hl_free(mem, config);
        return hl_fail_memory(diag, n * sizeof *config->entries, "the configuration");
    }
    for (size_t s = 0; s < n_sets; s++)
        for (size_t i = 0; i < sets[s].n_rows; i++) {
            const struct hl_option *row = &sets[s].rows[i];
            struct hl_option_entry *entry = &config->entries[config->n_entries++];
            *entry = (struct hl_option_entry){.row = row,
                                              .prefix = sets[s].prefix,
                                              .value = (char *)sets[s].values + row->offset};
            memset(entry->value, 0, value_bytes(row->kind));
        }
    for (size_t i = 0; i < config->n_entries; i++) {
        enum hl_status status = store_default(config, &config->entries[i], diag);
        if (status) return hl_config_free(config), status;
    }
    *out = config;
    return HL_OK;
}

void hl_config_free(struct hl_config *config) {
    if (!config) return;
    for (size_t i = 0; i < config->n_entries; i++) {
        void *value = config->entries[i].value;
        if (config->entries[i].row->kind == HL_OPT_LIST) free_list(config->mem, value);
        if (config->entries[i].row->kind != HL_OPT_STRING) continue;
        hl_free(config->mem, *(char **)value);
        *(char **)value = NULL;
    }
    hl_free(config->mem, config->entries);
    hl_free(config->mem, config);
}

enum hl_status hl_config_set(struct hl_config *config, const char *key, const char *const *values,
                             size_t n_values, const char *origin, long line, struct hl_diag *diag) {
    const struct hl_place place = {origin, line, false};
    struct hl_option_entry *entry = hl_config_find(config, key);
    if (!entry) return hl_config_unknown(config, key, &place, diag);
    config->reading++;
    return hl_config_store(config, entry, values, n_values, false, &place, diag);
}

bool hl_config_given(const struct hl_config *config, const char *key) {
    const struct hl_option_entry *entry = hl_config_find(config, key);
    return entry && entry->given;
}

/* ---- flags ---- */

/* A walk over the command line. */
struct flags {
    struct hl_config *config;
    char *const *args;
    int n_args, at;
    struct hl_diag *diag;
};

static bool is_flag(const char *word) { return word[0] == '-' && word[1] == '-'; }

static bool is_truth(const char *word) {
    static const char *const words[] = {"true", "false", "yes", "no", "on", "off", "1", "0"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strcasecmp(word, words[i])) return true;
    return false;
}

/* How many of the next words are this option's values. */
static int count_values(const struct flags *flags, enum hl_option_kind kind) {
    int left = flags->n_args - flags->at, n = 0;
    char *const *next = flags->args + flags->at;
    if (kind == HL_OPT_BOOL) return left && is_truth(next[0]);
    while (n < left && !is_flag(next[n]) && (n < 1 || kind == HL_OPT_LIST)) n++;
    return n;
}

static enum hl_status needs_value(const struct hl_option *row, const struct hl_place *place,
                                  struct hl_diag *diag) {
    char range[128];
    hl_option_range(row, range, sizeof range);
    if (row->kind == HL_OPT_CHOICE) (void)snprintf(range, sizeof range, "one of: %s", row->choices);
    return hl_fail_at(diag, HL_E_USER, place->file, 0, 0, "needs a value%s%s", range[0] ? ", " : "",
                      range);
}

/* The word is at flags->at - 1; key is its text up to '=', value what follows it or NULL. */
static enum hl_status read_flag(struct flags *flags, const char *key, const char *value,
                                const struct hl_place *place) {
    struct hl_config *config = flags->config;
    struct hl_option_entry *entry = hl_config_find(config, key);
    const char *no = "false", *yes = "true";
    if (!entry && hl_option_same_n(key, "no_", 3) && (entry = hl_config_find(config, key + 3))) {
        if (entry->row->kind != HL_OPT_BOOL || value)
            return hl_fail_at(flags->diag, HL_E_USER, place->file, 0, 0,
                              "only a switch can be turned off so, and without a value");
        return hl_config_store(config, entry, &no, 1, false, place, flags->diag);
    }
    if (!entry) return hl_config_unknown(config, key, place, flags->diag);
    bool add = entry->row->kind == HL_OPT_LIST && entry->reading == config->reading;
    if (value) return hl_config_store(config, entry, &value, 1, add, place, flags->diag);
    int n = count_values(flags, entry->row->kind);
    if (!n && entry->row->kind == HL_OPT_BOOL)
        return hl_config_store(config, entry, &yes, 1, false, place, flags->diag);
    if (!n) return needs_value(entry->row, place, flags->diag);
    const char *const *values = (const char *const *)(flags->args + flags->at);
    flags->at += n;
    return hl_config_store(config, entry, values, (size_t)n, add, place, flags->diag);
}

enum hl_status hl_config_read_flags(struct hl_config *config, int n_args, char *const *args,
                                    const char **words_out, size_t *n_words_out,
                                    struct hl_diag *diag) {
    struct flags flags = {config, args, n_args, 0, diag};
    bool ended = false;
    *n_words_out = 0;
    config->reading++;
    while (flags.at < n_args) {
        const char *word = args[flags.at++];
        double number;
        if (!ended && !strcmp(word, "--")) {
            ended = true;
        } else if (ended || word[0] != '-' || !word[1] || hl_parse_f64(word, &number)) {
            words_out[(*n_words_out)++] = word;
        } else if (!is_flag(word)) {
            return hl_fail_at(diag, HL_E_USER, word, 0, 0,
                              "unknown option; options begin with two dashes");
        } else {
            char flag[HL_KEY_BYTES + 2];
            size_t n = strcspn(word, "=");
            (void)snprintf(flag, sizeof flag, "%.*s", n < sizeof flag ? (int)n : (int)sizeof flag,
                           word);
            const struct hl_place place = {flag, 0, true};
            enum hl_status status =
                read_flag(&flags, flag + 2, word[n] ? word + n + 1 : NULL, &place);
            if (status) return status;
        }
    }
    return HL_OK;
}
