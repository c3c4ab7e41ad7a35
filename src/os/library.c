/* dlopen and its kin. See library.h. */
#include "os/library.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void *hl_library_open(const char *path, char *why_out, size_t capacity) {
    void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    const char *why = library ? NULL : dlerror();
    if (!library) (void)snprintf(why_out, capacity, "%s", why ? why : "no reason was given");
    return library;
}

void *hl_library_symbol(void *library, const char *name) { return dlsym(library, name); }

void hl_library_close(void *library) { (void)dlclose(library); }

/* The loader knows the program by how it was called, which may be no path at all; its name in the
 * list of what is loaded is empty, and the kernel knows where it lies. */
bool hl_library_folder(char *out, size_t capacity) {
    static const char here = 0;
    struct link_map *map = NULL;
    Dl_info info;
    bool found = dladdr1(&here, &info, (void **)&map, RTLD_DL_LINKMAP) && map && *map->l_name;
    ssize_t n = 0;
    if (found) n = snprintf(out, capacity, "%s", map->l_name);
    else n = readlink("/proc/self/exe", out, capacity);
    if (n <= 0 || (size_t)n >= capacity) return false;
    out[n] = 0;
    char *slash = strrchr(out, '/');
    if (slash) *slash = 0;
    return slash;
}
