#!/bin/bash
# Install into a temporary prefix; build each example against it through pkg-config, shared and static; run it.
set -eu
build=$1 source=$2 cmake=$3
prefix=$(mktemp -d)
trap 'rm -rf "$prefix"' EXIT

DESTDIR='' "$cmake" --install "$build" --prefix "$prefix" >"$prefix/log" 2>&1 || { cat "$prefix/log"; exit 1; }
pc=$(find "$prefix" -name halley.pc)
for file in bin/halley share/man/man1/halley.1 include/halley/halley.h; do
    [ -e "$prefix/$file" ] || { echo "FAIL: $file was not installed"; exit 1; }
done
PKG_CONFIG_PATH=$(dirname "$pc") && export PKG_CONFIG_PATH
version=$(pkg-config --modversion halley)
[ "$("$prefix/bin/halley" --version)" = "halley $version" ] || { echo "FAIL: program and halley.pc differ in version"; exit 1; }
libdir=$(cd "$(pkg-config --variable=libdir halley)" && pwd)
case $libdir in "$prefix"/*) ;; *) echo "FAIL: halley.pc points to $libdir"; exit 1 ;; esac
for module in "$build"/modules/*.so; do
    [ ! -e "$module" ] || [ -e "$libdir/halley/$(basename "$module")" ] || { echo "FAIL: $module was not installed"; exit 1; }
done

cd "$prefix"
for example in "$source"/examples/*.c; do
    name=$(basename "$example" .c)
    # Flags stand unquoted: they are several words.
    cc -std=gnu17 -Wall -Wextra -Werror "$example" -o "$name" $(pkg-config --cflags --libs halley)
    LD_LIBRARY_PATH=$libdir "./$name" >"$name.out" || { cat "$name.out"; echo "FAIL: $name"; exit 1; }
    cc -std=gnu17 "$example" -o "$name-static" $(pkg-config --cflags halley) "$libdir/libhalley.a" $(pkg-config --static --libs halley)
    "./$name-static" >"$name-static.out" || { cat "$name-static.out"; echo "FAIL: $name, static"; exit 1; }
    cmp "$name.out" "$name-static.out"
    tail -1 "$name.out"
done
