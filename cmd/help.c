/* halley help [TOPIC]: the pages of docs/help, which are built into the program. Under the pages on
 * plug-ins and presets stands what this build really has, from the registries. */
#include <stdio.h>
#include <string.h>

#include "cmd_common.h"
#include "command.h"
#include "halley/codec.h"
#include "halley/wire.h"
#include "help_topics.h"

/* ---- lists from the registries ---- */

static void print_entry(const char *name, const char *summary, const char *paper) {
    printf("  %-17s %s%s%s%s\n", name, summary, paper ? " (" : "", paper ? paper : "",
           paper ? ")" : "");
}

static void list_strategies(void) {
    for (const struct hl_strategy *const *s = hl_strategies(); *s; s++)
        print_entry((*s)->name, (*s)->summary, (*s)->paper);
}

static void list_optimizers(void) {
    for (const struct hl_optimizer *const *o = hl_optimizers(); *o; o++)
        print_entry((*o)->name, (*o)->summary, (*o)->paper);
}

static void list_wires(void) {
    for (const struct hl_wire_plugin *const *w = hl_wires(); *w; w++)
        print_entry((*w)->name, (*w)->summary, NULL);
}

static void list_codecs(void) {
    for (const struct hl_codec *const *c = hl_codecs(); *c; c++)
        print_entry((*c)->name, (*c)->summary, (*c)->paper);
}

static void list_models(void) {
    for (const struct hl_model_preset_row *row = hl_model_presets(); row->name; row++)
        print_entry(row->name, row->summary, NULL);
}

static const struct {
    const char *topic, *heading;
    void (*list)(void);
} lists[] = {
    {"strategies", "Strategies in this build (--strategy NAME):", list_strategies},
    {"optimizers", "Optimizers in this build (--optim NAME):", list_optimizers},
    {"wires", "Wires in this build (--wire NAME):", list_wires},
    {"codecs", "Codecs in this build, bytes for an element:", list_codecs},
    {"models", "Presets in this build (--model NAME):", list_models},
};

static int print_topic(const struct help_topic *topic) {
    bool failed = fputs(topic->text, stdout) < 0;
    for (size_t i = 0; i < sizeof lists / sizeof *lists && !failed; i++) {
        if (strcmp(topic->name, lists[i].topic) != 0) continue;
        printf("\n%s\n\n", lists[i].heading);
        lists[i].list();
    }
    return failed;
}

/* docs/options.md is this output; a test compares them. */
static int print_options_markdown(void) {
    struct hl_buf text = {.mem = hl_mem_default()};
    hl_buf_puts(&text, "# Options of a run\n\nFor `halley train`, `plan` and `eval`, as flags or "
                       "YAML keys. Made from the option tables by\n"
                       "`halley help options-markdown`; a test compares.\n\n");
    run_print_markdown(&text);
    bool failed = text.failed || fputs(text.data ? text.data : "", stdout) < 0;
    hl_buf_free(&text);
    return failed;
}

/* ---- topics ---- */

static void list_topics(FILE *out) {
    fprintf(out, "usage: halley help TOPIC\n\n");
    for (const struct help_topic *topic = help_topics; topic->name; topic++)
        fprintf(out, "  %-12s %s\n", topic->name, topic->summary);
    fprintf(out, "\n'halley COMMAND --help' lists the options of a command.\n");
}

static const char *nearest_topic(const char *word) {
    const char *names[64];
    size_t n = 0;
    while (n < sizeof names / sizeof *names && help_topics[n].name)
        names[n] = help_topics[n].name, n++;
    return hl_nearest_word(word, names, n);
}

int command_help(int n_args, char **args) {
    if (n_args == 0 || !strcmp(args[0], "--help")) return list_topics(stdout), 0;
    if (!strcmp(args[0], "options-markdown")) return print_options_markdown();
    for (const struct help_topic *topic = help_topics; topic->name; topic++)
        if (!strcmp(args[0], topic->name)) return print_topic(topic);
    const char *near = nearest_topic(args[0]);
    fprintf(stderr, "halley help: no topic '%s'", args[0]);
    if (near) fprintf(stderr, "; did you mean '%s'?\n", near);
    else fprintf(stderr, "; 'halley help' lists them\n");
    return 2;
}
