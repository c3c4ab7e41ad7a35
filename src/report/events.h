/* Event files as TensorBoard reads them: TFRecord frames around protobuf Event messages, encoded by
 * hand. */
#ifndef HALLEY_REPORT_EVENTS_H
#define HALLEY_REPORT_EVENTS_H

#include <stdint.h>

#include "halley/mem.h"

/* Each adds one framed Event to out. wall: seconds since 1970. */
void hl_event_version(struct hl_buf *out, double wall); /* must open a file */
void hl_event_restart(struct hl_buf *out, double wall,
                      int64_t step); /* readers forget what they have from `step` on */
void hl_event_scalar(struct hl_buf *out, double wall, int64_t step, const char *tag, double value);
void hl_event_text(struct hl_buf *out, double wall, int64_t step, const char *tag, const char *utf8,
                   size_t n);

#endif
