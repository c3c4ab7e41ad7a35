/* Bit by bit: a few kilobytes now and then need no table. */
#include "base/crc32c.h"

static uint32_t crc_step(uint32_t crc, unsigned char byte) {
    crc ^= byte;
    for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ (0x82F63B78u & -(crc & 1));
    return crc;
}

uint32_t hl_crc32c(const void *bytes, size_t n) {
    const unsigned char *byte = bytes;
    uint32_t crc = ~0u;
    for (size_t i = 0; i < n; i++) crc = crc_step(crc, byte[i]);
    return ~crc;
}
