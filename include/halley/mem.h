/* Allocators are passed in, so that a test can make each allocation fail in turn and a run can
 * count its bytes. Everything returned is 64-byte aligned. An hl_mem may be used from several
 * threads at once. */
#ifndef HALLEY_MEM_H
#define HALLEY_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "halley/status.h"

struct hl_mem {
    /* take: 64-byte aligned bytes, uninitialised, NULL on failure.  give: what take returned with
     * the same size. */
    void *(*take)(struct hl_mem *mem, size_t bytes);
    void (*give)(struct hl_mem *mem, void *data, size_t bytes);
    void *context;
    size_t zeroed_from; /* blocks of so many bytes and more come zeroed, untouched; 0: none do */
};

/* The process allocator over aligned_alloc. */
struct hl_mem *hl_mem_default(void);

/* Zeroed array of n elements of the given size; NULL when memory is short or n * size overflows. n
 * 0 gives a valid pointer. */
void *hl_alloc(struct hl_mem *mem, size_t n, size_t size) HL_MUST_CHECK;
/* Like realloc; new bytes are not zeroed; on failure NULL and the old block stays. */
void *hl_realloc(struct hl_mem *mem, void *data, size_t n, size_t size) HL_MUST_CHECK;
void hl_free(struct hl_mem *mem, void *data); /* data may be NULL */
char *hl_strdup(struct hl_mem *mem, const char *text) HL_MUST_CHECK;
char *hl_strndup(struct hl_mem *mem, const char *text, size_t n) HL_MUST_CHECK;

/* A growing byte string; always NUL-terminated once something was added. Zero-initialise with .mem
 * set. After a failed append `failed` stays set and further appends do nothing: check once at the
 * end. */
struct hl_buf {
    struct hl_mem *mem;
    char *data;
    size_t n, capacity;
    bool failed;
};
void hl_buf_add(struct hl_buf *buf, const void *bytes, size_t n);
void hl_buf_puts(struct hl_buf *buf, const char *text);
void hl_buf_printf(struct hl_buf *buf, const char *format, ...)
    HL_PRINTF(2, 3); /* no %f %e %g: use hl_buf_f64 */
void hl_buf_f64(struct hl_buf *buf,
                double value); /* shortest text that reads back equal, any locale */
void hl_buf_f32(struct hl_buf *buf, float value);
void hl_buf_json_string(struct hl_buf *buf, const char *utf8); /* quoted and escaped */
void hl_buf_free(struct hl_buf *buf);

/* Test allocator: counts live blocks and can fail the k-th allocation (1-based, 0 = never). */
struct hl_mem_probe {
    struct hl_mem mem;
    long n_taken, n_live, fail_at;
};
void hl_mem_probe_init(struct hl_mem_probe *probe, long fail_at);

/* Overflow-checked size arithmetic: false when the result does not fit. */
bool hl_size_mul(size_t a, size_t b, size_t *out);
bool hl_size_add(size_t a, size_t b, size_t *out);

#endif
