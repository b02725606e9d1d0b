#!/usr/bin/env python3
"""Shortens the record of `make truth` to tests/fixtures/records/truth.jsonl: some cases, with the parts that the suite and its faults read.

scripts/truth_fixture.py target/truth/record.jsonl > tests/fixtures/records/truth.jsonl
"""

import json
import sys

CASES = {
    "line: tcp-bytes",
    "short: ping",
    "short: pingpong",
    "loss: ping",
    "loss: udp",
    "asymmetric: probe",
}
FIGURES = {
    "rtt_ms",
    "network_rtt_ms",
    "one_way_delay_ms",
    "lost_packets",
    "lost_percent",
    "received_packets",
    "sent_packets",
    "goodput_bit_per_s",
}


def shortened(run):
    """Returns a run without the parts that no cell uses."""
    run["environment"] = {}
    for measured in run["measurements"]:
        figures = [figure for figure in measured["figures"] if figure["metric"] in FIGURES]
        measured.update(samples=[], facts={}, departures=[], figures=figures)
    return run


def main():
    """Prints the lines of the shortened record."""
    with open(sys.argv[1], encoding="utf-8") as record:
        for line in map(json.loads, record):
            if "plan" in line:
                cases = line["plan"]["cases"]
                line["plan"]["cases"] = [case for case in cases if case["name"] in CASES]
                line["scenario"]["text"] = ""
            elif "run" in line:
                if line["run"]["case"] not in CASES:
                    continue
                line["run"] = shortened(line["run"])
            print(json.dumps(line, separators=(",", ":")))


main()
