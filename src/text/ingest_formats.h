/* The readers of text formats: one file in, documents out by hl_ingest_add. */
#ifndef HALLEY_TEXT_INGEST_FORMATS_H
#define HALLEY_TEXT_INGEST_FORMATS_H

#include "text/ingest.h"
#include "text/text_file.h"

/* The whole file is one document, in pieces cut where no token changes (hl_text_cut). */
enum hl_status hl_ingest_document(struct hl_ingest *ingest, struct hl_text_file *file, struct hl_diag *diag) HL_MUST_CHECK;
/* One document per line: the line itself without its LF or CR LF (blank lines are none), or for jsonl the string under
 * text_key of the object in it. */
enum hl_status hl_ingest_lines(struct hl_ingest *ingest, struct hl_text_file *file, bool jsonl, struct hl_diag *diag) HL_MUST_CHECK;

#endif
