/* Pages from the kernel, and what the machine says about memory. */
#ifndef HALLEY_OS_MEMORY_H
#define HALLEY_OS_MEMORY_H

#include <stdint.h>

#include "halley/mem.h"

/* The allocator of the program: blocks of a mebibyte and more are mapped on their own, aligned to
 * huge pages and advised to use them, and go back to the kernel when they are given back; smaller
 * ones come from hl_mem_default(). */
struct hl_mem *hl_mem_os(void);

struct hl_memory {
    uint64_t total_bytes;     /* of the machine */
    uint64_t available_bytes; /* without swapping; not more than the control group leaves */
    uint64_t limit_bytes;     /* of the control group; 0: none */
    uint64_t huge_page_bytes; /* 0: the kernel has none */
    char huge_pages[16];      /* "always", "madvise", "never", "none" */
};
void hl_memory_read(struct hl_memory *out);
void hl_memory_read_at(const char *root,
                       struct hl_memory *out); /* from files under another root (tests) */

uint64_t hl_memory_resident_bytes(void); /* of this process, now; 0 when the kernel does not say */
uint64_t hl_memory_peak_resident_bytes(void); /* the highest since the program began */

#endif
