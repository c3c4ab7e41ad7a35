/* A subcommand: takes the words after its name, returns the exit status (0 done, 1 failed, 2 usage, 130/143 signals). */
#ifndef HALLEY_COMMAND_H
#define HALLEY_COMMAND_H

struct command {
    const char *name, *summary;
    int (*run)(int n_args, char **args);
};

int command_version(int n_args, char **args);

#endif
