/* CRC-32C (Castagnoli), as in RFC 3720: the checksum of event files and of a pool's first page. */
#ifndef HALLEY_BASE_CRC32C_H
#define HALLEY_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

uint32_t hl_crc32c(const void *bytes, size_t n);

#endif
