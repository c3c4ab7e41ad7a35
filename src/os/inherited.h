/* A little memory that this process and its children see. It has no name: nothing is left behind
 * when the last of them ends. */
#ifndef HALLEY_OS_INHERITED_H
#define HALLEY_OS_INHERITED_H

#include <stddef.h>

#include "halley/status.h"

struct hl_inherited {
    void *data; /* zeroed at first; NULL: none */
    size_t bytes;
    int fd; /* a child that keeps it open maps the same memory with hl_inherited_open */
};
enum hl_status hl_inherited_new(size_t bytes, struct hl_inherited *out,
                                struct hl_diag *diag) HL_MUST_CHECK;
/* errors HL_E_FORMAT: the descriptor is no such memory, or smaller. It is closed with the memory.
 */
enum hl_status hl_inherited_open(int fd, size_t bytes, struct hl_inherited *out,
                                 struct hl_diag *diag) HL_MUST_CHECK;
void hl_inherited_close(struct hl_inherited *shared); /* a zeroed one may be closed */

#endif
