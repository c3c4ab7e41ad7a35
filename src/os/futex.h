/* Sleeping on a 32-bit word that other threads, or processes that map the same page, change and
 * then wake. */
#ifndef HALLEY_OS_FUTEX_H
#define HALLEY_OS_FUTEX_H

#include <stdint.h>

/* Sleep while *word is `seen`, at most timeout_ns. May return early for no reason. */
void hl_futex_wait(const uint32_t *word, uint32_t seen, int64_t timeout_ns);
void hl_futex_wake(const uint32_t *word);
/* Sleep without a word to wait for. */
void hl_sleep_ns(int64_t ns);
/* Whoever else wants this processor goes first; returns at once when nobody does. */
void hl_let_others_run(void);

#endif
