/* The processors this process may use, and how many compute threads that means. */
#ifndef HALLEY_OS_CPU_H
#define HALLEY_OS_CPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hl_cpu {
    char name[96]; /* "Intel(R) Xeon(R) ..." or "unknown processor" */
    int n_online;  /* logical processors of the machine */
    int n_allowed; /* of them in the affinity mask */
    int n_cores;   /* physical cores among the allowed ones */
    double quota;  /* processors' worth of time that the control group allows; 0: no limit */
    int n_sharing; /* ranks that share them; 0: one */
    int n_threads; /* compute threads by default: the cores, but not more than the quota; at least 1
                    */
};

void hl_cpu_read(struct hl_cpu *out);

/* The same from files under another root (tests), with the given processors allowed. */
void hl_cpu_read_at(const char *root, const unsigned long *allowed, size_t n_words,
                    struct hl_cpu *out);

/* n ranks on this machine may use these processors: n_threads becomes one rank's share. */
void hl_cpu_share(struct hl_cpu *cpu, int n_ranks);
/* Equal for processes of one kernel that may use the same processors, and have the same quota; else
 * different. */
uint64_t hl_cpu_identity(void);

/* Compute threads for a run: `asked` when it is above 0, else OMP_NUM_THREADS, else n_threads.
 * why: a phrase for people, such as "4 physical cores, limited to 2 by the affinity mask". */
int hl_cpu_threads(const struct hl_cpu *cpu, int64_t asked, char *why, size_t capacity);
/* Did somebody say how many, `asked` or OMP_NUM_THREADS? */
bool hl_cpu_threads_asked(int64_t asked);

#endif
