/* halley version */
#include "command.h"

#include <stdio.h>

int command_version(int n_args, char **args) {
    (void)n_args;
    (void)args;
    printf("halley %s\n", HALLEY_VERSION);
    return 0;
}
