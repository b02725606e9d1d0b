#!/usr/bin/env python3
"""Writes crates/conditions/src/condition/netem/verdicts.txt: strings of the grammar of tc-netem(8), and whether tc's parser accepts each.

    scripts/netem_verdicts.py > crates/conditions/src/condition/netem/verdicts.txt

The tests read the file that is committed; this script is run by hand, with the tc of iproute2 6.1. Every string is tried in new namespaces,
so nothing of this machine changes. A kernel without netem refuses what the parser has accepted, which is another exit code.
"""

import random
import subprocess
import sys

# The values of each kind of the grammar: usual ones, unusual ones that C's strtod and strtoul read, and wrong ones.
VALUES = {
    "TIME": "100ms 1s 250us 0.5ms .5ms 5.ms 1e-3s 1E1ms +5ms 0x10ms 0x1p3ms 0x.8s 10msec 10msecs 3sec 3secs 9usec 9usecs 7MS 1e3us 0 0.0 0ms "
    "-0ms 20ns 5min 1h 10m ms 1e 1e+ms 0xms 1,5ms 1ms% 10ms10 100 2.5 300s 4295s -1ms inf nan 1e400s",
    "PERCENT": "1% 1 0.1% .1% 5.% 1e-3% 1e-05% 1E1% 0x10% 0x1p-2 +5% 100% 100 0% 0 -0% 101% 1e3 -1% 1%% 1%x 5kb 1,5% % nan inf% 1e400",
    "PACKETS": "1000 10k 2kb 1m 1.5k .5k 1e3 0x10 0x1b 8kbit 1mbit +7 7b 3B 1.9 1g 0 0.5 -1 4294967295 4294967296 5g ten 10kk 10pkt 1e400",
    "BYTES": "1500 10kb 0x5dc 1e4 9k .5mb 64kbit -1 9kib",
    "NUMBER": "5 0x10 010 +5 0 4294967295 4294967296 08 -1 5.0 1e3 5k 0x five",
    "SIGNED": "20 -5 0x14 010 -0x10 +9 2147483648 -2147483648 1.5 9k",
    "RATE": "10mbit 5kbit 1gbit 2tbit 100bit 1mbps 1kbps 2gibit 3KiBps 1e6 1.5mbit .5mbit 5.kbit 0x10mbit 0xabit 0x1p3kbit +1mbit 1000 7bit 0 0mbit "
    "-1mbit 10% 10mb fast mbit 1e mbit 1e400mbit nan",
    "COUNT": "10 0x10 010 0 -3 10k 2147483647 2147483648 1.5",
    "LAW": "normal pareto paretonormal experimental uniform Normal custom",
}

# Every option with one place for a value; the other values are usual ones.
PLACES = [
    "limit {PACKETS}",
    "delay {TIME}",
    "delay 100ms {TIME}",
    "delay 100ms 10ms {PERCENT}",
    "delay 100ms 10ms distribution {LAW}",
    "loss {PERCENT}",
    "loss random {PERCENT}",
    "loss 1% {PERCENT}",
    "loss state {PERCENT}",
    "loss gemodel 1% {PERCENT}",
    "duplicate {PERCENT}",
    "corrupt 1% {PERCENT}",
    "delay 10ms reorder {PERCENT}",
    "delay 10ms reorder 25% gap {NUMBER}",
    "rate {RATE}",
    "rate 5kbit {SIGNED}",
    "rate 5kbit 20 {NUMBER}",
    "rate 5kbit 20 100 {SIGNED}",
    "slot {TIME}",
    "slot 0 {TIME}",
    "slot 1ms 2ms packets {COUNT}",
    "slot 1ms bytes {BYTES}",
    "slot distribution {LAW} 10ms 1ms",
    "slot distribution normal {TIME} 1ms",
]

# Strings about words, their order and omissions.
SHAPES = [
    "",
    "delay",
    "latency 10ms",
    "lat 10ms",
    "d 10ms",
    "l 10",
    "lo 1%",
    "drop 1%",
    "dr 1%",
    "dup 1%",
    "du 1%",
    "di normal",
    "c 1%",
    "r 10mbit delay 10ms",
    "ra 10mbit",
    "re 1% delay 10ms",
    "g 5 reorder 1% delay 10ms",
    "e loss 1%",
    "s 1ms",
    "sl 1ms",
    "Delay 10ms",
    "delays 10ms",
    "dealy 10ms",
    "10ms",
    "help",
    "seed 7",
    "ecn",
    "loss 0% ecn",
    "loss 1% ecn",
    "ecn loss gemodel 1%",
    "loss",
    "loss random",
    "loss state",
    "loss gemodel",
    "loss rand 1%",
    "loss none",
    "loss gemodel 1% 10% 70% 0.1%",
    "loss gemodel 1% 10% 70% 0.1% 5%",
    "loss state 1% 60% 20% 80% 0.5%",
    "loss state 1% 60% 20% 80% 0.5% 5%",
    "loss state 60% 10% 10% 10% 60%",
    "loss state 1% 60% 60%",
    "loss 1% loss 2%",
    "loss 0% loss 2%",
    "delay 1ms delay 2ms",
    "latency 1ms delay 2ms",
    "limit 5 limit 6",
    "gap 5",
    "gap 5 delay 10ms",
    "gap 0 delay 10ms",
    "reorder 25%",
    "reorder 0%",
    "reorder 25% 50%",
    "delay 0 reorder 25%",
    "delay 10ms reorder 25% 50%",
    "delay 10ms reorder 25% 50% gap 5",
    "reorder 25% gap 5 delay 10ms",
    "delay 10ms reorder 0% gap 5",
    "distribution normal",
    "delay 10ms distribution normal",
    "delay 10ms 0ms distribution normal",
    "distribution normal delay 10ms 1ms",
    "delay 10ms 1ms distribution",
    "rate",
    "rate 10mbit 20 100 5",
    "rate 10mbit 20 100 5 6",
    "rate 10mbit delay 10ms",
    "slot",
    "slot 10ms 5ms",
    "slot 10ms 20ms 30ms",
    "slot packets 3",
    "slot distribution",
    "slot distribution normal",
    "slot distribution normal 10ms",
    "slot distribution normal 10ms 0ms",
    "slot dist normal 10ms 1ms",
    "slot 1ms packets",
    "slot 1ms packets 3 bytes 4k",
    "slot 1ms bytes 4k packets 3",
    "slot 1ms p 3 b 4k",
    "delay 100ms 10ms 25% 5",
    "delay 100ms loss 1%",
    "delay 100 ms",
    "loss 1 %",
]

# Strings of several options, drawn from the grammar with this seed.
DRAWN = 60
OPTIONS = [
    "limit {PACKETS}",
    "delay {TIME}",
    "delay {TIME} {TIME}",
    "delay {TIME} {TIME} {PERCENT}",
    "delay {TIME} {TIME} distribution {LAW}",
    "loss {PERCENT}",
    "loss random {PERCENT} {PERCENT}",
    "loss state {PERCENT} {PERCENT}",
    "loss gemodel {PERCENT} {PERCENT} {PERCENT}",
    "corrupt {PERCENT}",
    "duplicate {PERCENT} {PERCENT}",
    "reorder {PERCENT}",
    "reorder {PERCENT} gap {NUMBER}",
    "rate {RATE}",
    "rate {RATE} {SIGNED} {NUMBER}",
    "slot {TIME} {TIME}",
    "slot {TIME} packets {COUNT}",
]


def filled(template, pick):
    """Returns the template with a picked value at each place."""
    for kind in VALUES:
        while "{" + kind + "}" in template:
            template = template.replace("{" + kind + "}", pick(kind), 1)
    return template


def strings():
    """Returns every string once, in order."""
    found = list(SHAPES)
    for place in PLACES:
        (kind,) = (kind for kind in VALUES if "{" + kind + "}" in place)
        found += [place.replace("{" + kind + "}", value) for value in VALUES[kind].split()]
    draw = random.Random(42)
    # The first values of a kind are the usual ones; a string of several options should not fail for its first word only.
    likely = {kind: values.split()[:14] for kind, values in VALUES.items()}
    for _ in range(DRAWN):
        options = draw.sample(OPTIONS, draw.randint(2, 4))
        found.append(filled(" ".join(options), lambda kind: draw.choice(likely[kind])))
    return dict.fromkeys(found)


def is_accepted(options):
    """Returns whether tc's parser accepts the options: then it has asked the kernel, whose refusal is exit code 2."""
    command = ["unshare", "--user", "--map-root-user", "--net", "tc", "qdisc", "add", "dev", "lo", "root", "netem"]
    ended = subprocess.run(command + options.split(), capture_output=True, check=False)
    return ended.returncode in (0, 2)


def main():
    """Writes the verdicts."""
    version = subprocess.run(["tc", "-V"], capture_output=True, check=True, text=True).stdout
    if "iproute2-6.1" not in version:
        sys.exit(f"this is {version.strip()}, not iproute2 6.1")
    print("# scripts/netem_verdicts.py wrote this with the parser of tc (iproute2 6.1): its verdict, a tab, and the options of netem.")
    for options in strings():
        print(f"{'accepted' if is_accepted(options) else 'refused'}\t{options}")


if __name__ == "__main__":
    main()
