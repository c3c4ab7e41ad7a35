/* The program: finds the subcommand. One file per subcommand. */
#include <stdio.h>
#include <string.h>

#include "command.h"
#include "halley/option.h"
#include "os/terminal.h"

struct command {
    const char *name, *summary;
    int (*run)(int n_args, char **args);
};

static const struct command commands[] = {
#define HL_COMMAND(name, summary) {#name, summary, command_##name},
#include "commands.def"
#undef HL_COMMAND
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

/* bench-net and bench_net are one command. */
static bool is_called(const char *name, const char *word) {
    while (*name && (*name == *word || (*name == '_' && *word == '-'))) name++, word++;
    return !*name && !*word;
}

static void print_name(FILE *out, const char *name) {
    int width = 10;
    for (; *name; name++, width--) (void)fputc(*name == '_' ? '-' : *name, out);
    fprintf(out, "%*s", width > 0 ? width : 0, "");
}

static void print_usage(FILE *out) {
    fprintf(out, "halley trains transformer language models on the machines people have\n\n"
                 "usage: halley COMMAND [ARGUMENTS]      halley COMMAND --help\n\n");
    for (int i = 0; i < N_COMMANDS; i++) {
        fprintf(out, "  ");
        print_name(out, commands[i].name);
        fprintf(out, " %s\n", commands[i].summary);
    }
}

static const char *nearest_command(const char *word) {
    const char *names[N_COMMANDS];
    for (int i = 0; i < N_COMMANDS; i++) names[i] = commands[i].name;
    return hl_nearest_word(word, names, N_COMMANDS);
}

static int run(int argc, char **argv) {
    if (argc < 2) return print_usage(stderr), 2;
    const char *word = argv[1];
    if (!strcmp(word, "--help") || !strcmp(word, "-h")) return print_usage(stdout), 0;
    if (!strcmp(word, "--version") || !strcmp(word, "-V")) return command_version(0, NULL);
    for (int i = 0; i < N_COMMANDS; i++)
        if (is_called(commands[i].name, word)) return commands[i].run(argc - 2, argv + 2);
    const char *near = nearest_command(word);
    if (near) fprintf(stderr, "halley: no command '%s'; did you mean '%s'?\n", word, near);
    else fprintf(stderr, "halley: no command '%s'; 'halley --help' lists them\n", word);
    return 2;
}

int main(int argc, char **argv) {
    hl_standard_streams_open();
    int status = run(argc, argv);
    if (!fflush(stdout) && !ferror(stdout)) return status;
    fprintf(stderr, "halley: cannot write to standard output: %m\n");
    return status ? status : 1;
}
