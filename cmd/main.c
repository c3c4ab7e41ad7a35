/* The program: finds the subcommand. One file per subcommand. */
#include "command.h"

#include <stdio.h>
#include <string.h>

static const struct command commands[] = {
    {"version", "print the version", command_version},
};

int command_version(int n_args, char **args) {
    (void)n_args;
    (void)args;
    printf("halley %s\n", HALLEY_VERSION);
    return 0;
}

int main(int argc, char **argv) {
    if (argc >= 2 && !strcmp(argv[1], "--version")) return command_version(0, NULL);
    for (size_t i = 0; argc >= 2 && i < sizeof commands / sizeof *commands; i++)
        if (!strcmp(argv[1], commands[i].name)) return commands[i].run(argc - 2, argv + 2);
    fprintf(stderr, "usage: halley COMMAND ...\n");
    return 2;
}
