/* Windows over text files, UTF-8 checks and places to cut. See text_file.h. */
#include "text/text_file.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "text/unicode.h"

enum { LONGEST_MAGIC = 23 };

static enum hl_status refuse_foreign(const struct hl_text_file *file, struct hl_diag *diag) {
    static const struct {
        const char *magic;
        size_t n;
        const char *what;
    } foreign[] = {
        {"\xFF\xFE", 2, "is UTF-16; convert it: iconv -f UTF-16 -t UTF-8"},
        {"\xFE\xFF", 2, "is UTF-16; convert it: iconv -f UTF-16 -t UTF-8"},
        {"\x1F\x8B", 2, "is compressed with gzip; unpack it: gunzip -k"},
        {"\x28\xB5\x2F\xFD", 4, "is compressed with zstd; unpack it: unzstd"},
        {"\xFD"
         "7zXZ",
         5, "is compressed with xz; unpack it: unxz -k"},
        {"PK\x03\x04", 4, "is a zip archive; unpack it: unzip"},
        {"version https://git-lfs", 23,
         "is a Git LFS pointer, not the data; fetch it: git lfs pull"},
        {"PAR1", 4, "is a Parquet file; export it as .jsonl or .txt"},
    };
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        if (file->n >= foreign[i].n && !memcmp(file->data, foreign[i].magic, foreign[i].n))
            return hl_fail_at(diag, HL_E_USER, file->path, 0, 0, "%s", foreign[i].what);
    return HL_OK;
}

/* Before it is opened: a pipe without a writer would wait for ever, a device may never end, and
 * data is read more than once. */
static enum hl_status refuse_kind(const char *path, struct hl_diag *diag) {
    struct stat info;
    if (stat(path, &info) || S_ISREG(info.st_mode)) return HL_OK;
    if (S_ISDIR(info.st_mode))
        return hl_fail_at(diag, HL_E_USER, path, 0, 0,
                          "is a folder; name its files, for example '%s/*.txt'", path);
    return hl_fail_at(
        diag, HL_E_USER, path, 0, 0,
        "is a pipe or a device; data is read more than once: write it to a file first");
}

static enum hl_status start(struct hl_text_file *file, struct hl_diag *diag) {
    enum hl_status status = hl_text_file_fill(file, LONGEST_MAGIC, diag);
    if (!status) status = refuse_foreign(file, diag);
    if (!status && file->n >= 3 && !memcmp(file->data, "\xEF\xBB\xBF", 3)) {
        file->data += 3;
        file->n -= 3;
    }
    return status;
}

enum hl_status hl_text_file_open(struct hl_text_file *file, struct hl_mem *mem, const char *path,
                                 struct hl_diag *diag) {
    *file = (struct hl_text_file){.mem = mem, .path = path, .line = 1, .column = 1};
    enum hl_status status = refuse_kind(path, diag);
    if (status) return status;
    file->file = fopen(path, "rbe");
    if (!file->file) return hl_fail_at(diag, HL_E_IO, path, 0, 0, "cannot open: %m");
    (void)setvbuf(file->file, NULL, _IONBF, 0); /* the window is the buffer */
    status = start(file, diag);
    if (status) hl_text_file_close(file);
    return status;
}

void hl_text_file_close(struct hl_text_file *file) {
    if (file->file) fclose(file->file);
    if (file->mem) hl_free(file->mem, file->buffer);
    *file = (struct hl_text_file){0};
}

/* Room for `want` bytes at the front of the buffer. */
static enum hl_status make_room(struct hl_text_file *file, size_t want, struct hl_diag *diag) {
    if (file->n && file->data != file->buffer) memmove(file->buffer, file->data, file->n);
    if (want > file->capacity) {
        char *grown = hl_realloc(file->mem, file->buffer, want, 1);
        if (!grown) {
            file->data = file->buffer;
            return hl_fail_memory(diag, want, "a window over a text file");
        }
        file->buffer = grown;
        file->capacity = want;
    }
    file->data = file->buffer;
    return HL_OK;
}

enum hl_status hl_text_file_fill(struct hl_text_file *file, size_t want, struct hl_diag *diag) {
    if (file->end || file->n >= want) return HL_OK;
    enum hl_status status = make_room(file, want, diag);
    if (status) return status;
    while (file->n < want && !file->end) {
        errno = 0;
        size_t got = fread(file->data + file->n, 1, want - file->n, file->file);
        file->n += got;
        file->n_read += got;
        if (got) continue;
        if (ferror(file->file))
            return hl_fail_at(diag, HL_E_IO, file->path, 0, 0, "cannot read: %m");
        file->end = true;
    }
    return HL_OK;
}

void hl_text_file_consume(struct hl_text_file *file, size_t k) {
    uint64_t lines = 0;
    for (size_t i = 0; i < k; i++) lines += file->data[i] == '\n';
    if (lines) {
        const char *last = memrchr(file->data, '\n', k);
        file->column = (uint64_t)(file->data + k - last);
        file->line += lines;
    } else file->column += k;
    file->data += k;
    file->n -= k;
}

/* ---- UTF-8 ---- */

size_t hl_utf8_invalid(const char *text, size_t n) {
    const unsigned char *s = (const unsigned char *)text;
    size_t k = 1; /* a lead byte and the continuation bytes that could follow it are one mistake */
    if (!n || s[0] < 0xC2 || s[0] > 0xF4) return n ? 1 : 0;
    size_t need = s[0] < 0xE0 ? 2 : s[0] < 0xF0 ? 3 : 4;
    unsigned low = s[0] == 0xE0 ? 0xA0 : s[0] == 0xF0 ? 0x90 : 0x80;
    unsigned high = s[0] == 0xED ? 0x9F : s[0] == 0xF4 ? 0x8F : 0xBF;
    while (k < need && k < n && s[k] >= low && s[k] <= high) {
        k++;
        low = 0x80;
        high = 0xBF;
    }
    return k;
}

/* ---- places to cut ---- */

/* White space by Unicode's White_Space property, of the character that starts at s. Bytes that are
 * no character count as space: they may be removed later, and nobody is cut beside them. */
static bool is_space(const unsigned char *s, size_t n) {
    if (s[0] < 0x80) return s[0] == ' ' || (s[0] >= 9 && s[0] <= 13);
    if (!hl_utf8_valid((const char *)s, n < 4 ? n : 4)) return true;
    if (s[0] == 0xC2) return s[1] == 0x85 || s[1] == 0xA0;
    if (s[0] == 0xE1) return s[1] == 0x9A && s[2] == 0x80;
    if (s[0] == 0xE2 && s[1] == 0x80)
        return s[2] <= 0x8A || s[2] == 0xA8 || s[2] == 0xA9 || s[2] == 0xAF;
    if (s[0] == 0xE2 && s[1] == 0x81) return s[2] == 0x9F;
    return s[0] == 0xE3 && s[1] == 0x80 && s[2] == 0x80;
}

static bool is_space_before(const unsigned char *text, size_t end) {
    size_t start = end - 1;
    while (start > 0 && end - start < 4 && (text[start] & 0xC0) == 0x80) start--;
    return is_space(text + start, end - start);
}

size_t hl_text_cut(const char *text, size_t n) {
    const unsigned char *s = (const unsigned char *)text;
    for (size_t i = n;
         i-- > 1;) { /* s[i] is the white space; something stands on both sides of it */
        if ((s[i] != '\n' && s[i] != ' ') || i + 1 >= n) continue;
        if (is_space(s + i + 1, n - i - 1) || is_space_before(s, i)) continue;
        if (s[i + 1] == '/') continue; /* the o200k pattern takes ".\n/" as one word */
        return s[i] == '\n' ? i + 1 : i;
    }
    return 0;
}
