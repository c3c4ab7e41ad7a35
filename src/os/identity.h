/* Who this process is, and whether another one still lives. */
#ifndef HALLEY_OS_IDENTITY_H
#define HALLEY_OS_IDENTITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A process among those of all machines since they were made. Process numbers are used again;
 * `birth` tells two of one number apart. */
struct hl_identity {
    uint64_t boot[2];   /* the kernel since it booted; 0: not known */
    uint64_t pid_space; /* where `pid` counts (containers have their own); 0: not known */
    int64_t pid;
    uint64_t birth; /* clock ticks after the boot */
};
void hl_identity_own(struct hl_identity *out);
bool hl_identity_same_kernel(const struct hl_identity *a, const struct hl_identity *b);

enum hl_life { HL_GONE, HL_ALIVE, HL_OUT_OF_SIGHT }; /* another kernel's, another container's */
enum hl_life hl_identity_life(const struct hl_identity *of);

void hl_host_name(char *out, size_t capacity);
/* From the kernel's generator; false: there is none. */
bool hl_random_bytes(void *out, size_t n);

#endif
