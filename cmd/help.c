/* halley help [TOPIC]: the pages of docs/help, which are built into the program. */
#include <stdio.h>
#include <string.h>

#include "command.h"
#include "halley/option.h"
#include "help_topics.h"

static void list_topics(FILE *out) {
    fprintf(out, "usage: halley help TOPIC\n\n");
    for (const struct help_topic *topic = help_topics; topic->name; topic++) fprintf(out, "  %-12s %s\n", topic->name, topic->summary);
    fprintf(out, "\n'halley COMMAND --help' lists the options of a command.\n");
}

static const char *nearest_topic(const char *word) {
    const char *names[64];
    size_t n = 0;
    while (n < sizeof names / sizeof *names && help_topics[n].name) names[n] = help_topics[n].name, n++;
    return hl_nearest_word(word, names, n);
}

int command_help(int n_args, char **args) {
    if (n_args == 0 || !strcmp(args[0], "--help")) return list_topics(stdout), 0;
    for (const struct help_topic *topic = help_topics; topic->name; topic++)
        if (!strcmp(args[0], topic->name)) return fputs(topic->text, stdout) < 0;
    const char *near = nearest_topic(args[0]);
    fprintf(stderr, "halley help: no topic '%s'", args[0]);
    if (near) fprintf(stderr, "; did you mean '%s'?\n", near);
    else fprintf(stderr, "; 'halley help' lists them\n");
    return 2;
}
