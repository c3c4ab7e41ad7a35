/* Text files become tokens in a sink: documents (whole files), lines, or JSONL rows. What cannot be used is skipped, said
 * with file:line:column (the first few) and counted; with `strict` it stops the run. Files are read in pieces, and pieces
 * are encoded by several threads; neither changes a token. */
#ifndef HALLEY_TEXT_INGEST_H
#define HALLEY_TEXT_INGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "halley/data.h"
#include "text/store.h"

struct hl_ingest_item { size_t start, n; bool ends_document; };

struct hl_ingest {
    struct hl_mem *mem;
    const struct hl_tokenizer *tokenizer;
    struct hl_token_sink *sink;
    struct hl_log *log;
    const char *text_key;
    int text_format;    /* enum hl_text_format; AUTO goes by the file's name */
    int n_threads;
    bool strict;
    bool any_bytes;     /* the byte tokenizer: invalid UTF-8 is kept as it is */
    size_t piece_bytes; /* a long document is encoded in pieces of about this size */
    size_t most_bytes;  /* the longest line, and the longest piece when there is nowhere to cut */
    void (*progress)(struct hl_ingest *ingest, uint64_t n_bytes); /* after each batch; NULL = silent */
    void *progress_context;

    uint64_t n_bytes;   /* read so far */
    uint64_t n_documents;
    uint64_t n_skipped; /* lines, or for a whole-file document bytes, that were left out */

    /* A batch that waits for encoding. */
    struct hl_buf text;
    struct hl_ingest_item *items;
    size_t n_items, item_capacity;
    struct hl_tokens *tokens_R; /* one per thread */
    size_t *item_end;           /* tokens of item i end here in its thread's list */
};

/* Sets the defaults; every pointer is borrowed. text_format is AUTO, piece_bytes 1 MiB, most_bytes 256 MiB. */
void hl_ingest_init(struct hl_ingest *ingest, struct hl_mem *mem, const struct hl_tokenizer *tokenizer,
                    struct hl_token_sink *sink, struct hl_log *log);
enum hl_status hl_ingest_file(struct hl_ingest *ingest, const char *path, struct hl_diag *diag) HL_MUST_CHECK;
void hl_ingest_free(struct hl_ingest *ingest);

/* The format that a file is read in: text_format, or for AUTO the one its name says. */
int hl_text_format_of(int text_format, const char *path);

/* ---- for ingest_*.c ---- */
enum hl_status hl_ingest_add(struct hl_ingest *ingest, const char *text, size_t n, bool ends_document,
                             struct hl_diag *diag) HL_MUST_CHECK;
struct hl_complaints { uint64_t n_said, n; }; /* of one file */
/* Something at file:line:column cannot be used: strict makes it an error, otherwise the first few are logged. */
enum hl_status hl_ingest_complain(struct hl_ingest *ingest, struct hl_complaints *complaints, const char *path,
                                  uint64_t line, uint64_t column, const char *what, struct hl_diag *diag) HL_MUST_CHECK;

#endif
