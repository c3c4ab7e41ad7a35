/* Runs a fuzz target over the files of a folder: the corpus as an ordinary test, without clang.
 * Each file also runs cut short at a few places, since half-written files are what people meet. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz_target.h"

/* The bytes in a block of exactly their size, so that a sanitizer sees a read past the end. NULL:
 * cannot be read. */
static uint8_t *read_all(const char *path, size_t *n_out) {
    FILE *file = fopen(path, "rb");
    if (!file) return NULL;
    if (fseek(file, 0, SEEK_END)) return fclose(file), NULL;
    long n = ftell(file);
    uint8_t *data = n >= 0 ? malloc((size_t)n ? (size_t)n : 1) : NULL;
    rewind(file);
    if (data && fread(data, 1, (size_t)n, file) != (size_t)n) {
        free(data);
        data = NULL;
    }
    (void)fclose(file);
    *n_out = (size_t)n;
    return data;
}

static void run_short(const uint8_t *data, size_t n) {
    uint8_t *copy = malloc(n ? n : 1);
    if (!copy) abort();
    memcpy(copy, data, n);
    (void)LLVMFuzzerTestOneInput(copy, n);
    free(copy);
}

int main(int argc, char **argv) {
    DIR *folder = argc == 2 ? opendir(argv[1]) : NULL;
    if (!folder) return fprintf(stderr, "usage: %s FOLDER (a corpus)\n", argv[0]), 2;
    size_t n_files = 0;
    for (struct dirent *entry; (entry = readdir(folder));) {
        char path[4096];
        if (entry->d_name[0] == '.') continue;
        (void)snprintf(path, sizeof path, "%s/%s", argv[1], entry->d_name);
        size_t n;
        uint8_t *data = read_all(path, &n);
        if (!data) return fprintf(stderr, "%s: cannot be read\n", path), 1;
        for (size_t cut = 0; cut <= 16; cut++) run_short(data, n / 16 * cut);
        run_short(data, n);
        free(data);
        n_files++;
    }
    (void)closedir(folder);
    printf("%zu files\n", n_files);
    return n_files ? 0 : 1;
}
