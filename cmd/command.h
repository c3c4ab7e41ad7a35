/* A subcommand takes the words after its name and returns the exit status:
 * 0 done, 1 failed, 2 usage or configuration, 3 a number that is none,
 * 129 / 130 / 143 stopped by SIGHUP / SIGINT / SIGTERM after saving. */
#ifndef HALLEY_COMMAND_H
#define HALLEY_COMMAND_H

#define HL_COMMAND(name, summary) int command_##name(int n_args, char **args);
#include "commands.def"
#undef HL_COMMAND

#endif
