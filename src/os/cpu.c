/* Processors from sched_getaffinity, /sys and the control group's files.
 *
 * hwloc knows more, but its topology load takes 3.3 to 50 ms on a 2-core machine and grows with the
 * machine; this takes a tenth of a millisecond. Start-up matters, and two numbers are all we need.
 * Control groups: v2 cpu.max, v1 cpu.cfs_quota_us; a limit holds for every level up to the root, so
 * the least counts. */
#include "os/cpu.h"

#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "os/cgroup.h"

enum { WORD = 8 * sizeof(unsigned long), MOST_CPUS = 8192, TEXT = 4096 };

static bool has(const unsigned long *mask, size_t n_words, size_t cpu) {
    return cpu / WORD < n_words && (mask[cpu / WORD] >> (cpu % WORD) & 1);
}

/* A list such as "0-1,8": is an allowed processor below `cpu` in it? Then that one stands for the
 * core. */
static bool has_elder(const char *list, const unsigned long *allowed, size_t n_words, size_t cpu) {
    while (*list >= '0' && *list <= '9') {
        char *end;
        size_t first = strtoul(list, &end, 10),
               last = *end == '-' ? strtoul(end + 1, &end, 10) : first;
        for (size_t i = first; i <= last && i < cpu; i++)
            if (has(allowed, n_words, i)) return true;
        if (*end != ',') return false;
        list = end + 1;
    }
    return false;
}

static void count_cores(const char *root, const unsigned long *allowed, size_t n_words,
                        struct hl_cpu *out) {
    for (size_t cpu = 0; cpu < n_words * WORD; cpu++) {
        if (!has(allowed, n_words, cpu)) continue;
        char path[256], list[TEXT];
        (void)snprintf(path, sizeof path,
                       "%s/sys/devices/system/cpu/cpu%zu/topology/thread_siblings_list", root, cpu);
        out->n_allowed++;
        if (!hl_read_small(path, list, sizeof list) || !has_elder(list, allowed, n_words, cpu))
            out->n_cores++;
    }
}

/* ---- time limits of control groups ---- */

/* "150000 100000" or "max 100000" */
static double quota_v2(const char *folder) {
    char path[TEXT], text[128];
    long long quota, period;
    (void)snprintf(path, sizeof path, "%.*s/cpu.max", TEXT - 16, folder);
    if (!hl_read_small(path, text, sizeof text) || sscanf(text, "%lld %lld", &quota, &period) != 2)
        return 0;
    return quota > 0 && period > 0 ? (double)quota / (double)period : 0;
}

static double quota_v1(const char *folder) {
    char path[TEXT], text[128];
    (void)snprintf(path, sizeof path, "%.*s/cpu.cfs_quota_us", TEXT - 32, folder);
    if (!hl_read_small(path, text, sizeof text)) return 0;
    long long quota = strtoll(text, NULL, 10);
    (void)snprintf(path, sizeof path, "%.*s/cpu.cfs_period_us", TEXT - 32, folder);
    if (!hl_read_small(path, text, sizeof text)) return 0;
    long long period = strtoll(text, NULL, 10);
    return quota > 0 && period > 0 ? (double)quota / (double)period : 0;
}

/* ---- name ---- */

#if defined(__x86_64__)
static void read_name(const char *root, char *out, size_t capacity) {
    unsigned brand[12] = {0};
    (void)root;
    if ((unsigned)__get_cpuid_max(0x80000000u, NULL) < 0x80000004u) return; /* int for clang */
    for (unsigned i = 0; i < 3; i++)
        __get_cpuid(0x80000002u + i, &brand[4 * i], &brand[4 * i + 1], &brand[4 * i + 2],
                    &brand[4 * i + 3]);
    const char *text = (const char *)brand + strspn((const char *)brand, " ");
    if (*text)
        (void)snprintf(out, capacity, "%.*s",
                       (int)(sizeof brand - (size_t)(text - (const char *)brand)), text);
}
#else
static void read_name(const char *root, char *out, size_t capacity) {
    char path[256], text[TEXT];
    (void)snprintf(path, sizeof path, "%s/proc/cpuinfo", root);
    const char *at = hl_read_small(path, text, sizeof text) ? strstr(text, "model name") : NULL;
    if (at && (at = strchr(at, ':')))
        (void)snprintf(out, capacity, "%.*s", (int)strcspn(at + 2, "\n"), at + 2);
}
#endif

static void trim_right(char *text) {
    for (size_t n = strlen(text); n && text[n - 1] == ' ';) text[--n] = 0;
}

/* ---- all together ---- */

void hl_cpu_read_at(const char *root, const unsigned long *allowed, size_t n_words,
                    struct hl_cpu *out) {
    *out = (struct hl_cpu){.name = "unknown processor"};
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    out->n_online = online > 0 ? (int)online : 1;
    read_name(root, out->name, sizeof out->name);
    trim_right(out->name);
    count_cores(root, allowed, n_words, out);
    out->quota = hl_cgroup_least(root, "cpu", quota_v2, quota_v1);
    out->n_threads = out->n_cores;
    if (out->quota > 0 && out->n_threads > out->quota) out->n_threads = (int)out->quota;
    if (out->n_threads < 1) out->n_threads = 1;
}

void hl_cpu_read(struct hl_cpu *out) {
    unsigned long allowed[MOST_CPUS / WORD] = {0};
    if (sched_getaffinity(0, sizeof allowed, (cpu_set_t *)(void *)allowed)) allowed[0] = 1;
    hl_cpu_read_at("", allowed, MOST_CPUS / WORD, out);
}

void hl_cpu_share(struct hl_cpu *cpu, int n_ranks) {
    if (n_ranks < 2) return;
    cpu->n_sharing = n_ranks;
    cpu->n_threads = cpu->n_threads / n_ranks > 1 ? cpu->n_threads / n_ranks : 1;
}

static uint64_t mix(uint64_t hash, const void *bytes, size_t n) { /* FNV-1a */
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3u;
    return hash;
}

uint64_t hl_cpu_identity(void) {
    unsigned long allowed[MOST_CPUS / WORD] = {0};
    char boot[64] = "", group[TEXT] = "";
    (void)sched_getaffinity(0, sizeof allowed, (cpu_set_t *)(void *)allowed);
    (void)hl_read_small("/proc/sys/kernel/random/boot_id", boot, sizeof boot);
    if (hl_cgroup_least("", "cpu", quota_v2, quota_v1) > 0)
        (void)hl_read_small("/proc/self/cgroup", group, sizeof group);
    uint64_t hash = mix(0xcbf29ce484222325u, allowed, sizeof allowed);
    return mix(mix(hash, boot, strlen(boot)), group, strlen(group));
}

/* OMP_NUM_THREADS, when it is a number of threads; else 0. */
static int by_variable(void) {
    const char *variable = getenv("OMP_NUM_THREADS");
    long wanted = variable ? strtol(variable, NULL, 10) : 0;
    return wanted > 0 && wanted <= MOST_CPUS ? (int)wanted : 0;
}

bool hl_cpu_threads_asked(int64_t asked) { return asked > 0 || by_variable() > 0; }

int hl_cpu_threads(const struct hl_cpu *cpu, int64_t asked, char *why, size_t capacity) {
    if (asked > 0) {
        (void)snprintf(why, capacity, "asked for");
        return asked > MOST_CPUS ? MOST_CPUS : (int)asked;
    }
    int wanted = by_variable();
    if (wanted) {
        (void)snprintf(why, capacity, "OMP_NUM_THREADS");
        return wanted;
    }
    int n =
        snprintf(why, capacity, "%d physical core%s", cpu->n_cores, cpu->n_cores == 1 ? "" : "s");
    if (n > 0 && (size_t)n < capacity && cpu->n_allowed < cpu->n_online)
        n += snprintf(why + n, capacity - (size_t)n,
                      " in the affinity mask (%d of %d logical processors)", cpu->n_allowed,
                      cpu->n_online);
    if (n > 0 && (size_t)n < capacity && cpu->quota > 0 && cpu->quota < cpu->n_cores)
        n += snprintf(why + n, capacity - (size_t)n,
                      ", limited by the control group to the time of %d",
                      cpu->quota < 1 ? 1 : (int)cpu->quota);
    if (n > 0 && (size_t)n < capacity && cpu->n_sharing > 1)
        (void)snprintf(why + n, capacity - (size_t)n, ", shared by %d ranks", cpu->n_sharing);
    return cpu->n_threads;
}
