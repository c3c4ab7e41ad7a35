/* Numbers as text, the same under any locale. */
#ifndef HALLEY_TEXT_NUMBER_H
#define HALLEY_TEXT_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Shortest decimal text that reads back to the same bits; NaN and infinities become "NaN",
 * "Infinity", "-Infinity". */
void hl_print_f64(char *out, size_t capacity, double value);
void hl_print_f32(char *out, size_t capacity, float value);
/* Fixed decimals, for people: hl_print_fixed(out, n, 3.14159, 2) gives "3.14". */
void hl_print_fixed(char *out, size_t capacity, double value, int decimals);
/* The whole text must be one number. Accepts 1e-3, 1_000_000 is refused, hex is refused. */
bool hl_parse_f64(const char *text, double *out);
bool hl_parse_i64(const char *text, int64_t *out);
/* 1.5 GiB, 312 MiB, 12 KiB, 7 B: for people. */
void hl_print_bytes(char *out, size_t capacity, uint64_t bytes);

#endif
