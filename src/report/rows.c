/* Tables of words out of YAML. JSON is YAML, so that one reader over libyaml's events serves
 * run.yaml and run.json. Maps in maps become keys joined by points, lists values joined by commas;
 * what lies deeper than MAX_DEPTH is left out. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <yaml.h>

#include "report/run.h"

enum { MAX_DEPTH = 16, MAX_KEY = 512 };

struct level {
    bool is_list, wants_value;
    size_t key_n;
}; /* key_n: length of the key's path above this level */

struct reader {
    struct hl_rows *rows;
    struct hl_mem *mem;
    struct level level[MAX_DEPTH + 1];
    int depth; /* may exceed MAX_DEPTH: then values are skipped */
    char key[MAX_KEY];
    struct hl_buf list; /* the values of the list being read */
};

static bool add_row(struct reader *r, const char *key, const char *value) {
    struct hl_rows *rows = r->rows;
    if (rows->n == rows->capacity) {
        size_t capacity = rows->capacity ? rows->capacity * 2 : 32;
        struct hl_row *at = hl_realloc(r->mem, rows->at, capacity, sizeof *at);
        if (!at) return false;
        rows->at = at;
        rows->capacity = capacity;
    }
    struct hl_row row = {hl_strdup(r->mem, key), hl_strdup(r->mem, value)};
    if (!row.key || !row.value) {
        hl_free(r->mem, row.key);
        hl_free(r->mem, row.value);
        return false;
    }
    rows->at[rows->n++] = row;
    return true;
}

static void set_key(struct reader *r, const char *word) {
    size_t at = r->level[r->depth].key_n;
    (void)snprintf(r->key + at, MAX_KEY - at, "%s%s", at ? "." : "", word);
}

static bool take_scalar(struct reader *r, const char *word) {
    if (r->depth > MAX_DEPTH || !r->depth) return true;
    struct level *level = &r->level[r->depth];
    if (level->is_list) {
        if (r->list.n) hl_buf_puts(&r->list, ", ");
        hl_buf_puts(&r->list, word);
        return !r->list.failed;
    }
    level->wants_value = !level->wants_value;
    if (!level->wants_value) return add_row(r, r->key, word);
    set_key(r, word);
    return true;
}

static void enter(struct reader *r, bool is_list) {
    size_t key_n = r->depth && r->depth <= MAX_DEPTH ? strlen(r->key) : 0;
    if (r->depth && r->depth <= MAX_DEPTH) r->level[r->depth].wants_value = false;
    if (++r->depth <= MAX_DEPTH)
        r->level[r->depth] = (struct level){.is_list = is_list, .key_n = key_n};
}

static bool leave(struct reader *r) {
    bool fine = true;
    if (r->depth <= MAX_DEPTH) {
        r->key[r->level[r->depth].key_n] = 0;
        if (r->level[r->depth].is_list && r->list.n) {
            fine = add_row(r, r->key, r->list.data);
            r->list.n = 0;
        }
    }
    r->depth--;
    return fine;
}

/* false: memory is short */
static bool take_event(struct reader *r, const yaml_event_t *event) {
    switch (event->type) {
    case YAML_SCALAR_EVENT: return take_scalar(r, (const char *)event->data.scalar.value);
    case YAML_ALIAS_EVENT: return take_scalar(r, (const char *)event->data.alias.anchor);
    case YAML_MAPPING_START_EVENT: return enter(r, false), true;
    case YAML_SEQUENCE_START_EVENT: return enter(r, true), true;
    case YAML_MAPPING_END_EVENT:
    case YAML_SEQUENCE_END_EVENT: return leave(r);
    default: return true;
    }
}

static enum hl_status read_events(struct reader *r, yaml_parser_t *parser, const char *path,
                                  struct hl_diag *diag) {
    for (bool end = false; !end;) {
        yaml_event_t event;
        if (!yaml_parser_parse(parser, &event))
            return hl_fail_at(diag, HL_E_FORMAT, path, (long)parser->problem_mark.line + 1,
                              (long)parser->problem_mark.column + 1, "%s",
                              parser->problem ? parser->problem : "not YAML");
        bool fine = take_event(r, &event);
        end = event.type == YAML_STREAM_END_EVENT;
        yaml_event_delete(&event);
        if (!fine) return hl_fail_memory(diag, MAX_KEY, "a row of a table");
    }
    return HL_OK;
}

enum hl_status hl_rows_read(struct hl_rows *rows, struct hl_mem *mem, const char *path,
                            struct hl_diag *diag) {
    FILE *file = fopen(path, "rbe");
    if (!file) return hl_fail(diag, HL_E_IO, "cannot read %s: %m", path);
    yaml_parser_t parser;
    enum hl_status status = HL_E_MEMORY;
    struct reader r = {.rows = rows, .mem = mem, .list = {.mem = mem}};
    if (!yaml_parser_initialize(&parser))
        status = hl_fail_memory(diag, sizeof parser, "the YAML reader");
    else {
        yaml_parser_set_input_file(&parser, file);
        status = read_events(&r, &parser, path, diag);
        yaml_parser_delete(&parser);
    }
    hl_buf_free(&r.list);
    (void)fclose(file);
    return status;
}

void hl_rows_free(struct hl_rows *rows, struct hl_mem *mem) {
    for (size_t i = 0; i < rows->n; i++) {
        hl_free(mem, rows->at[i].key);
        hl_free(mem, rows->at[i].value);
    }
    hl_free(mem, rows->at);
    *rows = (struct hl_rows){0};
}
