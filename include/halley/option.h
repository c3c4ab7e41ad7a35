/* One row describes one option: the YAML key, the flag, --help, the error message, the saved
 * configuration and the tables in the docs all come from it and from nowhere else.
 *
 * A room that has options declares a plain struct and a table of rows that point into it:
 *
 *     struct train_options { int64_t max_steps; double learning_rate; ... };
 *     static const struct hl_option rows[] = {
 *         {.name = "max_steps", .kind = HL_OPT_I64, .offset = offsetof(struct train_options,
 * max_steps), .initial = "-1", .least = -1, .most = 1e15, .unit = "steps", .aliases = "train_iters
 * steps iters", .help = "..."},
 *
 * '-' and '_' are the same in names. A plug-in's options have a prefix:
 * `acco.micro_batches_per_round`. */
#ifndef HALLEY_OPTION_H
#define HALLEY_OPTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "halley/mem.h"
#include "halley/status.h"

enum hl_option_kind {
    HL_OPT_BOOL,   /* bool; a bare flag means true; true/false/yes/no/on/off/1/0; --no-NAME means
                      false */
    HL_OPT_I64,    /* int64_t */
    HL_OPT_F64,    /* double */
    HL_OPT_STRING, /* char *; owner: the config; "" when not given */
    HL_OPT_CHOICE, /* int: index into choices */
    HL_OPT_LIST, /* struct hl_string_list: YAML sequence, or a repeated flag, or several words after
                    one flag */
};

struct hl_string_list {
    char **items; /* owner: the config */
    size_t n;
};

struct hl_option {
    const char *name; /* first spelling: Hugging Face Trainer's where it has one */
    enum hl_option_kind kind;
    size_t offset;       /* into the values struct of the set */
    const char *initial; /* default as text, parsed like a value; NULL = "" / empty list */
    double least, most;  /* numbers only; least == most == 0 means any */
    const char *unit;    /* "steps", "tokens", "bytes", "seconds"; NULL = none */
    const char *choices; /* CHOICE only: words separated by spaces */
    const char *aliases; /* other spellings, separated by spaces; "=key": without the prefix; NULL =
                            none */
    const char *section; /* heading in --help: "model", "data", "training" ... */
    const char *help;    /* one line */
};

struct hl_option_set {
    const char *prefix; /* NULL, or the plug-in's name: keys are prefix.name */
    const struct hl_option *rows;
    size_t n_rows;
    void *values; /* the struct the offsets point into; owner: caller */
};

/* Values of several sets, with the place each value came from. Owner: caller; free with
 * hl_config_free. */
struct hl_config;

enum hl_status hl_config_new(struct hl_mem *mem, const struct hl_option_set *sets, size_t n_sets,
                             struct hl_config **out,
                             struct hl_diag *diag) HL_MUST_CHECK; /* writes every default */
void hl_config_free(struct hl_config *config);

/* Set one value from text. origin is a file name or "command line"; line 0 when there is none.
 * errors HL_E_USER: unknown key (with "did you mean"), wrong type, out of range (with the range and
 * unit). */
enum hl_status hl_config_set(struct hl_config *config, const char *key, const char *const *values,
                             size_t n_values, const char *origin, long line,
                             struct hl_diag *diag) HL_MUST_CHECK;

/* Read YAML: a mapping of keys to scalars or sequences; a nested mapping means a prefix ("acco:
 * {…}"). A key given twice is refused with both lines. Anchors, tags and several documents are
 * refused. */
enum hl_status hl_config_read_yaml(struct hl_config *config, const char *path,
                                   struct hl_diag *diag) HL_MUST_CHECK;
enum hl_status hl_config_parse_yaml(struct hl_config *config, const char *text, size_t n,
                                    const char *name, struct hl_diag *diag) HL_MUST_CHECK;

/* Read flags `--key value`, `--key=value`, `--flag`, `--no-flag`, and bare words.
 * words_out[i] points into argv (capacity n_args); n_words_out counts them. `--` ends the flags. */
enum hl_status hl_config_read_flags(struct hl_config *config, int n_args, char *const *args,
                                    const char **words_out, size_t *n_words_out,
                                    struct hl_diag *diag) HL_MUST_CHECK;

/* True when the user gave it (not the default). key without prefix for the first sets. */
bool hl_config_given(const struct hl_config *config, const char *key);
/* The resolved configuration as YAML that reads back to the same values; defaults included, each
 * with its help as comment when `teach`. */
void hl_config_print_yaml(const struct hl_config *config, bool teach, struct hl_buf *out);
/* The option list as --help shows it, wrapped at `columns`, grouped by section, with default,
 * range, unit and aliases. */
void hl_config_print_help(const struct hl_option_set *sets, size_t n_sets, int columns,
                          struct hl_buf *out);
/* The same as a Markdown table, for docs/options.md. */
void hl_config_print_markdown(const struct hl_option_set *sets, size_t n_sets, struct hl_buf *out);

/* The nearest of the candidates within a third of the length in edit distance, or NULL. */
const char *hl_nearest_word(const char *word, const char *const *candidates, size_t n);

#endif
