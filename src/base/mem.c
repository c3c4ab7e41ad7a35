/* Allocation through passed-in allocators. A block carries a 64-byte header with its size, so that
 * freeing needs none. */
#include "halley/mem.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "halley/text_number.h"

enum { HEADER = 64 };

struct header {
    size_t bytes;
}; /* whole block, header included */

bool hl_size_mul(size_t a, size_t b, size_t *out) { return !__builtin_mul_overflow(a, b, out); }
bool hl_size_add(size_t a, size_t b, size_t *out) { return !__builtin_add_overflow(a, b, out); }

static void *default_take(struct hl_mem *mem, size_t bytes) {
    (void)mem;
    size_t rounded = (bytes + HEADER - 1) / HEADER * HEADER;
    return rounded < bytes ? NULL : aligned_alloc(HEADER, rounded);
}

static void default_give(struct hl_mem *mem, void *data, size_t bytes) {
    (void)mem;
    (void)bytes;
    free(data);
}

struct hl_mem *hl_mem_default(void) {
    static struct hl_mem mem = {default_take, default_give, NULL, 0};
    return &mem;
}

static void *take_block(struct hl_mem *mem, size_t n, size_t size) {
    size_t bytes;
    if (!hl_size_mul(n, size, &bytes) || !hl_size_add(bytes, HEADER, &bytes)) return NULL;
    struct header *head = mem->take(mem, bytes);
    if (!head) return NULL;
    head->bytes = bytes;
    return (char *)head + HEADER;
}

void *hl_alloc(struct hl_mem *mem, size_t n, size_t size) {
    void *data = take_block(mem, n, size);
    bool zeroed = mem->zeroed_from && n * size >= mem->zeroed_from;
    if (data && !zeroed) memset(data, 0, n * size);
    return data;
}

void *hl_realloc(struct hl_mem *mem, void *data, size_t n, size_t size) {
    void *grown = take_block(mem, n, size);
    if (!grown || !data) return grown;
    size_t old = ((struct header *)((char *)data - HEADER))->bytes - HEADER;
    memcpy(grown, data, old < n * size ? old : n * size);
    hl_free(mem, data);
    return grown;
}

void hl_free(struct hl_mem *mem, void *data) {
    if (!data) return;
    struct header *head = (struct header *)((char *)data - HEADER);
    mem->give(mem, head, head->bytes);
}

char *hl_strndup(struct hl_mem *mem, const char *text, size_t n) {
    char *copy = take_block(mem, n + 1, 1);
    if (!copy) return NULL;
    memcpy(copy, text, n);
    copy[n] = 0;
    return copy;
}

char *hl_strdup(struct hl_mem *mem, const char *text) {
    return hl_strndup(mem, text, strlen(text));
}

/* ---- growable byte string ---- */

static bool buf_room(struct hl_buf *buf, size_t more) {
    size_t need;
    if (buf->failed) return false;
    if (!hl_size_add(buf->n, more, &need) || !hl_size_add(need, 1, &need))
        return !(buf->failed = true);
    if (need <= buf->capacity) return true;
    size_t capacity = buf->capacity ? buf->capacity : 128;
    while (capacity < need)
        if (!hl_size_mul(capacity, 2, &capacity)) return !(buf->failed = true);
    char *data = hl_realloc(buf->mem, buf->data, capacity, 1);
    if (!data) return !(buf->failed = true);
    buf->data = data;
    buf->capacity = capacity;
    return true;
}

void hl_buf_add(struct hl_buf *buf, const void *bytes, size_t n) {
    if (!buf_room(buf, n)) return;
    if (n) memcpy(buf->data + buf->n, bytes, n);
    buf->n += n;
    buf->data[buf->n] = 0;
}

void hl_buf_puts(struct hl_buf *buf, const char *text) { hl_buf_add(buf, text, strlen(text)); }

void hl_buf_printf(struct hl_buf *buf, const char *format, ...) {
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n < 0) buf->failed = true;
    else if (buf_room(buf, (size_t)n)) {
        (void)vsnprintf(buf->data + buf->n, (size_t)n + 1, format, again);
        buf->n += (size_t)n;
    }
    va_end(again);
}

void hl_buf_f64(struct hl_buf *buf, double value) {
    char text[40];
    hl_print_f64(text, sizeof text, value);
    hl_buf_puts(buf, text);
}

void hl_buf_f32(struct hl_buf *buf, float value) {
    char text[40];
    hl_print_f32(text, sizeof text, value);
    hl_buf_puts(buf, text);
}

void hl_buf_json_string(struct hl_buf *buf, const char *utf8) {
    hl_buf_puts(buf, "\"");
    for (const char *c = utf8; *c; c++) {
        switch (*c) {
        case '"': hl_buf_puts(buf, "\\\""); break;
        case '\\': hl_buf_puts(buf, "\\\\"); break;
        case '\n': hl_buf_puts(buf, "\\n"); break;
        case '\r': hl_buf_puts(buf, "\\r"); break;
        case '\t': hl_buf_puts(buf, "\\t"); break;
        default:
            if ((unsigned char)*c < 0x20)
                hl_buf_printf(buf, "\\u%04x", (unsigned)(unsigned char)*c);
            else hl_buf_add(buf, c, 1);
        }
    }
    hl_buf_puts(buf, "\"");
}

void hl_buf_free(struct hl_buf *buf) {
    hl_free(buf->mem, buf->data);
    buf->data = NULL;
    buf->n = buf->capacity = 0;
}

/* ---- probe ---- */

static void *probe_take(struct hl_mem *mem, size_t bytes) {
    struct hl_mem_probe *probe = mem->context;
    long k = __atomic_add_fetch(&probe->n_taken, 1, __ATOMIC_RELAXED);
    if (probe->fail_at && k == probe->fail_at) return NULL;
    void *data = default_take(mem, bytes);
    if (data) __atomic_add_fetch(&probe->n_live, 1, __ATOMIC_RELAXED);
    return data;
}

static void probe_give(struct hl_mem *mem, void *data, size_t bytes) {
    struct hl_mem_probe *probe = mem->context;
    __atomic_sub_fetch(&probe->n_live, 1, __ATOMIC_RELAXED);
    default_give(mem, data, bytes);
}

void hl_mem_probe_init(struct hl_mem_probe *probe, long fail_at) {
    *probe = (struct hl_mem_probe){{probe_take, probe_give, probe, 0}, 0, 0, fail_at};
}
