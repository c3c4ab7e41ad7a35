/* Walks /proc/self/cgroup and the folders under /sys/fs/cgroup. In a container the path that the
 * kernel tells may not exist below the mount; the walk to the root then still ends at the mount
 * itself, which is the container's group. */
#include "os/cgroup.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { TEXT = 4096 };

bool hl_read_small(const char *path, char *out, size_t capacity) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    ssize_t n = read(fd, out, capacity - 1);
    (void)close(fd);
    if (n <= 0) return false;
    out[n] = 0;
    return true;
}

static void keep_least(double *least, double value) {
    if (value > 0 && (*least == 0 || value < *least)) *least = value;
}

/* mount/a/b, mount/a, mount */
static double least_upwards(const char *mount, const char *group, double (*limit)(const char *)) {
    char folder[TEXT];
    double least = 0;
    if ((size_t)snprintf(folder, sizeof folder, "%s%s", mount, group) >= sizeof folder) return 0;
    for (size_t n = strlen(mount);;) {
        keep_least(&least, limit(folder));
        char *slash = strrchr(folder, '/');
        if (!slash || (size_t)(slash - folder) < n) return least;
        *slash = 0;
    }
}

static bool names(const char *list, const char *controller) {
    size_t n = strlen(controller);
    for (;; list++) {
        if (!strncmp(list, controller, n) && (list[n] == ',' || !list[n])) return true;
        if (!(list = strchr(list, ','))) return false;
    }
}

double hl_cgroup_least(const char *root, const char *controller, double (*v2)(const char *),
                       double (*v1)(const char *)) {
    char text[TEXT], mount[TEXT];
    double least = 0;
    (void)snprintf(mount, sizeof mount, "%s/proc/self/cgroup", root);
    if (!hl_read_small(mount, text, sizeof text)) return 0;
    for (char *line = text, *next; line && *line;
         line = next) { /* "4:cpu,cpuacct:/group" or "0::/group" */
        if ((next = strchr(line, '\n'))) *next++ = 0;
        char *list = strchr(line, ':'), *group = list ? strchr(list + 1, ':') : NULL;
        if (!group) continue;
        *group++ = 0;
        list++;
        if (!*list) {
            (void)snprintf(mount, sizeof mount, "%s/sys/fs/cgroup", root);
            keep_least(&least, least_upwards(mount, group, v2));
        } else if (names(list, controller)) {
            (void)snprintf(mount, sizeof mount, "%s/sys/fs/cgroup/%s", root, list);
            keep_least(&least, least_upwards(mount, group, v1));
            (void)snprintf(mount, sizeof mount, "%s/sys/fs/cgroup/%s", root, controller);
            keep_least(&least, least_upwards(mount, group, v1));
        }
    }
    return least;
}
