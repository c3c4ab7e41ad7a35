/* Files and devices that several processes write through a mapping: files in /dev/shm or hugetlbfs,
 * memfds, DAX character devices. The bytes of a file are reserved before it is mapped, so that no
 * access ends in SIGBUS later for want of room. */
#ifndef HALLEY_OS_SHARED_H
#define HALLEY_OS_SHARED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "halley/status.h"

/* The same bytes twice: whoever only reads uses `read`, where a stray store is caught. */
struct hl_shared {
    char *write;
    const char *read;
    size_t n_bytes;
    bool device; /* a DAX character device: its size is what it is */
};

/* What a folder offers to new files. */
struct hl_shared_room {
    bool known; /* false: its file system does not say */
    uint64_t free_bytes, total_bytes;
    size_t page_bytes; /* files here are multiples of it */
};
enum hl_status hl_shared_room(const char *folder, struct hl_shared_room *out,
                              struct hl_diag *diag) HL_MUST_CHECK;

/* A new file, 0600, zeros, all of it reserved; removed again when that fails.
 * errors HL_E_IO: the system's words, with the size */
enum hl_status hl_shared_make(const char *path, size_t n_bytes, struct hl_diag *diag) HL_MUST_CHECK;
/* Reserve all bytes of an existing file; nothing to do for a device. errors HL_E_IO */
enum hl_status hl_shared_reserve(const char *path, struct hl_diag *diag) HL_MUST_CHECK;
/* Map all of a file or device, as it is.
 * errors HL_E_IO; HL_E_USER: neither a file nor a character device that can be mapped */
enum hl_status hl_shared_open(const char *path, struct hl_shared *out,
                              struct hl_diag *diag) HL_MUST_CHECK;
void hl_shared_close(struct hl_shared *shared); /* zeroed ones may be closed */

/* A lock on a file that the kernel drops when its holder is gone, however it went. Processes that a
 * fork made hold it too. A handle >= 0, or -1 with errno: EWOULDBLOCK means that somebody has it.
 */
int hl_shared_lock(const char *path, bool make);
void hl_shared_unlock(int lock);
/* true: nobody holds it, or there is no such file */
bool hl_shared_lock_is_free(const char *path);

#endif
