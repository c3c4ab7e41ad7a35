#!/usr/bin/env python3
"""Compare Halley's tokenizers with the `tokenizers` library, id by id and byte by byte.

usage:  python3 -m venv /tmp/venv && /tmp/venv/bin/pip install tokenizers==0.23.3
        /tmp/venv/bin/python tests/golden/check_tokenizers.py [--texts FILE...] [--tokenizer tokenizer.json...] [--write]

Builds a shared library from build/release/libhalley.a in a temporary folder and calls it through ctypes. For the byte tokenizer,
a tokenizer trained here, one trained by the library, and each --tokenizer: writes our tokenizer.json, loads it on
both sides, and compares encode (with and without special tokens in the text) and decode on many strings: pieces of the
texts, random Unicode of several kinds, white space, digits, line ends, NUL, special tokens.

--write renews tests/data/tokenizer/: the two trained tokenizers and golden.json, which the C test test_tokenizer_golden
replays without Python. A --tokenizer called tokenizer-gpt2.json gets its ids there too (the file itself is not stored).

Code points whose class (letter, number) differs between PCRE2's and the library's Unicode version are found first, listed
and kept out of the random strings. Seeds are fixed."""
import argparse
import ctypes
import json
import os
import random
import subprocess
import sys
import tempfile
import unicodedata

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DATA = os.path.join(ROOT, "tests/data/tokenizer")
SPECIAL = "<|endoftext|>"


class Buf(ctypes.Structure):
    _fields_ = [("mem", ctypes.c_void_p), ("data", ctypes.c_void_p), ("n", ctypes.c_size_t),
                ("capacity", ctypes.c_size_t), ("failed", ctypes.c_bool)]


class Tokens(ctypes.Structure):
    _fields_ = [("mem", ctypes.c_void_p), ("ids", ctypes.POINTER(ctypes.c_int32)), ("n", ctypes.c_size_t),
                ("capacity", ctypes.c_size_t)]


class Diag(ctypes.Structure):
    _fields_ = [("status", ctypes.c_int), ("text", ctypes.c_char * 1024)]


NEXT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_char_p),
                        ctypes.POINTER(ctypes.c_size_t), ctypes.c_void_p)


class Source(ctypes.Structure):
    _fields_ = [("next", NEXT)]


def load_library(folder):
    packages = ["yaml-0.1", "jansson", "libpcre2-8", "libxxhash", "hwloc"]
    libs = subprocess.check_output(["pkg-config", "--libs"] + packages, text=True).split()
    archive = os.path.join(ROOT, "build/release/libhalley.a")
    out = os.path.join(folder, "libhalley.so")
    subprocess.check_call(["cc", "-shared", "-o", out, "-Wl,--whole-archive", archive, "-Wl,--no-whole-archive",
                           "-fopenmp", "-lm", "-ldnnl"] + libs)
    library = ctypes.CDLL(out)
    library.hl_mem_default.restype = ctypes.c_void_p
    library.hl_tokenizer_vocab_size.restype = ctypes.c_int64
    library.hl_tokenizer_hash.restype = ctypes.c_uint64
    return library


class Ours:
    """One of Halley's tokenizers."""

    def __init__(self, library, pointer):
        self.library, self.pointer = library, pointer
        self.mem = ctypes.c_void_p(library.hl_mem_default())
        self.tokens, self.buf, self.diag = Tokens(mem=self.mem.value), Buf(mem=self.mem.value), Diag()

    @classmethod
    def open(cls, library, name):
        pointer, diag = ctypes.c_void_p(), Diag()
        if library.hl_tokenizer_open(ctypes.c_void_p(library.hl_mem_default()), name.encode(), ctypes.byref(pointer),
                                     ctypes.byref(diag)) != 0:
            raise ValueError(diag.text.decode())
        return cls(library, pointer)

    @classmethod
    def train(cls, library, text, vocab_size):
        pieces = [text]

        def give(_, text_out, n_out, __):
            if not pieces:
                return 2
            give.kept = pieces.pop()
            text_out[0], n_out[0] = give.kept, len(give.kept)
            return 0

        source, pointer, diag = Source(NEXT(give)), ctypes.c_void_p(), Diag()
        if library.hl_bpe_train(ctypes.c_void_p(library.hl_mem_default()), ctypes.byref(source),
                                ctypes.c_int64(vocab_size), ctypes.byref(pointer), None, ctypes.byref(diag)) != 0:
            raise ValueError(diag.text.decode())
        return cls(library, pointer)

    def encode(self, text, specials):
        self.tokens.n = 0
        if self.library.hl_tokenizer_encode(self.pointer, text, ctypes.c_size_t(len(text)), ctypes.c_bool(specials),
                                            ctypes.byref(self.tokens), ctypes.byref(self.diag)) != 0:
            raise ValueError(self.diag.text.decode())
        return self.tokens.ids[:self.tokens.n]

    def decode(self, ids, specials):
        self.buf.n = 0
        array = (ctypes.c_int32 * len(ids))(*ids)
        if self.library.hl_tokenizer_decode(self.pointer, array, ctypes.c_size_t(len(ids)), ctypes.c_bool(specials),
                                            ctypes.byref(self.buf), ctypes.byref(self.diag)) != 0:
            raise ValueError(self.diag.text.decode())
        return ctypes.string_at(self.buf.data, self.buf.n) if self.buf.n else b""

    def json(self):
        self.buf.n = 0
        assert self.library.hl_tokenizer_to_json(self.pointer, ctypes.byref(self.buf), None) == 0
        return ctypes.string_at(self.buf.data, self.buf.n).decode()

    def hash(self):
        return self.library.hl_tokenizer_hash(self.pointer)

    def vocab_size(self):
        return self.library.hl_tokenizer_vocab_size(self.pointer)


def train_theirs(texts, vocab_size):
    theirs = tokenizers.Tokenizer(models.BPE())
    theirs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    theirs.decoder = decoders.ByteLevel()
    theirs.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=[SPECIAL, "<|pad|>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    theirs.add_tokens(["<tag>", tokenizers.AddedToken("don't", normalized=True)])
    return theirs


def probe_json():
    """Every byte merges with the letters, digits, signs and blanks below: so the ids show where words end."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab, merges = {c: i for i, c in enumerate(alphabet)}, []
    for sign in "a1!x\u0120\u010A":
        for byte in alphabet:
            for pair in ((sign, byte), (byte, sign)):
                if "".join(pair) not in vocab:
                    vocab["".join(pair)] = len(vocab)
                    merges.append(pair)
    probe = tokenizers.Tokenizer(models.BPE(vocab, merges))
    probe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    probe.decoder = decoders.ByteLevel()
    return probe.to_str()


def all_code_points():
    return [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]


def differing_code_points(ours, theirs):
    """Code points that the two sides class differently, by what they do beside a letter, a digit and a sign."""
    bad = set()
    texts = ["a%s1%s!%s %s\n%s x" % ((chr(c),) * 5) for c in all_code_points()]
    for start in range(0, len(texts), 20000):
        part = texts[start:start + 20000]
        for text, encoding in zip(part, theirs.encode_batch(part)):
            if ours.encode(text.encode(), True) != encoding.ids:
                bad.add(text[1])
    return bad


def as_ranges(characters):
    ranges = []
    for c in sorted(map(ord, characters)):
        if ranges and ranges[-1][1] == c - 1:
            ranges[-1][1] = c
        else:
            ranges.append([c, c])
    return ranges


SPACES = ([chr(c) for c in list(range(9, 14)) + list(range(0x1C, 0x21)) + list(range(0x2000, 0x200C))] +
          list("\u0085\u00a0\u1680\u180e\u2028\u2029\u202f\u205f\u2060\u3000\ufeff\0"))
WORDS = ["a", "Z", "é", "ß", "日", "本", "1", "２", "½", "Ⅷ", "!", "'", "'s", "'S", "'ll", "'ve", "’t", "-", "_", "\u0301",
         "👍", "\r\n", "\n\n", "\t", "  ", "<|", "|>", SPECIAL, "<|pad|>", "<tag>", "don't", "<|endoftext", "endoftext|>", "<<|endoftext|>>"]


def make_strings(texts, bad, n):
    rng = random.Random(20240607)
    points = [chr(c) for c in all_code_points() if chr(c) not in bad]
    low = [c for c in points if ord(c) < 0x3100]
    strings = ["", " ", "  ", "\0", "\r\n", " a", "a ", "\n a", " \n", "a" * 3000, " " * 2000, "ab" * 2000, "\u3000\u3000x"]
    makers = [
        lambda: "".join(rng.choices(points, k=rng.randrange(1, 30))),
        lambda: "".join(rng.choices(low, k=rng.randrange(1, 40))),
        lambda: "".join(rng.choices(SPACES, k=rng.randrange(1, 8))),
        lambda: "".join(rng.choices(SPACES + WORDS, k=rng.randrange(1, 30))),
        lambda: "".join(rng.choices(WORDS, k=rng.randrange(1, 20))),
        lambda: rng.randbytes(rng.randrange(1, 60)).decode("utf-8", "ignore"),
        lambda: bytes(rng.choices(range(0xC2, 0xF0), k=4) + rng.choices(range(0x20, 0xC0), k=40)).decode("utf-8", "ignore"),
        lambda: str(rng.randrange(10 ** rng.randrange(1, 30))),
        lambda: "%.*f, %d" % (rng.randrange(9), rng.random() * 10 ** rng.randrange(9), rng.randrange(10 ** 6)),
    ]
    for text in texts:
        def piece(text=text):
            at = rng.randrange(len(text))
            return text[at:at + rng.randrange(1, 400)]
        makers += [piece, lambda piece=piece: piece().replace("\n", "\r\n")]
    while len(strings) < n:
        strings.append(rng.choice(makers)())
    return ["".join(c for c in s if c not in bad) for s in strings]


def compare(name, ours, theirs, strings):
    rng = random.Random(5)
    n_ids = 0
    for specials in (True, False):
        theirs.encode_special_tokens = not specials
        for text, encoding in zip(strings, theirs.encode_batch(strings)):
            ids = ours.encode(text.encode(), specials)
            if ids != encoding.ids:
                sys.exit(f"{name}: encode({text!r}, specials={specials})\n ours   {ids}\n theirs {encoding.ids}")
            n_ids += len(ids)
            for keep in (True, False):
                mine = ours.decode(ids, keep)
                if mine.decode("utf-8", "replace") != theirs.decode(ids, skip_special_tokens=not keep):
                    sys.exit(f"{name}: decode({ids}, {keep}): {mine!r}")
            if not specials and ours.decode(ids, True) != text.encode():
                sys.exit(f"{name}: no round trip: {text!r}")
    for _ in range(3000):
        ids = rng.choices(range(ours.vocab_size()), k=rng.randrange(1, 30))
        if ours.decode(ids, True).decode("utf-8", "replace") != theirs.decode(ids, skip_special_tokens=False):
            sys.exit(f"{name}: decode({ids})")
    if ours.vocab_size() != theirs.get_vocab_size():
        sys.exit(f"{name}: {ours.vocab_size()} tokens, theirs {theirs.get_vocab_size()}")
    print(f"{name}: {len(strings)} strings, {n_ids} ids, all equal; {ours.vocab_size()} tokens, hash {ours.hash():016x}", flush=True)


def golden_cases(theirs, strings):
    cases = []
    for text in strings:
        theirs.encode_special_tokens = False
        ids = theirs.encode(text).ids
        theirs.encode_special_tokens = True
        plain = theirs.encode(text).ids
        cases.append({"text": text, "ids": ids, "plain": plain} if plain != ids else {"text": text, "ids": ids})
    return cases


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", nargs="*", default=[])
    parser.add_argument("--tokenizer", nargs="*", default=[])
    parser.add_argument("--strings", type=int, default=20000)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    sample = open(os.path.join(DATA, "sample.txt"), encoding="utf-8", newline="").read()
    texts = [sample] + [open(path, encoding="utf-8", newline="").read() for path in args.texts]
    with tempfile.TemporaryDirectory() as folder:
        library = load_library(folder)

        def from_text(json_text):
            path = os.path.join(folder, "tokenizer.json")
            open(path, "w", encoding="utf-8", newline="").write(json_text)
            return Ours.open(library, path)

        small = Ours.train(library, sample.encode(), 600)
        foreign = train_theirs([sample], 500).to_str(pretty=True)
        probe = probe_json()
        bad = differing_code_points(from_text(probe), tokenizers.Tokenizer.from_str(probe))
        old = [c for c in bad if unicodedata.category(c) != "Cn"]
        print(f"{len(bad)} code points are classed by another Unicode version, in {len(as_ranges(bad))} ranges:",
              " ".join("%04X-%04X" % tuple(r) for r in as_ranges(bad)[:12]), f"...; {len(old)} of them are assigned in",
              f"Unicode {unicodedata.unidata_version}", flush=True)
        strings = make_strings(texts, bad, args.strings)
        sides = [("byte", Ours.open(library, "byte"), None), ("trained on the sample", small, None),
                 ("trained by tokenizers", from_text(foreign), foreign), ("probe", from_text(probe), probe)]
        if args.texts:
            sides.append(("trained on all texts", Ours.train(library, "\n".join(texts).encode(), 4096), None))
        for path in args.tokenizer:
            sides.append((os.path.basename(path), Ours.open(library, path), open(path, encoding="utf-8").read()))
        golden = {"tokenizers": tokenizers.__version__, "python": sys.version.split()[0], "script": "tests/golden/check_tokenizers.py"}
        rng = random.Random(99)
        chosen = strings[:9] + rng.sample([s for s in strings[13:] if len(s) < 60], 90)
        for name, ours, original in sides:
            theirs = tokenizers.Tokenizer.from_str(original or ours.json())
            compare(name, ours, theirs, strings)
            if original:  # what we write of a foreign tokenizer is the same tokenizer
                again = from_text(ours.json())
                assert again.json() == ours.json() and again.hash() == ours.hash()
                compare(name + ", as written by us", again, tokenizers.Tokenizer.from_str(ours.json()), strings[:3000])
            key = {"byte": "byte", "trained on the sample": "trained.json", "trained by tokenizers": "foreign.json",
                   "tokenizer-gpt2.json": "tokenizer-gpt2.json"}.get(name)
            if key:
                golden[key] = golden_cases(theirs, chosen)
        if args.write:
            open(os.path.join(DATA, "trained.json"), "w", encoding="utf-8").write(small.json())
            open(os.path.join(DATA, "foreign.json"), "w", encoding="utf-8").write(foreign)
            with open(os.path.join(DATA, "golden.json"), "w", encoding="ascii") as f:
                lines = [f"{json.dumps(k)}: " + (json.dumps(v) if isinstance(v, str) else
                         "[\n" + ",\n".join(json.dumps(case) for case in v) + "\n]") for k, v in golden.items()]
                f.write("{\n" + ",\n".join(lines) + "\n}\n")


main()
