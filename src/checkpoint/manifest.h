/* manifest.json, the commit mark of a checkpoint: which files belong to it, how long they are and
 * their checksums. It is written last, and carries a checksum of its own text.
 * docs/formats/checkpoint.md describes it for other readers. */
#ifndef HALLEY_CHECKPOINT_MANIFEST_H
#define HALLEY_CHECKPOINT_MANIFEST_H

#include <stddef.h>
#include <stdint.h>

#include "halley/mem.h"
#include "halley/status.h"
#include "os/fs.h"

enum { HL_MANIFEST_VERSION = 1, HL_MANIFEST_MAX_FILES = 64, HL_MANIFEST_MAX_BYTES = 16 << 20 };
#define HL_MANIFEST_NAME "manifest.json"

struct hl_manifest_file {
    char name[128]; /* plain: no folder in it */
    int64_t bytes;
    uint64_t xxh3;
};

struct hl_manifest {
    int64_t serial; /* 1, 2, 3 ... in the order of saving: the highest is the newest, whatever its
                       step */
    int64_t step;
    int n_files;
    struct hl_manifest_file files[HL_MANIFEST_MAX_FILES];
};

/* made_with_json: a JSON object, or NULL. */
void hl_manifest_print(const struct hl_manifest *manifest, const char *made_with_json,
                       struct hl_buf *out);

/* made_with_out (owner: caller; may be NULL, then it is dropped): the object's text, "{}" when
 * there is none. errors HL_E_FORMAT; HL_E_UNSUPPORTED for a newer version. */
enum hl_status hl_manifest_parse(struct hl_mem *mem, const char *text, size_t n, const char *file,
                                 struct hl_manifest *out, char **made_with_out,
                                 struct hl_diag *diag) HL_MUST_CHECK;

/* Read folder/manifest.json and compare the sizes of all files. HL_END: there is no manifest. */
enum hl_status hl_manifest_read(struct hl_mem *mem, struct hl_fs *fs, const char *folder,
                                struct hl_manifest *out, char **made_with_out,
                                struct hl_diag *diag) HL_MUST_CHECK;
const struct hl_manifest_file *hl_manifest_find(const struct hl_manifest *manifest,
                                                const char *name); /* NULL: none */

/* No separators, not "." or "..", not empty, short: safe to join to a folder. */
bool hl_plain_name(const char *name);

#endif
