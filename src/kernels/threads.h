/* The team of compute threads: OpenMP's, shared by our kernels and the product library. */
#ifndef HALLEY_KERNELS_THREADS_H
#define HALLEY_KERNELS_THREADS_H

void hl_threads_set(int n); /* for parallel regions the calling thread opens from now on */
int hl_threads_get(void);

#endif
