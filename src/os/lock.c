/* flock on a file that exists as long as somebody holds it. See lock.h.
 *
 * The holder removes the file before it lets go. Who opened it just before that then locks a file
 * without a name, which nobody else would meet: after locking, the name is compared with what was
 * locked. */
#include "os/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "os/clock.h"

static const int64_t WAIT_NS = 1000000000, PAUSE_NS = 10000000;

static long read_holder(int file) {
    char text[32];
    ssize_t n = pread(file, text, sizeof text - 1, 0);
    if (n <= 0) return 0;
    text[n] = 0;
    return strtol(text, NULL, 10);
}

/* Only for people: on a full disk the lock holds without it. */
static void write_holder(int file) {
    char text[32];
    int n = snprintf(text, sizeof text, "%ld\n", (long)getpid());
    if (ftruncate(file, 0) == 0 && pwrite(file, text, (size_t)n, 0) < 0) return;
}

static bool has_name(int file, const char *path) {
    struct stat locked, named;
    return !fstat(file, &locked) && !stat(path, &named) && locked.st_dev == named.st_dev &&
           locked.st_ino == named.st_ino;
}

static enum hl_status try_once(const char *path, int *file_out, long *holder_out) {
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (file < 0) return HL_END;
    bool locked = flock(file, LOCK_EX | LOCK_NB) == 0;
    if (locked && has_name(file, path)) return *file_out = file, HL_OK;
    bool again = locked || errno == EWOULDBLOCK;
    *holder_out = locked ? 0 : read_holder(file);
    (void)close(file);
    return again ? HL_E_AGAIN : HL_END;
}

enum hl_status hl_lock_take(struct hl_lock *lock, const char *path, long *holder_out) {
    int64_t deadline = hl_clock_ns() + WAIT_NS;
    enum hl_status status;
    lock->file = -1;
    while ((status = try_once(path, &lock->file, holder_out)) == HL_E_AGAIN &&
           hl_clock_ns() < deadline)
        (void)nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
    if (status != HL_OK) return status;
    (void)snprintf(lock->path, sizeof lock->path, "%s", path);
    write_holder(lock->file);
    return HL_OK;
}

void hl_lock_release(struct hl_lock *lock) {
    if (lock->file < 0) return;
    if (has_name(lock->file, lock->path)) (void)unlink(lock->path);
    (void)close(lock->file);
    lock->file = -1;
}
