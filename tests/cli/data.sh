#!/bin/bash
# halley data as a person uses it: shards, inspection, a tokenizer, and what it says to mistakes.
set -u
halley=$1
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failed=0
fail() { echo "FAILED: $*"; failed=1; }
# expect STATUS 'TEXT' command...: exit status, and TEXT somewhere in what it says
expect() {
    local status=$1 text=$2; shift 2
    local said; said=$("$@" 2>&1); local got=$?
    [ "$got" = "$status" ] || fail "status $got instead of $status: $* said: $said"
    [[ $said == *"$text"* ]] || fail "no '$text' in what $* said: $said"
}

printf 'emma\nolivia\n\nava\n' > names.txt
printf '{"text": "one"}\n{"text": "tw\xc3\xb6"}\n{"txt": "three"}\n{"text": "half' > rows.jsonl
for i in $(seq 1 300); do echo "the cat and the dog and the bird number $i"; done > story.txt

expect 0 'halley data --train-tokenizer 4096' "$halley" data --help
expect 0 'shards: 1 shard, 3 documents, 16 tokens' "$halley" data --data names.txt --text-format lines --out shards
[ -s shards/data-000000.hls ] && [ -s shards/tokenizer.json ] || fail "no shard or no tokenizer beside it"
expect 2 'holds shards already' "$halley" data --data names.txt --out shards
expect 0 '3, of 4 to 7 tokens, mean 5.3' "$halley" data --inspect shards/data-000000.hls
expect 0 '"emma<|endoftext|>olivia<|endoftext|>ava<|endoftext|>"' "$halley" data --inspect shards/data-000000.hls --tokenizer byte
expect 0 ' holds' "$halley" data --inspect shards/data-000000.hls

expect 0 'many: 3 shards, 3 documents' "$halley" data --data names.txt --text_format lines --out many --shard_tokens 1
expect 0 'of 4 to 4 tokens' "$halley" data --inspect many/data-000002.hls

expect 0 'rows.jsonl:3:1: no key "text"; --text_key names another, the first here is "txt": skipped' "$halley" data --data rows.jsonl --out r1
expect 0 'rows.jsonl:4:' "$halley" data --data rows.jsonl --out r2
expect 0 '2 skipped' "$halley" data --data rows.jsonl --out r3
expect 1 'rows.jsonl:3:1: no key' "$halley" data --data rows.jsonl --out r4 --strict
ls r4/*.hls 2>/dev/null && fail "a strict failure left a shard"

expect 0 'tok.json: 300 tokens' "$halley" data --train-tokenizer 300 --data story.txt --out tok.json
expect 2 'at least 257' "$halley" data --train-tokenizer 100 --data story.txt --out no.json
[ -e no.json ] && fail "a failed training left a file"

# damage: one token changed; cut off
printf 'Z' | dd of=shards/data-000000.hls bs=1 seek=130 conv=notrunc status=none
expect 1 'DIFFERS' "$halley" data --inspect shards/data-000000.hls
head -c 150 many/data-000000.hls > cut.hls
expect 1 'it was cut off or changed' "$halley" data --inspect cut.hls
expect 1 'neither a halley shard nor one of llm.c' "$halley" data --inspect names.txt

expect 2 "no file matches 'nothing/*.txt'" "$halley" data --data 'nothing/*.txt' --out x
expect 1 'nothing.txt: cannot open: No such file' "$halley" data --data nothing.txt --out x1
mkdir folder && expect 2 "is a folder; name its files, for example 'folder/*.txt'" "$halley" data --data folder --out x2
: > empty.txt && expect 2 'the data is empty' "$halley" data --data empty.txt --out x3
expect 2 'is a shard already' "$halley" data --data many/data-000001.hls --out x4
expect 2 'give --out' "$halley" data --data names.txt
expect 2 "did you mean '--strict'" "$halley" data --data names.txt --out x5 --strit
expect 2 'belongs to no option' "$halley" data names.txt

# ---- text that is odd: what it is, where, and how often ----
bpe="$halley data --tokenizer tok.json"
printf '\xef\xbb\xbfone\r\ntwo\0\r\nth\xffree \xc3\r\n\xe2\x82last' > odd.txt
expect 0 'odd.txt:3:3: not UTF-8: skipped' $bpe --data odd.txt --out odd1
expect 0 'odd.txt:3:8: not UTF-8: skipped' $bpe --data odd.txt --out odd2
expect 0 'odd.txt:4:1: not UTF-8: skipped' $bpe --data odd.txt --out odd3
expect 0 'odd.txt: skipped bytes that are not UTF-8: 4' $bpe --data odd.txt --out odd4
expect 0 '; 4 skipped, see above' $bpe --data odd.txt --out odd5
expect 0 'as text     "one\x0d\ntwo\x00\x0d\nthree \x0d\nlast' "$halley" data --inspect odd1/data-000000.hls
expect 1 'odd.txt:3:3: not UTF-8; without --strict it is skipped' $bpe --data odd.txt --out odd6 --strict
expect 0 'odd.txt: not all of it is UTF-8; the byte tokenizer keeps it as it is' "$halley" data --data odd.txt --out odd7
expect 0 'as text     "one\x0d\ntwo\x00\x0d\nth\xffree \xc3\x0d\n\xe2\x82last' "$halley" data --inspect odd7/data-000000.hls
# the same as lines: a mark, line ends and blank lines are no text; half a last line is a line
printf '\xef\xbb\xbfone\r\n\r\n \t\ntwo\xff\r\nlast' > odd-lines.txt
expect 0 'odd-lines.txt:4:4: not UTF-8: skipped' $bpe --data odd-lines.txt --text_format lines --out l1
expect 0 'odd-lines.txt: skipped lines: 1' $bpe --data odd-lines.txt --text_format lines --out l2
expect 0 'odd-lines.txt: blank lines, which are no documents: 2' $bpe --data odd-lines.txt --text_format lines --out l3
expect 0 'as text     "one<|endoftext|>last<|endoftext|>"' "$halley" data --inspect l1/data-000000.hls
for i in 1 2 3 4 5; do printf 'no\xff\n'; done > many-bad.txt
[ "$($bpe --data many-bad.txt story.txt --text_format lines --out l4 2>&1 | grep -c 'many-bad.txt:.*: skipped')" = 3 ] || fail "not three of five said"
expect 0 'many-bad.txt: skipped lines: 5' $bpe --data many-bad.txt story.txt --text_format lines --out l5
# rows of JSON
printf '{"text": "a"}\r\n[1]\n{"text": 3}\n{"text": "b\\u0000c"}\n{}\n{"text": "half a ro' > rows2.jsonl
expect 0 'rows2.jsonl:2:1: not a JSON object: skipped' "$halley" data --data rows2.jsonl --out j1
expect 0 'rows2.jsonl:3:1: the value of "text" is not a string: skipped' "$halley" data --data rows2.jsonl --out j2
expect 0 'rows2.jsonl:5:1: no key "text": skipped' "$halley" data --data rows2.jsonl --out j3
expect 0 'rows2.jsonl: skipped lines: 4' "$halley" data --data rows2.jsonl --out j4
expect 0 'as text     "a<|endoftext|>b\x00c<|endoftext|>"' "$halley" data --inspect j1/data-000000.hls --tokenizer byte
printf '{"text": "half a ro' > half.jsonl
expect 2 'half.jsonl:1:19: not JSON: ' "$halley" data --data half.jsonl --out j5
expect 2 '(the file ends without a line feed: was it cut off?): skipped' "$halley" data --data half.jsonl --out j6
# a line of 20 MB, as a document, a line and a row
head -c 20000000 /dev/zero | tr '\0' x > giant.txt
{ printf '{"text": "'; cat giant.txt; printf '"}\n'; } > giant.jsonl
expect 0 '1 documents, 20000001 tokens' "$halley" data --data giant.txt --out g1
expect 0 '1 documents, 20000001 tokens' "$halley" data --data giant.txt --text_format lines --out g2
expect 0 '1 documents, 20000001 tokens' "$halley" data --data giant.jsonl --out g3
rm -rf giant.* g1 g2 g3

# files of another kind are refused by their name
foreign() { printf "$2" > "foreign.txt"; expect 2 "foreign.txt: $1" "$halley" data --data foreign.txt --out f; }
foreign 'is UTF-16; convert it: iconv -f UTF-16 -t UTF-8' '\xff\xfea\0b\0'
foreign 'is compressed with gzip; unpack it: gunzip -k' '\x1f\x8b\x08\0'
foreign 'is compressed with zstd; unpack it: unzstd' '\x28\xb5\x2f\xfd...'
foreign 'is compressed with xz; unpack it: unxz -k' '\xfd7zXZ\0'
foreign 'is a zip archive; unpack it: unzip' 'PK\x03\x04...'
foreign 'is a Parquet file; export it as .jsonl or .txt' 'PAR1....'
foreign 'is a Git LFS pointer, not the data; fetch it: git lfs pull' 'version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n'

# ---- shards that are not what they should be: looked into, and trained from ----
small="--model llama --num_hidden_layers 1 --hidden_size 32 --num_attention_heads 2 --block_size 8 --per_device_train_batch_size 2 --threads 1 --max_steps 1"
train() { expect "$1" "$2" "$halley" train $small --output_dir "run$((n_runs += 1))" "${@:3}"; }
n_runs=0
"$halley" data --data story.txt --out good > /dev/null 2>&1 && "$halley" data --data story.txt --tokenizer tok.json --out bpe > /dev/null 2>&1 || fail "shards"
good=good/data-000000.hls
train 0 'step 1/1' --data $good
train 2 'the shard was made with another tokenizer (hash ' --data bpe/data-000000.hls
train 0 'step 1/1' --data bpe/data-000000.hls --tokenizer bpe/tokenizer.json
expect 0 'the tokenizer given is another one (' "$halley" data --inspect bpe/data-000000.hls --tokenizer byte
changed() { # TEXT OFFSET BYTES: a shard with other bytes at an offset
    cp $good bad.hls; printf "$3" | dd of=bad.hls bs=1 seek="$2" conv=notrunc status=none
    train "$4" "bad.hls: $1" --data bad.hls
    expect "$4" "bad.hls: $1" "$halley" data --inspect bad.hls
}
changed "the shard's tokens are damaged: the checksum differs; copy or build it again" 200 'ZZ' 1
changed "the shard's header is damaged: its checksum differs" 24 '\x02' 1
changed 'shard version 9; this halley reads version 1: build the shard again' 8 '\x09' 2
changed 'is neither a halley shard nor one of llm.c; if it is text, say --text_format document' 0 'X' 1
head -c 100 $good > bad.hls; train 1 'bad.hls: the shard ends inside its header' --data bad.hls
head -c 1000 $good > bad.hls; train 1 'it was cut off or changed; copy it again' --data bad.hls
# llm.c's files are read as they are: 1024 bytes of header, then uint16
word() { printf "\\x$(printf %02x $(($1 & 255)))\\x$(printf %02x $(($1 >> 8 & 255)))"; }
llmc() { # VERSION COUNT: a file of 300 tokens
    word $((20240520 & 65535)); word $((20240520 >> 16)); word "$1"; word 0; word "$2"; word 0
    head -c 1012 /dev/zero; for i in $(seq 1 300); do word $((97 + i % 20)); done
}
llmc 1 300 > llmc.bin; train 0 'step 1/1' --data llmc.bin
expect 0 'llm.c shard, uint16' "$halley" data --inspect llmc.bin
llmc 2 300 > llmc.bin; train 2 'llmc.bin: llm.c shard version 2; version 1 is understood' --data llmc.bin
llmc 1 301 > llmc.bin; train 1 'its header says 1626: it was cut off or changed; copy it again' --data llmc.bin
{ llmc 1 301; word 5000; } > llmc.bin; train 2 'the shard holds token 5000 but the tokenizer has only 257 tokens' --data llmc.bin

# ---- tokenizers: refused by the name of what is not understood ----
train 2 'nowhere.json: cannot open: No such file or directory; give "byte", a tokenizer.json or a folder that holds one' --data story.txt --tokenizer nowhere.json
tokenizer() { printf '%s' "$3" > t.json; train "$1" "t.json:$2" --data story.txt --tokenizer t.json; }
tokenizer 1 ' is empty' ''
tokenizer 1 '1:10: not JSON: ' '{"model":}'
tokenizer 1 ' is only a git-lfs pointer; fetch the file itself with git lfs pull' 'version https://git-lfs.github.com/spec/v1'
edited() { printf '%s' "$(sed "$2" tok.json)" > t.json; train 2 "t.json: $1" --data story.txt --tokenizer t.json; }
edited 'normalizer of type "NFC" is not supported; only null is' 's/"normalizer": *null/"normalizer": {"type": "NFC"}/'
edited 'model of type "WordPiece" is not supported; only BPE is' 's/"type": *"BPE"/"type": "WordPiece"/'
edited 'pre_tokenizer of type "Whitespace" is not supported; only ByteLevel is' '0,/"ByteLevel"/s//"Whitespace"/'
edited 'key "odd_key" of model is not understood' 's/"type": *"BPE"/"odd_key": 1, "type": "BPE"/'
edited 'version: any other than "1.0" is not supported' 's/"version": *"1.0"/"version": "2.0"/'
expect 0 'the vocabulary has' "$halley" data --train-tokenizer 5000 --data names.txt --out big.json
expect 0 'instead of 5000: no pair occurs twice any more; give more text' "$halley" data --train-tokenizer 5000 --data names.txt --out big.json
expect 2 'there is no text to train a tokenizer on' "$halley" data --train-tokenizer 300 --data empty.txt --out no.json
expect 2 'larger vocab_size' "$halley" train $small --data story.txt --tokenizer tok.json --vocab_size 299 --output_dir no

# ---- mixtures, and what is held out ----
cp names.txt other.txt
train 2 "--data '0:story.txt': a weight must be greater than 0" --data 0:story.txt 1:other.txt
train 2 "--data 'other.txt' has no weight but others have: write weight:other.txt" --data 1:story.txt other.txt
train 2 'it would never be seen' --data 1e-9:story.txt 1:story.txt
train 2 "weights have no meaning there" --data story.txt --validation_data 1:story.txt
train 2 "--validation_data 'empty.txt' is empty" --data story.txt --validation_data empty.txt
train 2 "no file matches 'no*.txt'; look with: ls no*.txt" --data 'no*.txt'
train 0 'step 1/1' --data 0.7:story.txt 0.3:story.txt
head -c 1000 story.txt > thousand.txt
train 0 'data: 900 tokens to train on, 100 held out' --data thousand.txt # one document: the end of its tokens
train 0 'data: 750 tokens to train on, 250 held out' --data thousand.txt --validation_split 0.25
train 0 'data: 1000 tokens to train on, nothing held out: no validation loss' --data thousand.txt --validation_split 0
for i in $(seq 1 19); do echo "line"; done > nineteen.txt # 5 tokens each, with the end of text
train 0 'data: 86 tokens to train on, 9 held out' --data nineteen.txt --text_format lines
echo "line" | cat - nineteen.txt > twenty.txt
train 0 'data: 90 tokens to train on, 10 held out' --data twenty.txt --text_format lines # two whole lines

# a tokenizer that cannot spell the text
sed 's/"Z":/"no Z":/' tok.json > no-z.json
echo 'from A to Z' > z.txt
train 2 'the tokenizer has no token for byte 0x5A; its vocabulary cannot spell this text' --data z.txt --tokenizer no-z.json

# ---- the cache of tokens: kept, found, not trusted ----
cat $(yes story.txt | head -n 700) > large.txt # 9 MB
train 0 'data: tokens kept in cache/tokens-' --data large.txt --max_eval_batches 1 --cache_dir cache
train 0 'tokens found in cache/tokens-' --data large.txt --max_eval_batches 1 --cache_dir cache
printf 'ZZ' | dd of="$(ls cache/*.hls)" bs=1 seek=4000 conv=notrunc status=none
train 0 ': not usable, it is built again' --data large.txt --max_eval_batches 1 --cache_dir cache
train 0 'tokens found in cache/tokens-' --data large.txt --max_eval_batches 1 --cache_dir cache
train 1 'names.txt/cache: cannot create the folder of --cache_dir: Not a directory' --data large.txt --max_eval_batches 1 --cache_dir names.txt/cache

# ---- places that cannot be written ----
expect 1 'no/where: cannot create the folder: No such file or directory' "$halley" data --data names.txt --out no/where
expect 1 'no/where.json: cannot create: No such file or directory' "$halley" data --train-tokenizer 300 --data story.txt --out no/where.json
expect 1 '/dev/full' "$halley" data --data names.txt --out /dev/full

[ $failed = 0 ] && echo "ok"
exit $failed
