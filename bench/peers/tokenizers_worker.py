#!/usr/bin/env python3
"""The loader's peers: the `tokenizers` library with a BPE, and a table look-up per character in Python.

usage: tokenizers_worker.py FILE TOKENIZER     asks: run, bytes (seconds to read and tokenise the file)"""
import array
import sys
import time

import tokenizers

PIECE = 1 << 16


def pieces(text):
    """Cut at line ends: the library is quicker with many texts of middle size than with one large one."""
    at = 0
    while at < len(text):
        end = text.find("\n", at + PIECE) + 1 or len(text)
        yield text[at:end]
        at = end


def main():
    path, name = sys.argv[1:]
    tokenizer = tokenizers.Tokenizer.from_file(name)
    encode = getattr(tokenizer, "encode_batch_fast", tokenizer.encode_batch)
    table = {chr(i): i for i in range(0x110000)}

    def run():
        with open(path, encoding="utf-8") as file:
            text = file.read()
        ids = array.array("i")
        for encoding in encode(list(pieces(text)), add_special_tokens=False):
            ids.extend(encoding.ids)

    def characters():
        with open(path, encoding="utf-8") as file:
            text = file.read()
        array.array("i", [table[c] for c in text])

    asks = {"run": run, "bytes": characters}
    print("ready", tokenizers.__version__, flush=True)
    for line in sys.stdin:
        start = time.perf_counter()
        asks[line.strip()]()
        print(f"{time.perf_counter() - start:.9g}", flush=True)


if __name__ == "__main__":
    main()
