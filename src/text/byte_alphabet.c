/* GPT-2's byte alphabet. See byte_alphabet.h. */
#include "text/byte_alphabet.h"

#include "text/unicode.h"

static bool stands_for_itself(int byte) {
    return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

void hl_byte_alphabet_init(struct hl_byte_alphabet *alphabet) {
    uint16_t next = 0x100;
    for (int c = 0; c < HL_ALPHABET_END; c++) alphabet->byte[c] = -1;
    for (int byte = 0; byte < 256; byte++) {
        uint16_t character = stands_for_itself(byte) ? (uint16_t)byte : next++;
        alphabet->character[byte] = character;
        alphabet->byte[character] = (int16_t)byte;
    }
}

size_t hl_byte_alphabet_put(const struct hl_byte_alphabet *alphabet, uint8_t byte, char out[2]) {
    uint16_t character = alphabet->character[byte];
    if (character < 0x80) {
        out[0] = (char)character;
        return 1;
    }
    out[0] = (char)(0xC0 | character >> 6);
    out[1] = (char)(0x80 | (character & 0x3F));
    return 2;
}

bool hl_byte_alphabet_bytes(const struct hl_byte_alphabet *alphabet, const char *text, size_t n,
                            char *out, size_t *n_out) {
    size_t at = 0, used = 0;
    while (at < n) {
        uint32_t character;
        at += hl_utf8_next(text + at, n - at, &character);
        if (character >= HL_ALPHABET_END || alphabet->byte[character] < 0) return false;
        out[used++] = (char)alphabet->byte[character];
    }
    *n_out = used;
    return true;
}
