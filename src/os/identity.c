/* /proc tells. See identity.h. */
#include "os/identity.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "os/cgroup.h"

/* When process pid began; 0: there is none, or it is a corpse that nobody has buried yet. */
static uint64_t birth_of(int64_t pid) {
    char path[64], text[1024];
    unsigned long long start = 0;
    (void)snprintf(path, sizeof path, "/proc/%lld/stat", (long long)pid);
    if (!hl_read_small(path, text, sizeof text)) return 0;
    char *rest = strrchr(text, ')'); /* the name in front may hold anything */
    if (!rest || rest[1] != ' ' || rest[2] == 'Z' || rest[2] == 'X') return 0;
    for (int field = 2; field < 22 && rest; field++) rest = strchr(rest + 1, ' ');
    if (rest) start = strtoull(rest, NULL, 10);
    return start;
}

static void read_boot(uint64_t out[2]) {
    char text[64];
    unsigned char hex[16] = {0};
    out[0] = out[1] = 0;
    if (!hl_read_small("/proc/sys/kernel/random/boot_id", text, sizeof text)) return;
    size_t n = 0;
    for (const char *c = text; *c && n < 32; c++) {
        int digit = *c >= '0' && *c <= '9' ? *c - '0' : *c >= 'a' && *c <= 'f' ? *c - 'a' + 10 : -1;
        if (digit < 0) continue;
        hex[n / 2] = (unsigned char)(hex[n / 2] << 4 | digit);
        n++;
    }
    if (n == 32) memcpy(out, hex, sizeof hex);
}

static uint64_t read_pid_space(void) {
    struct stat info;
    return stat("/proc/self/ns/pid", &info) ? 0 : (uint64_t)info.st_ino;
}

void hl_identity_own(struct hl_identity *out) {
    read_boot(out->boot);
    out->pid_space = read_pid_space();
    out->pid = getpid();
    out->birth = birth_of(out->pid);
}

bool hl_identity_same_kernel(const struct hl_identity *a, const struct hl_identity *b) {
    return (a->boot[0] || a->boot[1]) && a->boot[0] == b->boot[0] && a->boot[1] == b->boot[1];
}

enum hl_life hl_identity_life(const struct hl_identity *of) {
    struct hl_identity own;
    hl_identity_own(&own);
    if ((own.boot[0] || own.boot[1]) && !hl_identity_same_kernel(of, &own)) return HL_OUT_OF_SIGHT;
    if (of->pid_space != own.pid_space) return HL_OUT_OF_SIGHT;
    return birth_of(of->pid) && birth_of(of->pid) == of->birth ? HL_ALIVE : HL_GONE;
}

void hl_host_name(char *out, size_t capacity) {
    memset(out, 0, capacity);
    if (gethostname(out, capacity - 1)) (void)snprintf(out, capacity, "?");
}

bool hl_random_bytes(void *out, size_t n) {
    for (size_t done = 0; done < n;) {
        ssize_t got = getrandom((char *)out + done, n - done, 0);
        if (got < 0 && errno != EINTR) return false;
        if (got > 0) done += (size_t)got;
    }
    return true;
}
