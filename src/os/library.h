/* Shared modules that are loaded while the program runs, and where to look for them. */
#ifndef HALLEY_OS_LIBRARY_H
#define HALLEY_OS_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>

/* Load a module and, visible to what it loads in turn, its libraries: Open MPI's own plug-ins need
 * that. NULL: why_out [capacity] says why, in the loader's words. */
void *hl_library_open(const char *path, char *why_out, size_t capacity);
void *hl_library_symbol(void *library, const char *name); /* NULL: it has none of that name */
void hl_library_close(void *library);

/* The folder of the program or shared library that holds this code. false: it cannot be told. */
bool hl_library_folder(char *out, size_t capacity);

#endif
