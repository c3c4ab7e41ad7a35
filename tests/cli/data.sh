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

[ $failed = 0 ] && echo "ok"
exit $failed
