/* One holder at a time: an advisory lock on a file, which the kernel lets go when its holder ends,
 * however it ends. */
#ifndef HALLEY_OS_LOCK_H
#define HALLEY_OS_LOCK_H

#include "halley/status.h"
#include "os/fs.h"

struct hl_lock {
    int file; /* -1: not held */
    char path[HL_PATH_CAPACITY];
};

/* Take the lock, waiting up to a second for a holder that is about to end. The file is made if need
 * be and tells people the holder's process id; releasing removes it. One that a killed process left
 * is taken over.
 * path        shorter than HL_PATH_CAPACITY
 * returns     HL_OK held; HL_END no lock can be had there (no such folder, one that cannot be
 *             written, a file system without locks): lock->file is -1 and releasing does nothing;
 *             HL_E_AGAIN somebody else holds it
 * holder_out  with HL_E_AGAIN: their process id, 0 when it cannot be told */
enum hl_status hl_lock_take(struct hl_lock *lock, const char *path, long *holder_out) HL_MUST_CHECK;
void hl_lock_release(struct hl_lock *lock);

#endif
