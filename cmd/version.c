/* halley version. Reads the versions of what is loaded, not of the headers it was built with, where
 * the library tells. */
#include <gnu/libc-version.h>
#include <jansson.h>
#include <stdio.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <xxhash.h>
#include <yaml.h>

#include "command.h"
#include "halley/kernels.h"

int command_version(int n_args, char **args) {
    (void)n_args;
    printf("halley %s\n", HALLEY_VERSION);
    if (!args) return 0; /* halley --version */
    char pcre[64] = "?";
    (void)pcre2_config(PCRE2_CONFIG_VERSION, pcre);
    printf("products  %s\n", hl_products_describe());
    printf("libyaml   %s\n", yaml_get_version_string());
    printf("jansson   %s\n", jansson_version_str());
    printf("pcre2     %s\n", pcre);
    printf("xxhash    %u\n", XXH_versionNumber());
    printf("glibc     %s\n", gnu_get_libc_version());
    printf("compiler  %s\n", __VERSION__);
    return 0;
}
