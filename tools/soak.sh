#!/bin/bash
# Runs every test that knows a longer form of itself (HALLEY_SOAK=1), one after the other, without a time limit.
# usage: tools/soak.sh BUILD_DIR [NAME ...]     NAME: test_pool_shadow, cli_launch_failures ...; all when none is given
set -u
cd "$(dirname "$0")/.." || exit 2
build=$(realpath "$1"); shift
names=$*
[ -n "$names" ] || names=$(
    grep -rlw HALLEY_SOAK tests --include='test_*.c' | sed 's|.*/||; s|\.c$||' | sort
    grep -lw HALLEY_SOAK tests/cli/*.sh | sed 's|.*/|cli_|; s|\.sh$||'
)
# test_NAME is a program, cli_NAME a script that gets the program to test
run() { case $1 in cli_*) bash "tests/cli/${1#cli_}.sh" "$build/halley" ;; *) "$build/tests/$1" ;; esac; }
export HALLEY_SOAK=1 OMP_WAIT_POLICY=passive HALLEY_TEST_DATA=$PWD/tests/data
bad=
for name in $names; do
    start=$SECONDS
    run "$name" >"$build/soak-$name.log" 2>&1; status=$?
    echo "$name: exit $status after $((SECONDS - start)) s"
    [ $status = 0 ] || [ $status = 77 ] || { bad="$bad $name"; tail -20 "$build/soak-$name.log"; }
done
[ -z "$bad" ] || { echo "failed:$bad"; exit 1; }
