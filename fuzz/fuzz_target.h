/* What every fuzz target defines, in libFuzzer's words. */
#ifndef HALLEY_FUZZ_TARGET_H
#define HALLEY_FUZZ_TARGET_H

#include <stddef.h>
#include <stdint.h>

/* Must return 0, leak nothing and never fail, whatever the bytes are. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#endif
