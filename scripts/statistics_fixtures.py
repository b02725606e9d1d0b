#!/usr/bin/env python3
"""Writes tests/fixtures/statistics.json: the results of NumPy and SciPy for a few samples.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install numpy==2.4.6 scipy==1.17.1
    /tmp/venv/bin/python scripts/statistics_fixtures.py

The tests read the file that is committed; this script is run by hand, when a statistic is added.
"""

import json
from pathlib import Path

import numpy as np
from scipy import stats

OUT = Path(__file__).parent.parent / "tests" / "fixtures" / "statistics.json"
SHARES = [0.0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0]


def summary(sample):
    """Returns mean, standard deviation, Student's interval, quantiles and Tukey's fences."""
    low, high = stats.t.interval(
        0.95, len(sample) - 1, loc=np.mean(sample), scale=stats.sem(sample)
    )
    first, third = np.quantile(sample, [0.25, 0.75])
    return {
        "values": list(sample),
        "mean": np.mean(sample),
        "sd": np.std(sample, ddof=1),
        "interval": [low, high],
        "shares": SHARES,
        "quantiles": list(np.quantile(sample, SHARES)),
        "fences": [first - 1.5 * (third - first), third + 1.5 * (third - first)],
    }


def with_u(u, m, n):
    """Returns two samples of m and n ranks for which U of the first is u."""
    first = list(range(m))
    for place in reversed(range(m)):
        step = min(u, n)
        first[place] += step
        u -= step
    second = sorted(set(range(m + n)) - set(first))
    return first, second


def rank(m, n):
    """Returns the largest k with P(U < k) <= 2.5 %, from SciPy's distribution of U; 0 if there is none."""
    k = 0
    while True:
        first, second = with_u(k, m, n)
        exact = m <= 50 and n <= 50
        found = stats.mannwhitneyu(
            first, second, alternative="less", method="exact" if exact else "asymptotic"
        )
        assert found.statistic == k
        if found.pvalue > 0.025:
            return k
        k += 1


def shift(reference, sample):
    """Returns the shift of Hodges and Lehmann from all differences and all ratios, computed directly."""
    k = rank(len(reference), len(sample))
    differences = np.sort(np.subtract.outer(sample, reference).ravel())
    ratios = np.sort(np.log(np.divide.outer(sample, reference)).ravel())
    percent = lambda log: 100 * np.expm1(log)
    return {
        "reference": list(reference),
        "sample": list(sample),
        "absolute": np.median(differences),
        "absolute_interval": [differences[k - 1], differences[-k]],
        "percent": percent(np.median(ratios)),
        "percent_interval": [percent(ratios[k - 1]), percent(ratios[-k])],
    }


def mser5(values):
    """Returns White's truncation point, at most half of the batches."""
    batches = np.reshape(values[: len(values) // 5 * 5], (-1, 5)).mean(axis=1)
    errors = [
        np.var(batches[cut:]) / len(batches[cut:]) for cut in range(len(batches) // 2 + 1)
    ]
    return {"values": list(values), "cut": int(np.argmin(errors)) * 5}


def main():
    random = np.random.default_rng(20011010)
    samples = [
        random.normal(141.72, 0.034, 5),
        random.lognormal(3, 1, 30),
        random.exponential(20, 101),
        [1e9, 1e9 + 1],
    ]
    pairs = [
        (random.normal(100, 3, m), random.normal(112, 3, n))
        for m, n in [(4, 4), (3, 5), (10, 10), (30, 17), (50, 50), (60, 9)]
    ]
    ties = np.round(random.normal(20, 2, 12)), np.round(random.normal(21, 2, 15))
    sizes = [(4, 4), (3, 5), (2, 8), (5, 5), (8, 8), (10, 10), (3, 30), (30, 30), (40, 50)]
    sizes += [(50, 50), (51, 51), (60, 9), (100, 3), (80, 120)]
    series = [
        100 * (1 - np.exp(-np.arange(count) / scale)) + random.normal(0, 2, count)
        for count, scale in [(100, 8), (103, 20), (40, 2), (20, 1), (60, 100)]
    ]
    fixtures = {
        "summaries": [summary(sample) for sample in samples],
        "ranks": [{"m": m, "n": n, "rank": rank(m, n)} for m, n in sizes],
        "shifts": [shift(*pair) for pair in [*pairs, ties]],
        "warm_ups": [mser5(values) for values in series],
    }
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps(fixtures, indent=1) + "\n")


main()
