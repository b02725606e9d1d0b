// The samples of a link in the last ten minutes, and the spans of them that charts draw.

const KEPT_MS = 601_000;
// The largest number of points of a curve.
const MOST_POINTS = 300;
// Round trips may be measured only now and then; each is valid for this time.
const TRIP_STANDS_MS = 3_000;

const total = (counts) => Object.values(counts).reduce((sum, n) => sum + n, 0);

// Converts a sample for storage. Its cumulative counters are kept, so that any span is a
// difference.
const kept = (sample) => ({
  at: sample.time,
  ways: [sample.up, sample.down].map((way) => ({
    offered: way.offered_bit_per_s,
    delivered: way.delivered_bit_per_s,
    wait: way.queue_delay_ms ?? null,
    packets: way.packets,
    lost: total(way.dropped),
    causes: way.dropped,
    rules: way.rules ?? [],
    inForce: way.in_force ?? null,
  })),
  trips: [sample.round_trips.a, sample.round_trips.b],
});

export class Series {
  #samples = [];

  add(sample) {
    const last = this.#samples.at(-1);
    if (last && sample.time <= last.at) return;
    this.#samples.push(kept(sample));
    // Samples are removed by the hundred, because each removal moves all others.
    if (this.#samples[100]?.at < sample.time - KEPT_MS) this.#samples.splice(0, 100);
  }

  get last() {
    return this.#samples.at(-1) ?? null;
  }

  // Returns spans of equal length from `from` on with the values of their samples: means of rates
  // and round trips, the greatest delay of a queue, and shares of the packets that arrived. Spans
  // begin at multiples of their length, so that a curve keeps its shape while it moves.
  spans(from, to) {
    const length = Math.max(200, Math.ceil((to - from) / MOST_POINTS / 100) * 100);
    const spans = [];
    let [at, samples] = [null, []];
    const close = () => {
      if (samples.length > 1) spans.push(span(at * length + length / 2, samples));
    };
    for (const sample of this.#samples.slice(this.#first(from) - 1)) {
      const own = Math.floor(sample.at / length);
      if (own !== at) {
        close();
        // Counters are relative to the last sample before the span; after a gap there is no
        // reference.
        const before = samples.at(-1);
        if (before && sample.at - before.at > 2 * length + 1000) spans.push({ at: before.at + 1, gap: true });
        [at, samples] = [own, before ? [before] : []];
      }
      samples.push(sample);
    }
    close();
    return spans;
  }

  // Returns the same values for the last second.
  lastSecond() {
    const samples = this.#samples.slice(-11);
    return samples.length > 1 ? span(samples.at(-1).at, samples) : null;
  }

  // Returns the latest round trip of each side in ms, or null if a side had none for some time.
  lastTrips() {
    const recent = this.#samples.slice(-50).filter(({ at }) => at > this.last.at - TRIP_STANDS_MS);
    return [0, 1].map((side) => recent.findLast(({ trips }) => trips[side])?.trips[side].mean_ms ?? null);
  }

  // Returns the L2 bit/s that the packets of a rule delivered in the last second, or null if the rule is too
  // new.
  ruleRate(way, name) {
    const [first, last] = [this.#samples.at(-11) ?? this.#samples[0], this.last];
    const bytes = (sample) => sample?.ways[way].rules.find((one) => one.name === name)?.delivered_bytes;
    const more = (bytes(last) - bytes(first)) * 8;
    return Number.isFinite(more) && last.at > first.at ? (more * 1000) / (last.at - first.at) : null;
  }

  // Returns the number of the first sample since a time; at least 1, so that a sample precedes it.
  #first(from) {
    let [low, high] = [1, this.#samples.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.#samples[middle].at < from) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

// Returns the values of several samples; the first is the reference of the others.
function span(at, samples) {
  const [first, rest] = [samples[0], samples.slice(1)];
  const last = rest.at(-1);
  const seconds = (last.at - first.at) / 1000;
  const mean = (values) => {
    const seen = values.filter((value) => value !== null);
    return seen.length ? seen.reduce((sum, value) => sum + value, 0) / seen.length : null;
  };
  const ways = [0, 1].map((way) => {
    const of = (key) => rest.map((sample) => sample.ways[way][key]);
    const waits = of("wait").filter((wait) => wait !== null);
    const came = last.ways[way].packets - first.ways[way].packets;
    const lost = last.ways[way].lost - first.ways[way].lost;
    return {
      offered: mean(of("offered")),
      delivered: mean(of("delivered")),
      wait: waits.length ? Math.max(...waits) : null,
      // A queue may drop more packets in a span than arrived in it.
      lost: came > 0 ? Math.min(1, lost / came) : null,
      inForce: last.ways[way].inForce,
    };
  });
  const trips = [0, 1].map((side) => {
    const seen = rest.map((sample) => sample.trips[side]).filter((trip) => trip !== null);
    const count = seen.reduce((sum, trip) => sum + trip.count, 0);
    return count ? seen.reduce((sum, trip) => sum + trip.count * trip.mean_ms, 0) / count : null;
  });
  const causes = {};
  for (const way of [0, 1]) {
    for (const [cause, n] of Object.entries(last.ways[way].causes)) {
      const more = n - (first.ways[way].causes[cause] ?? 0);
      causes[cause] = (causes[cause] ?? 0) + more / seconds;
    }
  }
  return { at, ways, trips, causes };
}

// Returns the points of a curve of round trips. The line continues over spans without one, unless
// there was none for some time.
export function tripPoints(spans, side) {
  let last = -Infinity;
  const points = [];
  for (const span of spans) {
    const value = span.gap ? null : span.trips[side];
    if (value !== null) last = span.at;
    if (value !== null || span.gap || span.at - last > TRIP_STANDS_MS) points.push([span.at, value]);
  }
  return points;
}
