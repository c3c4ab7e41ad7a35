/* See slurm.h. Formats: srun(1), SLURM_TASKS_PER_NODE "2(x3),1" and SLURM_NODELIST
 * "node[01-04,07],other". */
#include "cluster/slurm.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *first_of(const char *one, const char *other) {
    const char *text = getenv(one);
    return text && *text ? text : getenv(other);
}

/* Entry `node` of "2(x3),1": 2, 2, 2, 1. */
static int entry(const char *text, long node) {
    while (*text >= '0' && *text <= '9') {
        char *end;
        long tasks = strtol(text, &end, 10), times = 1;
        if (!strncmp(end, "(x", 2)) {
            times = strtol(end + 2, &end, 10);
            if (*end == ')') end++;
        }
        if (node < times) return tasks > 0 && tasks < 1 << 20 ? (int)tasks : 0;
        node -= times;
        text = *end == ',' ? end + 1 : "";
    }
    return 0;
}

int hl_slurm_tasks_here(void) {
    const char *tasks = first_of("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"),
               *node = getenv("SLURM_NODEID");
    return tasks && node ? entry(tasks, strtol(node, NULL, 10)) : 0;
}

/* The first name of a list: "node[01-04,07],x" is node01. */
static bool first_node(const char *list, char *out, size_t capacity) {
    size_t prefix = strcspn(list, ",[");
    int n = snprintf(out, capacity, "%.*s", (int)prefix, list);
    if (list[prefix] == '[' && n > 0 && (size_t)n < capacity) {
        const char *number = list + prefix + 1;
        n += snprintf(out + n, capacity - (size_t)n, "%.*s", (int)strcspn(number, "-,]"), number);
    }
    return n > 0 && (size_t)n < capacity;
}

/* Jobs that share a node must not meet: ports 20000 to 31999 by job and step. */
static int port_of(const char *job, const char *step) {
    unsigned long sum = strtoul(job, NULL, 10) * 7 + (step ? strtoul(step, NULL, 10) : 0);
    return 20000 + (int)(sum % 12000);
}

enum hl_status hl_slurm_address(char *out, size_t capacity) {
    const char *list = first_of("SLURM_STEP_NODELIST", "SLURM_NODELIST"),
               *job = first_of("SLURM_JOB_ID", "SLURM_JOBID");
    char node[200];
    if (!list || !job || !first_node(list, node, sizeof node)) return HL_END;
    int n = snprintf(out, capacity, "%s:%d", node, port_of(job, getenv("SLURM_STEP_ID")));
    return n > 0 && (size_t)n < capacity ? HL_OK : HL_END;
}
