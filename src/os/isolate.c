/* See isolate.h. */
#include "os/isolate.h"

#include <errno.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

enum hl_status hl_isolate_network(struct hl_diag *diag) {
    static const char names[] = "/run/netns";
    if (geteuid() != 0) return hl_fail(diag, HL_E_USER, "network namespaces need root");
    if (unshare(CLONE_NEWNET | CLONE_NEWNS))
        return hl_fail(diag, HL_E_UNSUPPORTED,
                       "network namespaces: this machine does not let root make them: %m");
    if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL))
        return hl_fail(diag, HL_E_UNSUPPORTED, "mounts of this process's own: %m");
    if (mkdir(names, 0755) && errno != EEXIST)
        return hl_fail(diag, HL_E_UNSUPPORTED, "%s cannot be made: %m", names);
    if (mount("none", names, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755"))
        return hl_fail(diag, HL_E_UNSUPPORTED, "%s of this process's own: %m", names);
    return HL_OK;
}
