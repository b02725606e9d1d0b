// What a link's samples said, for the last ten minutes, and what of it a chart draws.

const KEPT_MS = 601_000;
// A curve has at most so many points.
const MOST_POINTS = 300;
// Round trips may be seen now and then only: so long one stands.
const TRIP_STANDS_MS = 3_000;

const total = (counts) => Object.values(counts).reduce((sum, n) => sum + n, 0);

// A sample as it is kept: cumulative counters as they came, so that any span is a difference.
const kept = (sample) => ({
  at: sample.time,
  ways: [sample.up, sample.down].map((way) => ({
    offered: way.offered_bit_per_s,
    delivered: way.delivered_bit_per_s,
    wait: way.queue_delay_ms ?? null,
    packets: way.packets,
    lost: total(way.dropped),
    causes: way.dropped,
    classes: way.classes ?? [],
  })),
  trips: [sample.round_trips.a, sample.round_trips.b],
});

export class Series {
  #samples = [];

  add(sample) {
    const last = this.#samples.at(-1);
    if (last && sample.time <= last.at) return;
    this.#samples.push(kept(sample));
    // By the hundred, because each shift moves all.
    if (this.#samples[100]?.at < sample.time - KEPT_MS) this.#samples.splice(0, 100);
  }

  get last() {
    return this.#samples.at(-1) ?? null;
  }

  // Spans of equal length that reach from `from` on, each with what its samples say: means of rates and round trips, the greatest wait of
  // a queue, shares of the packets that came. Spans begin at multiples of their length, so that a curve keeps its shape as it moves.
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
        // The last sample before is what counters are counted from; after a gap nothing is.
        const before = samples.at(-1);
        if (before && sample.at - before.at > 2 * length + 1000) spans.push({ at: before.at + 1, gap: true });
        [at, samples] = [own, before ? [before] : []];
      }
      samples.push(sample);
    }
    close();
    return spans;
  }

  // The same of the last second.
  lastSecond() {
    const samples = this.#samples.slice(-11);
    return samples.length > 1 ? span(samples.at(-1).at, samples) : null;
  }

  // The latest round trip of each side, in ms; null of one that saw none for some time.
  lastTrips() {
    const recent = this.#samples.slice(-50).filter(({ at }) => at > this.last.at - TRIP_STANDS_MS);
    return [0, 1].map((side) => recent.findLast(({ trips }) => trips[side])?.trips[side].mean_ms ?? null);
  }

  // What a class got through in the last second, in bit/s of L2; null where it is too new.
  classRate(way, name) {
    const [first, last] = [this.#samples.at(-11) ?? this.#samples[0], this.last];
    const bytes = (sample) => sample?.ways[way].classes.find((one) => one.name === name)?.delivered_bytes;
    const more = (bytes(last) - bytes(first)) * 8;
    return Number.isFinite(more) && last.at > first.at ? (more * 1000) / (last.at - first.at) : null;
  }

  // The number of the first sample since a time; at least 1, so that one stands before it.
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

// What samples say together; the first is what the others are counted from.
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
      // A queue may drop more in a span than came in it.
      lost: came > 0 ? Math.min(1, lost / came) : null,
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

// The points of a curve of round trips: a line goes on over spans without one, unless there was none for some time.
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
