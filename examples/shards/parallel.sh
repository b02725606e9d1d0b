#!/bin/sh
# parallel.sh SCENARIO SHARDS OUT: the shards of an experiment by GNU parallel, one after the other, into OUT/shards, and their records joined as OUT.
# PARALLEL="--sshlogin host-a,host-b --wd ." before it makes it one shard a host, with a directory that all hosts share.
set -eu
[ $# = 3 ] || {
    echo "parallel.sh SCENARIO SHARDS OUT" >&2
    exit 2
}
scenario=$1
shards=$2
out=$3
# Of a shard that fails, merge names what is missing; one that did not begin has no record.
seq "$shards" | parallel --quote -j 1 farwire run "$scenario" --shard "{}/$shards" --out "$out/shards/{}" || :
exec farwire merge "$out"/shards/*/record.jsonl --out "$out"
