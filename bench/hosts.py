"""Emulated hosts: network namespaces h0, h1, ... on one bridge, every link shaped at both ends, each with its own host name.

They live in a world of their own (`within`): network, mounts, processes and /dev/shm are private to it, and the kernel
takes all of it away when its first process ends, however that happens. Root is needed, and util-linux and iproute2."""
import os
import shutil
import subprocess
import sys

from common import Failed, Impossible

INSIDE = "HALLEY_BENCH_INSIDE"
NETWORK = "10.77.0"


def inside():
    return os.environ.get(INSIDE) == "1"


WORLD = ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "--mount", "--propagation", "private", "--pid", "--fork",
         "--kill-child", "--mount-proc"]


def check():
    """Impossible says why there can be no hosts here."""
    if os.geteuid() != 0:
        raise Impossible("network namespaces need root: run it with sudo")
    for tool in ("unshare", "setpriv", "ip", "tc"):
        if not shutil.which(tool):
            raise Impossible(f"{tool} is missing: apt install util-linux iproute2")
    os.makedirs("/run/netns", exist_ok=True)
    if subprocess.call([*WORLD, "true"], stderr=subprocess.DEVNULL) != 0:
        raise Impossible("this machine does not let root make namespaces (a container without CAP_SYS_ADMIN?)")


def within(words):
    """Run a program in a world of its own; its status."""
    return subprocess.call([*WORLD, *words], env=dict(os.environ, **{INSIDE: "1"}))


def run(*words):
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise Failed(f"{' '.join(words)}: {done.stderr.strip()}")


class Hosts:
    """n hosts whose links carry `rate` (as tc writes it; none: as they are) each way. Only inside."""

    def __init__(self, n, rate):
        self.n, self.names = n, [f"h{i}" for i in range(n)]
        for place in ("/run/netns", "/dev/shm"):
            run("mount", "-t", "tmpfs", "-o", "mode=1777", "none", place)
        os.makedirs("/dev/shm/tmp")
        os.environ["TMPDIR"] = "/dev/shm/tmp"
        self.name_them()
        run("ip", "link", "set", "lo", "up")
        run("ip", "link", "add", "br0", "type", "bridge")
        run("ip", "addr", "add", f"{NETWORK}.254/24", "dev", "br0")
        run("ip", "link", "set", "br0", "up")
        for i in range(n):
            self.join(i, rate)

    def name_them(self):
        with open("/dev/shm/tmp/hosts", "w") as file:
            file.write("127.0.0.1 localhost\n" + "".join(f"{self.address(i)} {name}\n" for i, name in enumerate(self.names)))
        run("mount", "--bind", "/dev/shm/tmp/hosts", "/etc/hosts")

    def join(self, i, rate):
        name, shape = self.names[i], ["root", "tbf", "rate", rate, "burst", "512k", "latency", "20ms"]
        run("ip", "netns", "add", name)
        run("ip", "link", "add", f"to-{name}", "type", "veth", "peer", "name", "eth0", "netns", name)
        run("ip", "link", "set", f"to-{name}", "master", "br0", "up")
        run("ip", "-n", name, "addr", "add", f"{self.address(i)}/24", "dev", "eth0")
        run("ip", "-n", name, "link", "set", "eth0", "up")
        run("ip", "-n", name, "link", "set", "lo", "up")
        if rate == "none":
            return
        run("tc", "qdisc", "add", "dev", f"to-{name}", *shape)
        run("tc", "-n", name, "qdisc", "add", "dev", "eth0", *shape)

    def address(self, i):
        return f"{NETWORK}.{i + 1}"

    def on(self, i, *words):
        """The command that runs these words on host i."""
        return agent(self.names[i], *words)


def agent(name, *words):
    return ["ip", "netns", "exec", name, "unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', name, *words]


if __name__ == "__main__":
    # As mpirun's rsh agent: hosts.py NAME WORD ...; the words are for a shell, as ssh gives them to one.
    command = agent(sys.argv[1], "sh", "-c", " ".join(sys.argv[2:]))
    os.execvp(command[0], command)
