/* See placed.h. */
#include "memory/placed.h"

#include <assert.h>
#include <stdio.h>
#include <unistd.h>

#include "os/shared.h"

enum { MOST_BLOCKS = 64 };

struct hl_placed {
    struct hl_mem mem; /* context: this */
    struct hl_mem *own;
    struct hl_log *log;
    char *folder;
    size_t page_bytes;
    long n_made;                          /* for names */
    struct hl_shared blocks[MOST_BLOCKS]; /* write NULL: free */
};

static struct hl_shared *block_of(struct hl_placed *p, const void *data) {
    for (int i = 0; i < MOST_BLOCKS; i++)
        if (p->blocks[i].write == data) return &p->blocks[i];
    return NULL;
}

static void *take(struct hl_mem *mem, size_t bytes) {
    struct hl_placed *p = mem->context;
    struct hl_shared *block = block_of(p, NULL);
    struct hl_diag diag = {0};
    char path[4096];
    size_t whole;
    if (!hl_size_add(bytes, p->page_bytes - 1, &whole) || !block) return NULL;
    int n = snprintf(path, sizeof path, "%s/halley-%ld-%p-%ld", p->folder, (long)getpid(),
                     (void *)p, p->n_made++);
    if (n < 0 || n >= (int)sizeof path) return NULL;
    enum hl_status status = hl_shared_make(path, whole / p->page_bytes * p->page_bytes, &diag);
    if (status == HL_OK) {
        status = hl_shared_open(path, block, &diag);
        (void)unlink(path);
    }
    if (status == HL_OK) return block->write;
    *block = (struct hl_shared){0};
    if (p->log) hl_log(p->log, HL_LOG_WARN, "%s", diag.text);
    return NULL;
}

static void give(struct hl_mem *mem, void *data, size_t bytes) {
    struct hl_shared *block = block_of(mem->context, data);
    (void)bytes;
    assert(block);
    hl_shared_close(block);
    *block = (struct hl_shared){0};
}

enum hl_status hl_placed_new(struct hl_mem *mem, const char *folder, struct hl_log *log,
                             struct hl_placed **out, struct hl_diag *diag) {
    struct hl_shared_room room;
    enum hl_status status = hl_shared_room(folder, &room, diag);
    if (status != HL_OK) return status;
    if (access(folder, W_OK | X_OK))
        return hl_fail_at(diag, HL_E_IO, folder, 0, 0, "no files can be made here: %m");
    struct hl_placed *p = hl_alloc(mem, 1, sizeof *p);
    if (p) p->folder = hl_strdup(mem, folder);
    if (!p || !p->folder) {
        hl_free(mem, p);
        return hl_fail_memory(diag, sizeof *p, "an allocator");
    }
    p->mem = (struct hl_mem){.take = take, .give = give, .context = p, .zeroed_from = 1};
    p->own = mem;
    p->log = log;
    p->page_bytes = room.page_bytes;
    *out = p;
    return HL_OK;
}

void hl_placed_free(struct hl_placed *p) {
    if (!p) return;
    hl_free(p->own, p->folder);
    hl_free(p->own, p);
}

struct hl_mem *hl_placed_mem(struct hl_placed *p) {
    return &p->mem;
}
