/* Addresses of pools as paths. See pool.h. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "memory/pool.h"

static bool fits(int n) { return n > 0 && n < HL_PATH_CAPACITY; }

bool hl_pool_full_address(const char *address, char out[HL_PATH_CAPACITY]) {
    bool is_path = strchr(address, '/') != NULL;
    int n = snprintf(out, HL_PATH_CAPACITY, "%s%s",
                     is_path ? "" : HL_POOL_PARENT "/" HL_POOL_PREFIX, address);
    if (!fits(n)) return false;
    while (n > 1 && out[n - 1] == '/') out[--n] = 0;
    return true;
}

enum hl_pool_place hl_pool_place_of(const char *full_address) {
    struct stat info;
    if (strchr(full_address, ',')) return HL_POOL_LIST;
    return stat(full_address, &info) || S_ISDIR(info.st_mode) ? HL_POOL_FOLDER : HL_POOL_LIST;
}

uint32_t hl_pool_n_listed(const char *list) {
    uint32_t n = 1;
    for (; *list; list++) n += *list == ',';
    return n;
}

bool hl_pool_device_path(const char *full_address, uint32_t d, char out[HL_PATH_CAPACITY]) {
    if (hl_pool_place_of(full_address) == HL_POOL_FOLDER)
        return fits(snprintf(out, HL_PATH_CAPACITY, "%s/dev%u", full_address, d));
    const char *at = full_address;
    for (; d; d--) {
        at = strchr(at, ',');
        if (!at) return false;
        at++;
    }
    return fits(snprintf(out, HL_PATH_CAPACITY, "%.*s", (int)strcspn(at, ","), at));
}

void hl_pool_list_folder(const unsigned char uuid[16], char out[HL_PATH_CAPACITY]) {
    int n = snprintf(out, HL_PATH_CAPACITY, HL_POOL_PARENT "/" HL_POOL_PREFIX);
    for (int i = 0; i < 16; i++)
        n += snprintf(out + n, HL_PATH_CAPACITY - (size_t)n, "%02x", uuid[i]);
}
