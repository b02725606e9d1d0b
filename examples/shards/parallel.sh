#!/bin/sh
# parallel.sh SCENARIO SHARDS OUT: runs the shards of an experiment with GNU parallel, one after the other, into OUT/shards, and joins their
# records to OUT. With PARALLEL="--sshlogin host-a,host-b --wd ." before it, each host runs one shard; all hosts must share the directory.
set -eu
[ $# = 3 ] || {
    echo "parallel.sh SCENARIO SHARDS OUT" >&2
    exit 2
}
scenario=$1
shards=$2
out=$3
# If a shard fails, merge names the missing runs; a shard that did not begin has no record.
seq "$shards" | parallel --quote -j 1 farwire run "$scenario" --shard "{}/$shards" --out "$out/shards/{}" || :
exec farwire merge "$out"/shards/*/record.jsonl --out "$out"
