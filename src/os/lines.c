/* CLFLUSH, CLFLUSHOPT, non-temporal stores and fences. See lines.h.
 * source: Intel SDM vol. 2, CLFLUSH and CLFLUSHOPT: the latter is ordered only by fences and by
 * older stores to its own line. */
#include "os/lines.h"

#include <stdbool.h>
#include <stdint.h>

#if defined __x86_64__

#include <cpuid.h>
#include <immintrin.h>

enum hl_flush hl_flush_kind(void) {
    unsigned a, b, c, d;
    bool opt = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & (1u << 23));
    return opt ? HL_FLUSH_ANY_ORDER : HL_FLUSH_IN_ORDER;
}

__attribute__((target("clflushopt"))) static void flush_opt(const char *at, const char *end) {
    for (; at < end; at += HL_LINE_BYTES) _mm_clflushopt((void *)(uintptr_t)at);
}

void hl_lines_flush(enum hl_flush kind, const void *at, size_t n) {
    const char *first = (const char *)((uintptr_t)at & ~(uintptr_t)(HL_LINE_BYTES - 1));
    const char *end = (const char *)at + n;
    if (kind == HL_FLUSH_ANY_ORDER) flush_opt(first, end);
    else
        for (; first < end; first += HL_LINE_BYTES) _mm_clflush(first);
}

void hl_line_flush(const void *at) { _mm_clflush(at); }

void hl_lines_stream(void *to, const void *from, size_t n) {
    __m128i *t = to;
    const __m128i *f = from;
    for (size_t i = 0; i < n / sizeof *t; i += 4) {
        __m128i a = _mm_loadu_si128(f + i), b = _mm_loadu_si128(f + i + 1);
        __m128i c = _mm_loadu_si128(f + i + 2), d = _mm_loadu_si128(f + i + 3);
        _mm_stream_si128(t + i, a);
        _mm_stream_si128(t + i + 1, b);
        _mm_stream_si128(t + i + 2, c);
        _mm_stream_si128(t + i + 3, d);
    }
}

void hl_fence_stores(void) { _mm_sfence(); }
void hl_fence_loads(void) { _mm_lfence(); }
void hl_fence_all(void) { _mm_mfence(); }

#else

#include <string.h>

enum hl_flush hl_flush_kind(void) { return HL_FLUSH_NONE; }
void hl_lines_flush(enum hl_flush kind, const void *at, size_t n) { (void)kind, (void)at, (void)n; }
void hl_line_flush(const void *at) { (void)at; }
void hl_lines_stream(void *to, const void *from, size_t n) { memcpy(to, from, n); }
void hl_fence_stores(void) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
void hl_fence_loads(void) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
void hl_fence_all(void) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

#endif
