/* GPT-2's byte alphabet: 256 printable characters that stand for bytes in vocabulary files.
 *
 * Bytes that are printable in Latin-1 stand for themselves; the 68 others become U+0100, U+0101 ...
 * in byte order. Source: Radford et al. 2019, the byte-level encoding released with GPT-2. */
#ifndef HALLEY_TEXT_BYTE_ALPHABET_H
#define HALLEY_TEXT_BYTE_ALPHABET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HL_ALPHABET_END = 0x144 }; /* one past the last character */

struct hl_byte_alphabet {
    uint16_t character[256];
    int16_t byte[HL_ALPHABET_END]; /* -1: not in the alphabet */
};
void hl_byte_alphabet_init(struct hl_byte_alphabet *alphabet);

/* The character of one byte as UTF-8; returns its length, 1 or 2. */
size_t hl_byte_alphabet_put(const struct hl_byte_alphabet *alphabet, uint8_t byte, char out[2]);

/* Valid UTF-8 text to the bytes it stands for (out has room for n). false: some character is
 * outside the alphabet. */
bool hl_byte_alphabet_bytes(const struct hl_byte_alphabet *alphabet, const char *text, size_t n,
                            char *out, size_t *n_out);

#endif
