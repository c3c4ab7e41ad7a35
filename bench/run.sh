#!/bin/sh
# make bench, make bench-NAME. Python is used here for the peers and the bookkeeping, never by Halley.
cd "$(dirname "$0")/.." || exit 1
command -v python3 > /dev/null || { echo "bench: python3 is needed for the peers (PyTorch); 'build/release/halley bench' measures without it" >&2; exit 1; }
exec python3 bench/run.py "$@"
