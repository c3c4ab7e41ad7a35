#!/bin/bash
# What tools/deps.sh and tools/demo.sh say and do, with the system's package tools replaced by notes of how they were called.
set -u
source=$1
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failed=0
fail() { echo "FAILED: $*"; failed=1; }
packages=$(sed -n 's/^packages="\(.*\)"$/\1/p' "$source/tools/deps.sh")
[ "$(wc -w <<< "$packages")" -gt 5 ] || fail "no list of packages in tools/deps.sh"

stub() { printf '#!/bin/sh\n%s\n' "$2" > "bin/$1" && chmod +x "bin/$1"; } # NAME SCRIPT
# system USER: a PATH with the plain tools, that user, and every package installed
system() {
    rm -rf bin calls; mkdir bin; : > calls
    for tool in sh sed tr grep dirname; do ln -s "$(command -v $tool)" bin/; done
    stub id "echo $1"
    stub dpkg-query "cat '$folder/installed'"
    for package in $packages; do echo "ii  $package other-name"; done > installed
    ln -s "$(command -v cat)" bin/cat
    stub apt-get "echo apt-get \"\$@\" >> '$folder/calls'"
    stub apt-cache "exit 0"
}
missing() { grep -v " $1 " installed > rest; mv rest installed; }
# deps STATUS TEXT WORD...: what it says, and its exit status
deps() {
    local status=$1 text=$2; shift 2
    said=$(PATH="$folder/bin" sh "$source/tools/deps.sh" "$@" 2>&1); local got=$?
    [ $got = "$status" ] || fail "status $got, not $status: $said"
    [[ $said == *"$text"* ]] && { [ -n "$text" ] || [ -z "$said" ]; } || fail "no '$text' in: $said"
}

system 0; deps 0 ''
[ -s calls ] && fail "all is there, and yet: $(cat calls)"
system 0; deps 2 'usage: tools/deps.sh [test|coverage|fuzz|tsan]' nonsense
system 0; missing libyaml-dev; missing ninja-build
deps 0 'installing: ninja-build libyaml-dev'
grep -q '^apt-get install .* ninja-build libyaml-dev$' calls || fail "root installs: $(cat calls)"
system 0; sed -i 's/ libyaml-dev other-name/ libyaml-next libyaml-dev/' installed; deps 0 '' # another package provides it
system 1000; missing libyaml-dev; deps 1 'Please install as root:  apt-get install libyaml-dev'
[ -s calls ] && fail "without root and sudo: $(cat calls)"
system 1000; missing libyaml-dev; stub sudo "echo sudo >> '$folder/calls'; exec \"\$@\""
deps 0 'installing: libyaml-dev'
[ "$(head -n 1 calls)" = sudo ] && grep -q '^apt-get install' calls || fail "sudo: $(cat calls)"
# old package lists: fetched once, then tried again
system 0; missing libyaml-dev
stub apt-get "echo apt-get \"\$@\" >> '$folder/calls'; [ \"\$1\" = update ] || [ \$(grep -c install '$folder/calls') -gt 1 ]"
deps 0 'installing: libyaml-dev'
[ "$(cut -d' ' -f2 calls | tr '\n' ' ')" = 'install update install ' ] || fail "old lists: $(cat calls)"
# no oneDNN for this processor: OpenBLAS instead
system 0; missing libdnnl-dev; stub apt-cache 'exit 1'
stub apt-get "echo apt-get \"\$@\" >> '$folder/calls'; case \"\$*\" in *dnnl*) exit 1 ;; esac"
deps 0 'installing: libdnnl-dev'
tail -n 1 calls | grep -q '^apt-get install .*libopenblas-dev$' || fail "no oneDNN: $(cat calls)"
# what the suite may do without: asked for by name, and never a reason to fail
system 0; deps 0 'installing for the tests of the mpi wire: libopenmpi-dev openmpi-bin libmpich-dev mpich' test
grep -q '^apt-get install .* openmpi-bin libmpich-dev mpich$' calls || fail "optional: $(cat calls)"
system 0; stub apt-get 'case "$*" in *mpich*) exit 1 ;; esac'; deps 0 'not installed: mpich; the tests that need it say SKIP' test
[[ $said == *openmpi-bin\;* ]] && fail "openmpi-bin was to be had: $said"
system 1000; deps 0 '' test
system 0; export HALLEY_WITHOUT_MPI=1; deps 0 '' test; unset HALLEY_WITHOUT_MPI
[ -s calls ] && fail "without MPI: $(cat calls)"
# another system: what to install, by name
system 0; rm bin/dpkg-query
for tool in cc cmake ninja; do stub $tool ''; done
stub pkg-config '[ "$2" != jansson ]'
deps 1 'halley needs these, and this system has no apt. Please install:'
deps 1 'missing:  jansson'
deps 1 'for matrix products oneDNN 2.6 or newer, or OpenBLAS'
stub pkg-config ''; deps 0 ''

# ---- make demo, before anything runs ----
demo() {
    local text=$1 said; shift
    said=$(env "$@" sh "$source/tools/demo.sh" 2>&1); local got=$?
    [ $got = 1 ] && [[ $said == *"$text"* ]] || fail "demo: status $got, no '$text' in: $said"
}
demo "demo: $folder/none is not there; 'make build' makes it" HALLEY="$folder/none" DEMO_DIR="$folder/demo"
stub halley ''
demo "demo: the program 'bible' is missing; Debian and Ubuntu have it in the package bible-kjv." HALLEY="$folder/bin/halley" \
    DEMO_DIR="$folder/demo" PATH="$folder/bin"
[ -e demo ] && fail "demo left a folder"

[ $failed = 0 ] && echo ok
exit $failed
