#!/bin/bash
# The shared library exports hl_* and nothing else.
set -eu
names=$(nm -D --defined-only "$1" | awk '{print $3}' | sed 's/@.*//')
[ "$(grep -c '^hl_' <<<"$names")" -gt 20 ] || { echo "FAIL: hardly any hl_ names in $1"; exit 1; }
if grep -v '^hl_' <<<"$names"; then echo "FAIL: names outside hl_ are exported"; exit 1; fi
