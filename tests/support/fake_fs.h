/* A disk in memory that crashes, fills up, breaks and goes read-only on command (after SQLite's
 * test file layer).
 *
 * Contents and names exist twice: as running programs see them, and as the medium holds them. sync
 * copies a file's content, sync_folder a folder's names to the medium. A crash then leaves what the
 * chosen mode says; "rebooting" makes the medium what programs see. Operations are counted; the one
 * that is told to fail does. */
#ifndef HALLEY_TESTS_FAKE_FS_H
#define HALLEY_TESTS_FAKE_FS_H

#include "os/fs.h"

enum fake_fault {
    FAKE_NONE,
    FAKE_CRASH, /* from this operation on nothing happens any more (EIO) */
    FAKE_TORN,  /* the same, but a write gets half of its bytes out first */
    FAKE_ERROR, /* this one operation fails with `error` */
    FAKE_STUCK, /* this and every later changing operation fails with `error` (read-only, dead disk)
                 */
};

/* What is left after a crash. */
enum fake_survives {
    FAKE_ALL,    /* the process was killed, the machine lives on: everything done is done */
    FAKE_SYNCED, /* the power went: only what was synced, names and contents */
    FAKE_NAMES,  /* the power went on a file system that writes names early: names as seen, contents
                    as synced */
};

struct fake_fs;                    /* opaque */
struct fake_fs *fake_fs_new(void); /* the root is "/", and "/out"'s parent exists */
void fake_fs_free(struct fake_fs *fake);
struct hl_fs *fake_fs_table(struct fake_fs *fake);

/* The k-th operation from now on (1-based; 0: never). Reading operations count only for FAKE_ERROR
 * with count_reads. */
void fake_fs_arm(struct fake_fs *fake, long k, enum fake_fault fault, int error);
long fake_fs_operations(const struct fake_fs *fake); /* since arm */
void fake_fs_reboot(struct fake_fs *fake, enum fake_survives survives);
void fake_fs_set_room(struct fake_fs *fake, int64_t bytes); /* -1: no limit */
void fake_fs_set_short(struct fake_fs *fake,
                       size_t most); /* writes and reads move at most so many bytes; 0: no limit */

/* For tests that look or tamper. NULL: no such file. */
char *fake_fs_content(struct fake_fs *fake, const char *path, size_t **n_out);
void fake_fs_put(struct fake_fs *fake, const char *path, const void *data, size_t n);
int fake_fs_open_handles(const struct fake_fs *fake);

#endif
