/* A helper thread and a lock. Signals stay with the thread that started the helper. */
#ifndef HALLEY_OS_THREAD_H
#define HALLEY_OS_THREAD_H

#include <stdbool.h>

#include "halley/mem.h"
#include "halley/status.h"

struct hl_thread;
/* errors HL_E_MEMORY, HL_E_IO: the system gives no more threads */
enum hl_status hl_thread_start(struct hl_mem *mem, void (*work)(void *context), void *context,
                               struct hl_thread **out, struct hl_diag *diag) HL_MUST_CHECK;
void hl_thread_join(struct hl_thread *thread); /* waits for its end and frees it; NULL: nothing */

struct hl_mutex;
struct hl_mutex *hl_mutex_new(struct hl_mem *mem) HL_MUST_CHECK; /* NULL: memory is short */
void hl_mutex_free(struct hl_mutex *mutex);
void hl_mutex_lock(struct hl_mutex *mutex);
bool hl_mutex_try(struct hl_mutex *mutex) HL_MUST_CHECK;
void hl_mutex_unlock(struct hl_mutex *mutex);

#endif
