#!/bin/bash
# The script that checks the arrows finds each kind of wrong one.
set -eu
check=$1
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT

mkdir -p "$tree"/{src/{base,os,kernels,wires,strategies,model},cmd}
: >"$tree/cmd/main.c"

expect() { # file, line of C, sentence
    printf '%s\n' "$2" >"$tree/$1"
    if out=$("$check" "$tree"); then echo "FAIL: not found: $1: $2"; exit 1; fi
    [ "$out" = "$1:1: $3" ] || { echo "FAIL: said '$out' instead of '$1:1: $3'"; exit 1; }
    rm "$tree/$1"
}

"$check" "$tree"
expect src/base/a.c '#include "os/clock.h"' 'base must not include os/clock.h'
expect src/kernels/a.c '#include "wires/wire.h"' 'kernels must not include wires/wire.h'
expect src/wires/a.c '#include "halley/kernels.h"' 'wires must not include halley/kernels.h'
expect src/strategies/a.c '  #  include "halley/model.h"' 'strategies must not include halley/model.h'
expect src/strategies/a.h '#include "halley/train.h"' 'strategies must not include halley/train.h'
expect src/model/a.c '#include <pthread.h>' 'pthread.h belongs to ^src/os/'
expect cmd/a.c '#include <sys/mman.h>' 'sys/mman.h belongs to ^src/os/'
expect src/base/option.c '#include <yaml.h>' 'yaml.h belongs to ^(src/base/option_yaml|src/report/rows|cmd/version)[.]c$'
printf '#include <pthread.h>\n#include "halley/status.h"\n' >"$tree/src/os/a.c"
"$check" "$tree"
