/* The file layer of whoever must survive a kill, a full disk or a broken one: a table of operations
 * with the real system behind it, so that a test can put a simulated disk there that crashes (after
 * SQLite's test layer).
 *
 * All operations return -1 with errno set when they fail, as the system's own do. Paths are UTF-8
 * text. The table is not changed after it is made and may be used from several threads; a handle
 * belongs to one thread. */
#ifndef HALLEY_OS_FS_H
#define HALLEY_OS_FS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "halley/mem.h"
#include "halley/status.h"

enum { HL_PATH_CAPACITY = 4096 };

enum hl_fs_mode { HL_FS_READ, HL_FS_CREATE }; /* CREATE: for writing, from empty */

struct hl_fs {
    int (*open)(struct hl_fs *fs, const char *path, enum hl_fs_mode mode); /* a handle >= 0 */
    int (*close)(struct hl_fs *fs, int file);
    int64_t (*read)(struct hl_fs *fs, int file, void *data, size_t n,
                    int64_t offset); /* bytes read, maybe fewer; 0: end */
    int64_t (*write)(struct hl_fs *fs, int file, const void *data,
                     size_t n);              /* appends; bytes written, maybe fewer */
    int (*sync)(struct hl_fs *fs, int file); /* until the content is on the medium */
    int64_t (*size)(struct hl_fs *fs,
                    const char *path); /* bytes of a regular file; folders fail with EISDIR */
    int (*make_folder)(struct hl_fs *fs, const char *path);
    int (*sync_folder)(struct hl_fs *fs,
                       const char *path); /* until the names in it are on the medium */
    int (*rename)(struct hl_fs *fs, const char *from, const char *to); /* atomic; replaces a file */
    int (*remove)(struct hl_fs *fs, const char *path); /* a file or an empty folder */
    int (*list)(struct hl_fs *fs, const char *path, void (*visit)(void *context, const char *name),
                void *context);
    int64_t (*free_bytes)(struct hl_fs *fs,
                          const char *path); /* what an ordinary user may still write there */
    void *context;
};

/* The real system. Static storage. */
struct hl_fs *hl_fs_os(void);

/* "folder/name" into out; false: longer than the capacity. */
bool hl_path_join(char out[HL_PATH_CAPACITY], const char *folder, const char *name) HL_MUST_CHECK;

/* Loops over short writes and interruptions. -1: errno says why. */
int hl_fs_write_all(struct hl_fs *fs, int file, const void *data, size_t n) HL_MUST_CHECK;

/* Exactly n bytes from offset. errors HL_E_IO; HL_E_FORMAT when the file ends before. */
enum hl_status hl_fs_read_exact(struct hl_fs *fs, int file, const char *path, void *data, size_t n,
                                int64_t offset, struct hl_diag *diag) HL_MUST_CHECK;

/* A whole small file as text, NUL-terminated (owner: caller, hl_free). n_out may be NULL.
 * errors HL_E_IO; HL_E_FORMAT larger than limit bytes. */
enum hl_status hl_fs_read_text(struct hl_mem *mem, struct hl_fs *fs, const char *path, size_t limit,
                               char **out, size_t *n_out, struct hl_diag *diag) HL_MUST_CHECK;

#endif
