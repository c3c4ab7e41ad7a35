/* See fake_fs.h. */
#include "support/fake_fs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NODES = 4096, MAX_ENTRIES = 64, MAX_HANDLES = 64 };

struct entry {
    char name[64];
    int node;
};
struct names {
    struct entry entries[MAX_ENTRIES];
    int n;
};

struct node {
    bool folder;
    struct names seen, held; /* folders */
    char *data, *held_data;  /* files */
    size_t n, held_n;
};

struct fake_fs {
    struct hl_fs table;
    struct node *nodes[MAX_NODES]; /* 0 is the root; never freed before the end: a held name may
                                      still lead there */
    int n_nodes;
    struct {
        bool open, writing;
        int node;
    } handles[MAX_HANDLES];
    long operations, fail_at;
    enum fake_fault fault;
    int error;
    bool down; /* crashed, or stuck */
    int64_t room;
    size_t most;
};

/* ---- faults ---- */

static int fail(int error) {
    errno = error;
    return -1;
}

/* Every changing operation passes here; true: it must fail (errno set). */
static bool strike(struct fake_fs *f) {
    f->operations++;
    if (f->down) return fail(f->fault == FAKE_STUCK ? f->error : EIO), true;
    if (f->operations != f->fail_at || f->fault == FAKE_NONE) return false;
    f->down = f->fault != FAKE_ERROR;
    return fail(f->fault == FAKE_CRASH || f->fault == FAKE_TORN ? EIO : f->error), true;
}

static bool crashed(const struct fake_fs *f) { return f->down && f->fault != FAKE_STUCK; }

/* ---- names ---- */

static struct entry *find(struct names *names, const char *name, size_t n) {
    for (int i = 0; i < names->n; i++)
        if (strlen(names->entries[i].name) == n && !memcmp(names->entries[i].name, name, n))
            return &names->entries[i];
    return NULL;
}

/* The folder that holds the last part of path, and that part; -1: a folder on the way is missing.
 */
static int parent_of(struct fake_fs *f, const char *path, const char **last_out) {
    int at = 0;
    while (*path == '/') path++;
    for (;;) {
        const char *slash = strchr(path, '/');
        if (!slash) break;
        struct entry *entry =
            f->nodes[at]->folder ? find(&f->nodes[at]->seen, path, (size_t)(slash - path)) : NULL;
        if (!entry) return fail(ENOENT);
        at = entry->node;
        path = slash + 1;
    }
    if (!f->nodes[at]->folder) return fail(ENOTDIR);
    *last_out = path;
    return at;
}

static int lookup(struct fake_fs *f, const char *path) {
    const char *last;
    int parent = parent_of(f, path, &last);
    if (parent < 0) return -1;
    if (!*last) return parent;
    struct entry *entry = find(&f->nodes[parent]->seen, last, strlen(last));
    return entry ? entry->node : fail(ENOENT);
}

static void add_name(struct names *names, const char *name, int node) {
    if (names->n == MAX_ENTRIES || strlen(name) >= sizeof names->entries[0].name) abort();
    strcpy(names->entries[names->n].name, name);
    names->entries[names->n++].node = node;
}

static void drop_name(struct names *names, struct entry *entry) {
    *entry = names->entries[--names->n];
}

static int new_node(struct fake_fs *f, bool folder) {
    if (f->n_nodes == MAX_NODES) abort();
    struct node *node = calloc(1, sizeof *node);
    if (!node) abort();
    node->folder = folder;
    f->nodes[f->n_nodes] = node;
    return f->n_nodes++;
}

/* ---- operations ---- */

static struct fake_fs *self(struct hl_fs *fs) { return fs->context; }

static int fake_open(struct hl_fs *fs, const char *path, enum hl_fs_mode mode) {
    struct fake_fs *f = self(fs);
    if (crashed(f)) return fail(EIO);
    if (mode == HL_FS_CREATE && strike(f)) return -1;
    int node = lookup(f, path);
    if (node >= 0 && f->nodes[node]->folder) return fail(EISDIR);
    if (node < 0 && mode == HL_FS_READ) return -1;
    if (node < 0) {
        const char *last;
        int parent = parent_of(f, path, &last);
        if (parent < 0) return -1;
        node = new_node(f, false);
        add_name(&f->nodes[parent]->seen, last, node);
    }
    if (mode == HL_FS_CREATE) f->nodes[node]->n = 0;
    for (int h = 0; h < MAX_HANDLES; h++)
        if (!f->handles[h].open) {
            f->handles[h].open = true;
            f->handles[h].writing = mode == HL_FS_CREATE;
            f->handles[h].node = node;
            return h;
        }
    abort();
}

static int fake_close(struct hl_fs *fs, int file) {
    self(fs)->handles[file].open = false;
    return 0;
}

static int64_t fake_read(struct hl_fs *fs, int file, void *data, size_t n, int64_t offset) {
    struct fake_fs *f = self(fs);
    if (crashed(f)) return fail(EIO);
    struct node *node = f->nodes[f->handles[file].node];
    size_t from = (size_t)offset < node->n ? (size_t)offset : node->n;
    if (n > node->n - from) n = node->n - from;
    if (f->most && n > f->most) n = f->most;
    if (n) memcpy(data, node->data + from, n);
    return (int64_t)n;
}

static void append(struct node *node, const void *data, size_t n) {
    node->data = realloc(node->data, node->n + n + 1);
    if (!node->data) abort();
    memcpy(node->data + node->n, data, n);
    node->n += n;
}

static int64_t fake_write(struct hl_fs *fs, int file, const void *data, size_t n) {
    struct fake_fs *f = self(fs);
    struct node *node = f->nodes[f->handles[file].node];
    bool was_down = f->down;
    if (strike(f)) {
        if (!was_down && f->fault == FAKE_TORN) append(node, data, n / 2), errno = EIO;
        return -1;
    }
    if (f->most && n > f->most) n = f->most;
    if (f->room >= 0 && (int64_t)n > f->room) n = (size_t)f->room;
    if (n == 0) return fail(ENOSPC);
    if (f->room >= 0) f->room -= (int64_t)n;
    append(node, data, n);
    return (int64_t)n;
}

static int fake_sync(struct hl_fs *fs, int file) {
    struct fake_fs *f = self(fs);
    if (strike(f)) return -1;
    struct node *node = f->nodes[f->handles[file].node];
    node->held_data = realloc(node->held_data, node->n + 1);
    if (!node->held_data) abort();
    if (node->n) memcpy(node->held_data, node->data, node->n);
    node->held_n = node->n;
    return 0;
}

static int64_t fake_size(struct hl_fs *fs, const char *path) {
    struct fake_fs *f = self(fs);
    if (crashed(f)) return fail(EIO);
    int node = lookup(f, path);
    if (node < 0) return -1;
    return f->nodes[node]->folder ? fail(EISDIR) : (int64_t)f->nodes[node]->n;
}

static int fake_make_folder(struct hl_fs *fs, const char *path) {
    struct fake_fs *f = self(fs);
    if (strike(f)) return -1;
    if (lookup(f, path) >= 0) return fail(EEXIST);
    const char *last;
    int parent = parent_of(f, path, &last);
    if (parent < 0) return -1;
    add_name(&f->nodes[parent]->seen, last, new_node(f, true));
    return 0;
}

static int fake_sync_folder(struct hl_fs *fs, const char *path) {
    struct fake_fs *f = self(fs);
    if (strike(f)) return -1;
    int node = lookup(f, path);
    if (node < 0) return -1;
    f->nodes[node]->held = f->nodes[node]->seen;
    return 0;
}

static int fake_rename(struct hl_fs *fs, const char *from, const char *to) {
    struct fake_fs *f = self(fs);
    if (strike(f)) return -1;
    const char *old_name, *new_name;
    int old_parent = parent_of(f, from, &old_name), new_parent = parent_of(f, to, &new_name);
    if (old_parent < 0 || new_parent < 0) return -1;
    struct names *old_names = &f->nodes[old_parent]->seen, *new_names = &f->nodes[new_parent]->seen;
    struct entry *entry = find(old_names, old_name, strlen(old_name));
    if (!entry) return fail(ENOENT);
    int node = entry->node;
    struct entry *target = find(new_names, new_name, strlen(new_name));
    if (target && f->nodes[target->node]->folder && f->nodes[target->node]->seen.n)
        return fail(ENOTEMPTY);
    if (target) drop_name(new_names, target);
    drop_name(old_names, find(old_names, old_name, strlen(old_name)));
    add_name(new_names, new_name, node);
    return 0;
}

static int fake_remove(struct hl_fs *fs, const char *path) {
    struct fake_fs *f = self(fs);
    if (strike(f)) return -1;
    const char *last;
    int parent = parent_of(f, path, &last);
    struct entry *entry = parent < 0 ? NULL : find(&f->nodes[parent]->seen, last, strlen(last));
    if (!entry) return fail(ENOENT);
    struct node *node = f->nodes[entry->node];
    if (node->folder && node->seen.n) return fail(ENOTEMPTY);
    if (f->room >= 0) f->room += (int64_t)node->n;
    drop_name(&f->nodes[parent]->seen, entry);
    return 0;
}

static int fake_list(struct hl_fs *fs, const char *path,
                     void (*visit)(void *context, const char *name), void *context) {
    struct fake_fs *f = self(fs);
    if (crashed(f)) return fail(EIO);
    int node = lookup(f, path);
    if (node < 0) return -1;
    if (!f->nodes[node]->folder) return fail(ENOTDIR);
    struct names names = f->nodes[node]->seen; /* a copy: the visitor may change the folder */
    for (int i = 0; i < names.n; i++) visit(context, names.entries[i].name);
    return 0;
}

static int64_t fake_free_bytes(struct hl_fs *fs, const char *path) {
    (void)path;
    return self(fs)->room;
}

/* ---- for tests ---- */

struct fake_fs *fake_fs_new(void) {
    struct fake_fs *f = calloc(1, sizeof *f);
    if (!f) abort();
    f->room = -1;
    f->table = (struct hl_fs){fake_open,
                              fake_close,
                              fake_read,
                              fake_write,
                              fake_sync,
                              fake_size,
                              fake_make_folder,
                              fake_sync_folder,
                              fake_rename,
                              fake_remove,
                              fake_list,
                              fake_free_bytes,
                              f};
    (void)new_node(f, true);
    return f;
}

void fake_fs_free(struct fake_fs *f) {
    for (int i = 0; i < f->n_nodes; i++) {
        free(f->nodes[i]->data);
        free(f->nodes[i]->held_data);
        free(f->nodes[i]);
    }
    free(f);
}

struct hl_fs *fake_fs_table(struct fake_fs *f) {
    return &f->table;
}

void fake_fs_arm(struct fake_fs *f, long k, enum fake_fault fault, int error) {
    f->operations = 0;
    f->fail_at = k;
    f->fault = fault;
    f->error = error;
    f->down = false;
}

long fake_fs_operations(const struct fake_fs *f) { return f->operations; }

void fake_fs_reboot(struct fake_fs *f, enum fake_survives survives) {
    for (int i = 0; i < f->n_nodes; i++) {
        struct node *node = f->nodes[i];
        if (survives == FAKE_SYNCED) node->seen = node->held;
        if (survives == FAKE_ALL) continue;
        node->data = realloc(node->data, node->held_n + 1);
        if (!node->data) abort();
        if (node->held_n) memcpy(node->data, node->held_data, node->held_n);
        node->n = node->held_n;
    }
    memset(f->handles, 0, sizeof f->handles);
    fake_fs_arm(f, 0, FAKE_NONE, 0);
}

void fake_fs_set_room(struct fake_fs *f, int64_t bytes) { f->room = bytes; }
void fake_fs_set_short(struct fake_fs *f, size_t most) { f->most = most; }

char *fake_fs_content(struct fake_fs *f, const char *path, size_t **n_out) {
    int node = lookup(f, path);
    if (node < 0 || f->nodes[node]->folder) return NULL;
    if (n_out) *n_out = &f->nodes[node]->n;
    return f->nodes[node]->data;
}

void fake_fs_put(struct fake_fs *f, const char *path, const void *data, size_t n) {
    int file = fake_open(&f->table, path, HL_FS_CREATE);
    if (file < 0) abort();
    append(f->nodes[f->handles[file].node], data, n);
    (void)fake_close(&f->table, file);
}

int fake_fs_open_handles(const struct fake_fs *f) {
    int n = 0;
    for (int h = 0; h < MAX_HANDLES; h++) n += f->handles[h].open;
    return n;
}
