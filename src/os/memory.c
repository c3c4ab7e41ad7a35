/* Huge pages halve the time of a pass over gigabytes of moments; asked for by madvise, which works
 * without privileges. A mapping is aligned to the huge page, but only its own pages become
 * resident: nothing is rounded up in memory. */
#include "os/memory.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "os/cgroup.h"

enum { MAPPED_FROM = 1 << 20, HUGE_PAGE = 1 << 21, PAGE = 4096, TEXT = 4096 };

static bool mapped_bytes(size_t bytes, size_t *out) {
    if (!hl_size_add(bytes, PAGE - 1, out)) return false;
    *out = *out / PAGE * PAGE;
    return true;
}

static void *os_take(struct hl_mem *mem, size_t bytes) {
    (void)mem;
    size_t n, room;
    if (bytes < MAPPED_FROM) return hl_mem_default()->take(hl_mem_default(), bytes);
    if (!mapped_bytes(bytes, &n) || !hl_size_add(n, HUGE_PAGE, &room)) return NULL;
    char *start = mmap(NULL, room, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED) return NULL;
    size_t before = (HUGE_PAGE - (uintptr_t)start % HUGE_PAGE) % HUGE_PAGE;
    if (before) (void)munmap(start, before);
    if (HUGE_PAGE - before) (void)munmap(start + before + n, HUGE_PAGE - before);
    (void)madvise(start + before, n,
                  MADV_HUGEPAGE); /* a kernel without them says so; nothing is lost */
    return start + before;
}

static void os_give(struct hl_mem *mem, void *data, size_t bytes) {
    (void)mem;
    size_t n;
    if (bytes < MAPPED_FROM) {
        hl_mem_default()->give(hl_mem_default(), data, bytes);
        return;
    }
    bool fits = mapped_bytes(bytes, &n);
    assert(fits);
    (void)fits;
    int failed = munmap(data, n);
    assert(!failed);
    (void)failed;
}

struct hl_mem *hl_mem_os(void) {
    static struct hl_mem mem = {os_take, os_give, NULL, MAPPED_FROM};
    return &mem;
}

/* ---- what the kernel says ---- */

/* "Name:   123 kB" -> bytes; 0 when there is no such line. */
static uint64_t kib_line(const char *text, const char *name) {
    size_t n = strlen(name);
    for (const char *line = text; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
        if (!strncmp(line, name, n) && line[n] == ':')
            return strtoull(line + n + 1, NULL, 10) * 1024;
    return 0;
}

static double number_in(const char *folder, const char *name) {
    char path[TEXT], text[64];
    (void)snprintf(path, sizeof path, "%.*s/%s", TEXT - 64, folder, name);
    return hl_read_small(path, text, sizeof text) ? strtod(text, NULL) : 0; /* "max" gives 0 */
}

static const double NO_LIMIT = 9e18; /* version 1 writes "no limit" as a huge number */

static double limit_v2(const char *folder) { return number_in(folder, "memory.max"); }
static double limit_v1(const char *folder) {
    double limit = number_in(folder, "memory.limit_in_bytes");
    return limit < NO_LIMIT ? limit : 0;
}
/* What a group with a limit still leaves; at least a byte, since 0 means "no limit". */
static double left_v2(const char *folder) {
    double limit = limit_v2(folder), left = limit - number_in(folder, "memory.current");
    return limit > 0 ? (left > 1 ? left : 1) : 0;
}
static double left_v1(const char *folder) {
    double limit = limit_v1(folder), left = limit - number_in(folder, "memory.usage_in_bytes");
    return limit > 0 ? (left > 1 ? left : 1) : 0;
}

/* "always [madvise] never" */
static void chosen_word(const char *text, char *out, size_t capacity) {
    const char *open = strchr(text, '['), *close = open ? strchr(open, ']') : NULL;
    if (close) (void)snprintf(out, capacity, "%.*s", (int)(close - open - 1), open + 1);
}

void hl_memory_read_at(const char *root, struct hl_memory *out) {
    char path[256], text[TEXT];
    *out = (struct hl_memory){.huge_pages = "none"};
    (void)snprintf(path, sizeof path, "%s/proc/meminfo", root);
    if (hl_read_small(path, text, sizeof text)) {
        out->total_bytes = kib_line(text, "MemTotal");
        out->available_bytes = kib_line(text, "MemAvailable");
    }
    double limit = hl_cgroup_least(root, "memory", limit_v2, limit_v1),
           left = hl_cgroup_least(root, "memory", left_v2, left_v1);
    if (limit > 0 && limit < (double)out->total_bytes) out->limit_bytes = (uint64_t)limit;
    if (left > 0 && left < (double)out->available_bytes) out->available_bytes = (uint64_t)left;
    (void)snprintf(path, sizeof path, "%s/sys/kernel/mm/transparent_hugepage/enabled", root);
    if (hl_read_small(path, text, sizeof text))
        chosen_word(text, out->huge_pages, sizeof out->huge_pages);
    (void)snprintf(path, sizeof path, "%s/sys/kernel/mm/transparent_hugepage/hpage_pmd_size", root);
    if (hl_read_small(path, text, sizeof text)) out->huge_page_bytes = strtoull(text, NULL, 10);
}

void hl_memory_read(struct hl_memory *out) { hl_memory_read_at("", out); }

static uint64_t own_line(const char *name) {
    char text[TEXT];
    return hl_read_small("/proc/self/status", text, sizeof text) ? kib_line(text, name) : 0;
}

uint64_t hl_memory_resident_bytes(void) { return own_line("VmRSS"); }
uint64_t hl_memory_peak_resident_bytes(void) { return own_line("VmHWM"); }
