/* The same function on several threads at once, for work outside the kernels (those use OpenMP). */
#ifndef HALLEY_OS_PARALLEL_H
#define HALLEY_OS_PARALLEL_H

/* Calls work(context, i) for each i in [0, n), each on its own thread, and waits for all. i = 0
 * runs on the caller's. A thread that cannot be started costs speed, not correctness: its part then
 * runs on the caller's. n <= 256. */
void hl_parallel(int n, void (*work)(void *context, int i), void *context);

#endif
