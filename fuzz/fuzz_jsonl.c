/* Text of any bytes in each format, in pieces of several sizes: whatever is handed out is valid
 * UTF-8 and within the input, and the size of the piece changes nothing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fuzz_target.h"
#include "text/text_reader.h"
#include "text/unicode.h"

static void read_all(const char *path, int format, size_t piece_bytes, struct hl_buf *out) {
    struct hl_text_reader reader;
    struct hl_text_piece piece;
    hl_text_reader_init(&reader, hl_mem_default(), NULL);
    reader.text_format = format;
    reader.piece_bytes = piece_bytes;
    if (!hl_text_reader_open(&reader, path, NULL))
        while (!hl_text_reader_next(&reader, &piece, NULL)) {
            if (hl_utf8_valid(piece.text, piece.n) != piece.n) abort();
            hl_buf_add(out, piece.text, piece.n);
            if (piece.ends_document) hl_buf_add(out, "\xFF", 1);
        }
    hl_text_reader_close(&reader);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    char path[] = "/tmp/halley-fuzz-XXXXXX";
    int file = mkstemp(path);
    if (file < 0) return 0;
    bool written = write(file, data, n) == (ssize_t)n;
    close(file);
    for (int format = HL_TEXT_AUTO; written && format <= HL_TEXT_JSONL; format++) {
        struct hl_buf whole = {.mem = hl_mem_default()}, pieces = {.mem = hl_mem_default()};
        read_all(path, format, 1 << 14, &whole);
        read_all(path, format, 7, &pieces);
        if (whole.n != pieces.n || (whole.n && memcmp(whole.data, pieces.data, whole.n))) abort();
        hl_buf_free(&whole);
        hl_buf_free(&pieces);
    }
    unlink(path);
    return 0;
}
