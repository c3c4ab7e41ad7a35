#!/bin/sh
# Installs what halley is built with: nothing when all is there, apt on Debian and Ubuntu, otherwise it says what is missing.
# usage: tools/deps.sh [coverage|fuzz|tsan]
set -eu

packages="gcc libc6-dev cmake ninja-build pkg-config libdnnl-dev libyaml-dev libjansson-dev libpcre2-dev libxxhash-dev libcmocka-dev bible-kjv"
case "${1:-}" in
"") ;;
coverage) ;; # gcov comes with gcc
fuzz) packages="$packages clang libomp-dev" ;;
tsan) packages="$packages clang libomp-dev" ;;
*) echo "usage: tools/deps.sh [coverage|fuzz|tsan]" >&2; exit 2 ;;
esac

if ! command -v dpkg-query >/dev/null 2>&1; then
    # Another system: the build says what it misses; here is what to look for.
    for tool in cc cmake ninja pkg-config; do
        command -v $tool >/dev/null 2>&1 || missing="${missing:-} $tool"
    done
    for library in yaml-0.1 jansson libpcre2-8 libxxhash cmocka; do
        pkg-config --exists $library 2>/dev/null || missing="${missing:-} $library"
    done
    [ -z "${missing:-}" ] && exit 0
    echo "halley needs these, and this system has no apt. Please install:" >&2
    echo "  missing: $missing" >&2
    echo "  all: a C compiler with OpenMP, cmake 3.20, ninja, pkg-config, libyaml, jansson, pcre2, xxhash, cmocka," >&2
    echo "       and for matrix products oneDNN 2.6 or newer, or OpenBLAS" >&2
    exit 1
fi

# Any provider counts: pkgconf provides pkg-config, another libc6-dev may too.
missing=
installed=$(dpkg-query -W -f='${db:Status-Abbrev} ${Package} ${Provides}\n' | sed -n 's/^ii  *//p' | tr -s ', ' '\n\n')
for package in $packages; do
    printf '%s\n' "$installed" | grep -qx "$package" || missing="$missing $package"
done
[ -z "$missing" ] && exit 0

sudo=
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null 2>&1 || { echo "Please install as root:  apt-get install$missing" >&2; exit 1; }
    sudo=sudo
fi
echo "installing:$missing"
export DEBIAN_FRONTEND=noninteractive
install="apt-get install -y -q --no-install-recommends"
# The package lists may be old or absent: try, fetch them, try again.
$sudo $install $missing </dev/null >/dev/null 2>&1 || {
    $sudo apt-get update -q </dev/null
    # oneDNN is not built for every processor; OpenBLAS then does the products.
    case " $missing " in *" libdnnl-dev "*)
        apt-cache show libdnnl-dev >/dev/null 2>&1 || missing=$(echo "$missing" | sed 's/libdnnl-dev/libopenblas-dev/') ;;
    esac
    $sudo $install $missing </dev/null
}
