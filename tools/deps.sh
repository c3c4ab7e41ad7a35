#!/bin/sh
# Installs what halley is built with: nothing when all is there, apt on Debian and Ubuntu, otherwise it says what is missing.
# usage: tools/deps.sh [test|coverage|fuzz|tsan]
set -eu

packages="gcc libc6-dev cmake ninja-build pkg-config libdnnl-dev libyaml-dev libjansson-dev libpcre2-dev libxxhash-dev libzmq3-dev libcmocka-dev bible-kjv"
# What the suite uses when it is there: without it the tests of the mpi wire say SKIP. HALLEY_WITHOUT_MPI=1 leaves it out.
optional=
case "${1:-}" in
"") ;;
test | coverage) [ -n "${HALLEY_WITHOUT_MPI:-}" ] || optional="libopenmpi-dev openmpi-bin libmpich-dev mpich" ;;
fuzz) packages="$packages clang libomp-dev" ;;
tsan) packages="$packages clang libomp-dev" ;;
*) echo "usage: tools/deps.sh [test|coverage|fuzz|tsan]" >&2; exit 2 ;;
esac

if ! command -v dpkg-query >/dev/null 2>&1; then
    # Another system: the build says what it misses; here is what to look for.
    for tool in cc cmake ninja pkg-config; do
        command -v $tool >/dev/null 2>&1 || missing="${missing:-} $tool"
    done
    for library in yaml-0.1 jansson libpcre2-8 libxxhash libzmq cmocka; do
        pkg-config --exists $library 2>/dev/null || missing="${missing:-} $library"
    done
    [ -z "${missing:-}" ] && exit 0
    echo "halley needs these, and this system has no apt. Please install:" >&2
    echo "  missing: $missing" >&2
    echo "  all: a C compiler with OpenMP, cmake 3.20, ninja, pkg-config, libyaml, jansson, pcre2, xxhash, zeromq, cmocka," >&2
    echo "       and for matrix products oneDNN 2.6 or newer, or OpenBLAS" >&2
    exit 1
fi

# Any provider counts: pkgconf provides pkg-config, another libc6-dev may too.
installed=$(dpkg-query -W -f='${db:Status-Abbrev} ${Package} ${Provides}\n' | sed -n 's/^ii  *//p' | tr -s ', ' '\n\n')
missing_of() {
    for package in "$@"; do
        printf '%s\n' "$installed" | grep -qx "$package" || printf ' %s' "$package"
    done
}
missing=$(missing_of $packages)
wanted=$(missing_of $optional)
[ -z "$missing$wanted" ] && exit 0

sudo=
if [ "$(id -u)" != 0 ]; then
    if command -v sudo >/dev/null 2>&1; then
        sudo=sudo
    elif [ -n "$missing" ]; then
        echo "Please install as root:  apt-get install$missing" >&2
        exit 1
    else
        exit 0
    fi
fi
export DEBIAN_FRONTEND=noninteractive
install="apt-get install -y -q --no-install-recommends"
# The package lists may be old or absent: try, fetch them, try again.
if [ -n "$missing" ]; then
    echo "installing:$missing"
    $sudo $install $missing </dev/null >/dev/null 2>&1 || {
        $sudo apt-get update -q </dev/null
        # oneDNN is not built for every processor; OpenBLAS then does the products.
        case " $missing " in *" libdnnl-dev "*)
            apt-cache show libdnnl-dev >/dev/null 2>&1 || missing=$(echo "$missing" | sed 's/libdnnl-dev/libopenblas-dev/') ;;
        esac
        $sudo $install $missing </dev/null
    }
fi
# Open MPI and MPICH live side by side; either may be absent.
if [ -n "$wanted" ]; then
    echo "installing for the tests of the mpi wire:$wanted"
    $sudo $install $wanted </dev/null >/dev/null 2>&1 || {
        $sudo apt-get update -q </dev/null >/dev/null 2>&1 || true
        for package in $wanted; do
            $sudo $install "$package" </dev/null >/dev/null 2>&1 || echo "not installed: $package; the tests that need it say SKIP"
        done
    }
fi
