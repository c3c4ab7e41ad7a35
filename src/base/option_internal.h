/* What the three option files share: the table's entries and the one function that changes a value.
 */
#ifndef HALLEY_BASE_OPTION_INTERNAL_H
#define HALLEY_BASE_OPTION_INTERNAL_H

#include "halley/option.h"

enum { HL_KEY_BYTES = 128 }; /* longest key, with prefix and NUL */

/* One option of one set. */
struct hl_option_entry {
    const struct hl_option *row;
    const char *prefix; /* NULL: none */
    void *value;
    bool given;
    long reading; /* number of the file or command line that set it last; 0: default */
    long line;    /* in that file */
};

struct hl_config {
    struct hl_mem *mem;
    struct hl_option_entry *entries;
    size_t n_entries;
    long reading; /* counts files and command lines, so that "twice in one file" can be told from
                     "overridden" */
};

/* Where a value was written. A flag's file is the flag itself and its line is 0. */
struct hl_place {
    const char *file;
    long line;
    bool flag;
};

struct hl_option_entry *hl_config_find(const struct hl_config *config, const char *key);
enum hl_status hl_config_unknown(const struct hl_config *config, const char *key,
                                 const struct hl_place *place, struct hl_diag *diag) HL_MUST_CHECK;
/* Check and store. add: append to a list instead of replacing it. */
enum hl_status hl_config_store(struct hl_config *config, struct hl_option_entry *entry,
                               const char *const *values, size_t n_values, bool add,
                               const struct hl_place *place, struct hl_diag *diag) HL_MUST_CHECK;

/* "prefix.name", or "name". */
void hl_option_key(char out[HL_KEY_BYTES], const char *prefix, const char *name);
/* '-' and '_' are the same. */
bool hl_option_same_n(const char *a, const char *b, size_t n);
bool hl_option_same(const char *a, const char *b);
/* The next word of a space-separated list: NULL at the end. *rest starts as the list and moves on.
 */
const char *hl_option_word(const char **rest, size_t *n_out);
/* "from 0 to 1", "at least 1 steps", "" : the range of a number with its unit. */
void hl_option_range(const struct hl_option *row, char *out, size_t capacity);
bool hl_option_has_choice(const struct hl_option *row, int index, char *out, size_t capacity);

#endif
