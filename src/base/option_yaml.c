/* Options from YAML through libyaml's event stream.
 *
 * The accepted language is small: one document, a mapping of keys to scalars or sequences of
 * scalars; a mapping as value adds its key as a prefix. Anchors, aliases, tags and merge keys are
 * refused: a run's file says what it says. The depth is bounded and kept on an explicit stack, so
 * hostile input cannot exhaust ours. libyaml allocates for itself; what stays after reading does
 * not. */
#include "halley/option.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <yaml.h>

#include "base/option_internal.h"

enum { DEEPEST = 4, LARGEST_FILE = 1 << 24 };

struct reader {
    struct hl_config *config;
    yaml_parser_t parser;
    const char *name;
    struct hl_diag *diag;
    char prefix[HL_KEY_BYTES]; /* "acco." */
    size_t prefix_ends[DEEPEST];
    int depth; /* open mappings */
    char key[HL_KEY_BYTES];
    long key_line;
    bool has_key;
    struct hl_string_list items; /* values of the key being read */
    size_t capacity;
};

static long line_of(const yaml_event_t *event) { return (long)event->start_mark.line + 1; }

#define REFUSE(reader, line, ...)                                                                  \
    hl_fail_at((reader)->diag, HL_E_USER, (reader)->name, line, 0, __VA_ARGS__)

/* Longest part of the file's own text that is quoted back. */
enum { QUOTED = 80 };

static enum hl_status not_yaml(struct reader *r) {
    const yaml_parser_t *p = &r->parser;
    if (p->error == YAML_MEMORY_ERROR) return hl_fail_memory(r->diag, 0, "reading YAML");
    long line = (long)p->problem_mark.line + 1, column = (long)p->problem_mark.column + 1;
    if (p->error == YAML_READER_ERROR)
        return hl_fail_at(r->diag, HL_E_USER, r->name, 0, 0, "not YAML: %s at byte %zu", p->problem,
                          p->problem_offset + 1);
    return hl_fail_at(r->diag, HL_E_USER, r->name, line, column, "not YAML: %s%s%s",
                      p->context ? p->context : "", p->context ? ", " : "",
                      p->problem ? p->problem : "unknown error");
}

static enum hl_status take_event(struct reader *r, yaml_event_t *event) {
    return yaml_parser_parse(&r->parser, event) ? HL_OK : not_yaml(r);
}

static enum hl_status check_plain(struct reader *r, const yaml_event_t *event,
                                  const yaml_char_t *anchor, const yaml_char_t *tag) {
    if (anchor)
        return REFUSE(r, line_of(event), "anchors (&%.*s) are not understood; repeat the value",
                      QUOTED, (const char *)anchor);
    if (tag)
        return REFUSE(r, line_of(event), "tags (%.*s) are not understood; write the plain value",
                      QUOTED, (const char *)tag);
    return HL_OK;
}

/* ---- the values of one key ---- */

static void drop_items(struct reader *r) {
    for (size_t i = 0; i < r->items.n; i++) hl_free(r->config->mem, r->items.items[i]);
    r->items.n = 0;
}

static enum hl_status add_item(struct reader *r, const yaml_event_t *event) {
    const char *text = (const char *)event->data.scalar.value;
    size_t n = event->data.scalar.length;
    enum hl_status status =
        check_plain(r, event, event->data.scalar.anchor, event->data.scalar.tag);
    if (status) return status;
    if (memchr(text, 0, n))
        return REFUSE(r, line_of(event), "%s: the value holds a NUL byte", r->key);
    if (r->items.n == r->capacity) {
        size_t capacity = r->capacity ? 2 * r->capacity : 8;
        char **grown = hl_realloc(r->config->mem, r->items.items, capacity, sizeof *grown);
        if (!grown) return hl_fail_memory(r->diag, capacity * sizeof *grown, "reading YAML");
        r->items.items = grown;
        r->capacity = capacity;
    }
    char *copy = hl_strndup(r->config->mem, text, n);
    if (!copy) return hl_fail_memory(r->diag, n + 1, "reading YAML");
    r->items.items[r->items.n++] = copy;
    return HL_OK;
}

static bool is_null(const char *text) {
    return !strcmp(text, "~") || !strcmp(text, "null") || !strcmp(text, "Null") ||
           !strcmp(text, "NULL");
}

static enum hl_status find_entry(struct reader *r, struct hl_option_entry **out) {
    const struct hl_place place = {r->name, r->key_line, false};
    struct hl_option_entry *entry = hl_config_find(r->config, r->key);
    if (!entry) return hl_config_unknown(r->config, r->key, &place, r->diag);
    if (entry->reading == r->config->reading) {
        char first[HL_KEY_BYTES];
        hl_option_key(first, entry->prefix, entry->row->name);
        if (hl_option_same(first, r->key))
            return REFUSE(r, r->key_line, "'%s' is given twice: line %ld has it already", r->key,
                          entry->line);
        return REFUSE(r, r->key_line, "'%s' is another name for '%s': line %ld has it already",
                      r->key, first, entry->line);
    }
    *out = entry;
    return HL_OK;
}

static enum hl_status store_items(struct reader *r) {
    struct hl_option_entry *entry;
    enum hl_status status = find_entry(r, &entry);
    const struct hl_place place = {r->name, r->key_line, false};
    if (!status)
        status = hl_config_store(r->config, entry, (const char *const *)r->items.items, r->items.n,
                                 false, &place, r->diag);
    drop_items(r);
    r->has_key = false;
    return status;
}

static enum hl_status read_scalar(struct reader *r, const yaml_event_t *event) {
    bool plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    const char *text = (const char *)event->data.scalar.value;
    struct hl_option_entry *entry;
    enum hl_status status;
    if (plain && !event->data.scalar.length)
        return (status = find_entry(r, &entry))
                   ? status
                   : REFUSE(r, r->key_line, "%s: has no value; remove the line to use the default",
                            r->key);
    if (plain &&
        is_null(text)) { /* "not set": the default stays, a second spelling is still one too many */
        if ((status = find_entry(r, &entry))) return status;
        entry->reading = r->config->reading;
        entry->line = r->key_line;
        r->has_key = false;
        return HL_OK;
    }
    status = add_item(r, event);
    return status ? status : store_items(r);
}

static enum hl_status read_sequence(struct reader *r, const yaml_event_t *start) {
    yaml_event_t event;
    enum hl_status status =
        check_plain(r, start, start->data.sequence_start.anchor, start->data.sequence_start.tag);
    for (bool end = false; !status && !end;) {
        if ((status = take_event(r, &event))) break;
        if (event.type == YAML_SEQUENCE_END_EVENT) end = true;
        else if (event.type == YAML_SCALAR_EVENT) status = add_item(r, &event);
        else status = REFUSE(r, line_of(&event), "%s: a list holds plain values only", r->key);
        yaml_event_delete(&event);
    }
    return status ? status : store_items(r);
}

/* ---- mappings ---- */

static enum hl_status read_key(struct reader *r, const yaml_event_t *event) {
    if (event->type != YAML_SCALAR_EVENT)
        return REFUSE(r, line_of(event), "a key must be a plain word");
    const char *text = (const char *)event->data.scalar.value;
    enum hl_status status =
        check_plain(r, event, event->data.scalar.anchor, event->data.scalar.tag);
    if (status) return status;
    size_t n = event->data.scalar.length, used = strlen(r->prefix);
    if (memchr(text, 0, n) || used + n >= sizeof r->key)
        return REFUSE(r, line_of(event), "unknown option '%.*s...'; no option has so long a name",
                      QUOTED, text);
    memcpy(r->key, r->prefix, used);
    memcpy(r->key + used, text, n);
    r->key[used + n] = 0;
    r->key_line = line_of(event);
    r->has_key = true;
    return HL_OK;
}

static bool is_prefix(const struct hl_config *config, const char *key) {
    size_t n = strlen(key);
    for (size_t i = 0; i < config->n_entries; i++) {
        const char *prefix = config->entries[i].prefix;
        if (prefix && strlen(prefix) >= n && (prefix[n] == '.' || !prefix[n]) &&
            hl_option_same_n(prefix, key, n))
            return true;
    }
    return false;
}

static enum hl_status not_a_prefix(struct reader *r) {
    const struct hl_place place = {r->name, r->key_line, false};
    if (!hl_config_find(r->config, r->key))
        return hl_config_unknown(r->config, r->key, &place, r->diag);
    return REFUSE(r, r->key_line,
                  "%s: takes a value, not a mapping; options inside it stand on their own lines",
                  r->key);
}

static enum hl_status open_mapping(struct reader *r, const yaml_event_t *event) {
    enum hl_status status =
        check_plain(r, event, event->data.mapping_start.anchor, event->data.mapping_start.tag);
    if (status) return status;
    if (r->depth == DEEPEST) return REFUSE(r, line_of(event), "mappings are nested too deep");
    r->prefix_ends[r->depth++] = strlen(r->prefix);
    if (!r->has_key) return HL_OK; /* the document's own mapping */
    if (!is_prefix(r->config, r->key)) return not_a_prefix(r);
    (void)snprintf(r->prefix, sizeof r->prefix, "%.*s.", (int)sizeof r->prefix - 2, r->key);
    r->has_key = false;
    return HL_OK;
}

static void close_mapping(struct reader *r) {
    r->prefix[r->prefix_ends[--r->depth]] = 0;
    r->has_key = false;
}

static enum hl_status read_value(struct reader *r, const yaml_event_t *event) {
    switch (event->type) {
    case YAML_SCALAR_EVENT: return read_scalar(r, event);
    case YAML_SEQUENCE_START_EVENT: return read_sequence(r, event);
    case YAML_MAPPING_START_EVENT: return open_mapping(r, event);
    case YAML_ALIAS_EVENT:
        return REFUSE(r, line_of(event), "aliases (*%.*s) are not understood; repeat the value",
                      QUOTED, (const char *)event->data.alias.anchor);
    default: return REFUSE(r, line_of(event), "a value was expected for '%s'", r->key);
    }
}

static enum hl_status read_event(struct reader *r, const yaml_event_t *event, int *n_documents) {
    switch (event->type) {
    case YAML_STREAM_START_EVENT:
    case YAML_STREAM_END_EVENT:
    case YAML_DOCUMENT_END_EVENT: return HL_OK;
    case YAML_DOCUMENT_START_EVENT:
        return (*n_documents)++ ? REFUSE(r, line_of(event),
                                         "a second document begins here; one run, one document")
                                : HL_OK;
    default: break;
    }
    if (r->depth == 0) {
        if (event->type == YAML_MAPPING_START_EVENT) return open_mapping(r, event);
        if (event->type == YAML_SCALAR_EVENT && !event->data.scalar.length)
            return HL_OK; /* only comments */
        return REFUSE(r, line_of(event), "lines of the form 'key: value' were expected");
    }
    if (!r->has_key && event->type == YAML_MAPPING_END_EVENT) return close_mapping(r), HL_OK;
    return r->has_key ? read_value(r, event) : read_key(r, event);
}

enum hl_status hl_config_parse_yaml(struct hl_config *config, const char *text, size_t n,
                                    const char *name, struct hl_diag *diag) {
    struct reader r = {.config = config, .name = name, .diag = diag};
    if (!yaml_parser_initialize(&r.parser))
        return hl_fail_memory(diag, sizeof r.parser, "reading YAML");
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, n);
    config->reading++;
    enum hl_status status = HL_OK;
    int n_documents = 0;
    for (bool end = false; !status && !end;) {
        yaml_event_t event;
        if ((status = take_event(&r, &event))) break;
        end = event.type == YAML_STREAM_END_EVENT;
        status = read_event(&r, &event, &n_documents);
        yaml_event_delete(&event);
    }
    drop_items(&r);
    hl_free(config->mem, r.items.items);
    yaml_parser_delete(&r.parser);
    return status;
}

enum hl_status hl_config_read_yaml(struct hl_config *config, const char *path,
                                   struct hl_diag *diag) {
    FILE *file = fopen(path, "rb");
    if (!file)
        return hl_fail_at(diag, errno == ENOENT ? HL_E_USER : HL_E_IO, path, 0, 0,
                          "cannot be opened: %m");
    struct hl_buf text = {.mem = config->mem};
    char chunk[8192];
    size_t n;
    while (text.n <= LARGEST_FILE && (n = fread(chunk, 1, sizeof chunk, file)))
        hl_buf_add(&text, chunk, n);
    enum hl_status status = HL_OK;
    if (ferror(file)) status = hl_fail_at(diag, HL_E_IO, path, 0, 0, "cannot be read: %m");
    else if (text.failed) status = hl_fail_memory(diag, text.n, "reading YAML");
    else if (text.n > LARGEST_FILE)
        status = hl_fail_at(diag, HL_E_USER, path, 0, 0, "is too large for a configuration");
    (void)fclose(file);
    if (!status) status = hl_config_parse_yaml(config, text.n ? text.data : "", text.n, path, diag);
    hl_buf_free(&text);
    return status;
}
