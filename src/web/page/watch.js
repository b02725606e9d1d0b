// The charts and counters of a link, from its events, drawn four times per second.

import * as api from "./api.js";
import { Chart, key } from "./charts.js";
import { byId, element, rows, say } from "./dom.js";
import { Series, tripPoints } from "./series.js";
import { clock, count, duration, ms, number, percent, rate, rateUnit, size, time, us } from "./units.js";

const WAYS = ["up", "down"];
// The sides at which round trips are measured: the client's side, where up begins, and the
// server's.
const SIDES = ["at a", "at b"];
const TRIP = "from the arrival of a TCP segment or an ICMP echo at a side of the link until its acknowledgement or reply left there; side a is where up begins";
const TILES = [
  ["throughput", "Throughput", "delivered, L2 without FCS, over the last second"],
  ["wait", "Queue delay", "the longest delay in the bottleneck's queue in the last second"],
  ["trip", "Round trip", `the latest in the last seconds: ${TRIP}`],
  ["lost", "Lost", "share of dropped packets in the last second"],
  ["error", "Departure error", "how long after their due times packets left the emulator, since its start: median and 99th percentile"],
];
// The first looks belong to up and down.
const FIRST_CAUSE = 2;
const FIRST_SIDE = 2;
const COUNTERS = ["", "up", "down"];
// Charts of the conditions in force, for a link whose conditions change by themselves.
const IN_FORCE = [
  ["rateInForce", "Rate in force", "rate_bit_per_s", "The link's rate by its schedule, trace and outages, in L2 bytes of full frames; 0 while nothing passes"],
  ["delayInForce", "Delay in force", "delay_ms", "The link's propagation delay by its schedule, trace and handovers"],
  ["lossInForce", "Loss in force", "loss_percent", "The share of packets that the link loses at random by its schedule, trace, outages and handovers"],
];

export class Watch {
  constructor() {
    this.tiles = Object.fromEntries(TILES.map(([name, label, about]) => {
      const [first, second] = [element("dd"), element("dd")];
      const [names, firstLook] = name === "trip" ? [SIDES, FIRST_SIDE] : [WAYS, 0];
      const values = name !== "error" ? [first, second].map((dd, at) => {
        const value = element("b");
        dd.append(key(firstLook + at), element("span", { class: "unseen" }, `${names[at]}: `), value);
        return value;
      }) : [first, second].map((dd) => dd.appendChild(element("b")));
      byId("tiles").append(element("div", { title: about, id: `tile-${name}` }, element("dt", {}, label), first, second));
      return [name, values];
    }));
    const place = byId("figures");
    this.charts = {
      throughput: new Chart(place, { what: "Throughput", about: "Delivered, L2 without FCS; pale: arrived at the link", height: 210, tall: true }),
      wait: new Chart(place, { what: "Queue delay", about: "The longest delay in the bottleneck's queue", height: 140 }),
      trip: new Chart(place, { what: "Round trip", about: `The mean of the observed round trips, ${TRIP}`, height: 140 }),
      lost: new Chart(place, { what: "Lost", about: "Share of dropped packets", height: 140, minimum: 0.1 }),
      causes: new Chart(place, { what: "Drops by cause", about: "Both directions together", height: 140, minimum: 1 }),
    };
    for (const [name, what, , about] of IN_FORCE) this.charts[name] = new Chart(place, { what, about, height: 140 });
    this.clear();
    setInterval(() => this.draw(), 250);
  }

  // Forgets a link, because another one was chosen or it was restarted.
  clear() {
    Object.assign(this, { series: new Series(), sample: null, changes: [], dirty: true, causes: [] });
    rows(byId("changes"), [], []);
  }

  // Adds the changes that were made before this page was opened.
  async load(name) {
    for (const change of await api.changes(name)) this.change(change, false);
  }

  take(sample) {
    sample.time = time(sample.at);
    this.series.add(sample);
    this.sample = sample;
    this.dirty = true;
  }

  change(change) {
    if (this.changes.some(({ revision }) => revision === change.revision)) return;
    this.changes.push({ ...change, at: time(change.at) });
    this.changes.sort((one, other) => one.revision - other.revision);
    this.changes.splice(0, this.changes.length - 200);
    this.showChanges();
    this.dirty = true;
  }

  showChanges() {
    const newest = this.changes.slice(-20).reverse();
    const columns = ["revision", "at", "by", "conditions"];
    rows(byId("changes"), columns, newest.map(({ revision, at, by, says }) => [String(revision), clock(at), by, says]));
    byId("changes-none").hidden = newest.length > 0;
  }

  get now() {
    return this.sample?.time ?? Date.now();
  }

  draw() {
    if (document.hidden || !this.dirty || byId("hold").checked) return;
    this.dirty = false;
    if (this.sample) {
      this.drawTiles();
      this.drawCounters();
    }
    this.drawCharts();
  }

  drawTiles() {
    const second = this.series.lastSecond();
    if (!second) return;
    const { ways } = second;
    const error = this.sample.departure_error;
    const each = (show, none) => ways.map((way) => show(way) ?? none);
    const set = (name, texts) => texts.forEach((text, at) => say(this.tiles[name][at], text));
    set("throughput", each((way) => rate(way.delivered), "–"));
    set("wait", each((way) => way.wait !== null ? ms(way.wait) : null, "no queue"));
    set("lost", each((way) => way.lost !== null ? percent(way.lost) : null, "–"));
    set("trip", this.series.lastTrips().map((trip) => (trip !== null ? ms(trip) : "none")));
    set("error", [us(error.p50_us), `p99 ${us(error.p99_us)}`]);
  }

  drawCharts() {
    const seconds = Number(document.querySelector("[name=window]:checked").value);
    const to = this.now;
    const from = to - seconds * 1000;
    const spans = this.series.spans(from, to);
    const points = (read) => spans.map((span) => [span.at, span.gap ? null : read(span)]);
    const both = (read) => WAYS.map((label, way) => ({ label, look: way, points: points((span) => read(span.ways[way])) }));
    const trips = SIDES.map((label, side) => ({ label, look: FIRST_SIDE + side, points: tripPoints(spans, side) }));
    const seen = trips.some(({ points }) => points.some(([, value]) => value !== null));
    byId("tile-trip").hidden = this.charts.trip.figure.hidden = !seen;
    const frame = { from, to, changes: this.changes };
    // Values are those between two samples.
    const measured = spans.some((span) => !span.gap);
    const none = (words) => (measured ? words : "Waiting for samples.");
    const delivered = both((way) => way.delivered);
    const offered = both((way) => way.offered).map((curve) => ({ ...curve, label: `offered ${curve.label}`, faint: true }));
    const greatest = Math.max(1e3, ...[...delivered, ...offered].flatMap((curve) => curve.points.map(([, value]) => value ?? 0)));
    const [scale, unit] = rateUnit(greatest);
    this.charts.throughput.draw({ ...frame, curves: [...offered, ...delivered], unit, scale, empty: none("") });
    this.charts.wait.draw({ ...frame, curves: both((way) => way.wait), unit: "ms", empty: none("No queue: no rate is set.") });
    this.charts.trip.draw({ ...frame, curves: trips, unit: "ms", empty: "" });
    this.charts.lost.draw({ ...frame, curves: both((way) => way.lost === null ? null : way.lost * 100), unit: "%", empty: none("No packets arrived.") });
    this.charts.causes.draw({ ...frame, curves: this.causeCurves(spans), unit: "packets/s", empty: none("Nothing was dropped.") });
    for (const [name, , key] of IN_FORCE) this.drawInForce(name, key, frame, points);
    this.describe(seconds);
  }

  // Draws a condition in force. Its chart is hidden for a link whose conditions do not change by themselves, and for a
  // condition that it does not have.
  drawInForce(name, key, frame, points) {
    const chart = this.charts[name];
    const curves = WAYS.map((label, way) => ({ label, look: way, points: points((span) => span.ways[way].inForce?.[key] ?? null) }));
    const values = curves.flatMap((curve) => curve.points.map(([, value]) => value)).filter((value) => value !== null);
    chart.figure.hidden = !values.some((value) => value > 0);
    if (chart.figure.hidden) return;
    const [scale, unit] = key === "rate_bit_per_s" ? rateUnit(Math.max(1e3, ...values)) : [1, key === "delay_ms" ? "ms" : "%"];
    chart.draw({ ...frame, curves, unit, scale, empty: "" });
    const last = WAYS.map((label, way) => `${label} ${number((curves[way].points.at(-1)?.[1] ?? 0) / scale)} ${unit}`);
    chart.describe(`now ${last.join(", ")}`);
  }

  // Draws a curve for each cause that dropped packets in these spans. A cause keeps its look as
  // long as the link is shown.
  causeCurves(spans) {
    const found = new Set(spans.flatMap((span) => Object.entries(span.causes ?? {}).filter(([, n]) => n > 0).map(([cause]) => cause)));
    for (const cause of found) if (!this.causes.includes(cause)) this.causes.push(cause);
    return this.causes.filter((cause) => found.has(cause)).map((cause) => ({
      label: cause, look: (FIRST_CAUSE + this.causes.indexOf(cause)) % 7, points: spans.map((span) => [span.at, span.gap ? null : span.causes[cause] ?? 0]),
    }));
  }

  // Describes the charts in words by their last values.
  describe(seconds) {
    const second = this.series.lastSecond();
    const over = `over the last ${duration(seconds)}`;
    const both = (read) => (second ? `${over}; now ${WAYS.map((name, way) => `${name} ${read(second.ways[way])}`).join(", ")}` : "no samples yet");
    const { throughput, wait, trip, lost, causes } = this.charts;
    const trips = this.sample ? this.series.lastTrips().map((time, side) => `${SIDES[side]} ${time === null ? "none" : ms(time)}`) : [];
    trip.describe(`${TRIP}; ${over}; now ${trips.join(", ")}`);
    throughput.describe(both((way) => rate(way.delivered)));
    wait.describe(both((way) => (way.wait === null ? "no queue" : ms(way.wait))));
    lost.describe(both((way) => (way.lost === null ? "no packets" : percent(way.lost))));
    const dropped = Object.entries(second?.causes ?? {}).filter(([, n]) => n > 0);
    causes.describe(dropped.map(([cause, n]) => `${cause} ${number(n)} packets/s`).join(", ") || "nothing dropped now");
  }

  drawCounters() {
    const { up, down, departure_error: error, held_bytes: held } = this.sample;
    const line = (name, read) => [name, read(up), read(down)];
    const causes = (kind) => [...new Set([...Object.keys(up[kind]), ...Object.keys(down[kind])])];
    const drops = (kind, word) => causes(kind).map((cause) => line(`${word}: ${cause}`, (way) => count(way[kind][cause] ?? 0)));
    const queue = (way) => (way.queue_packets == null ? "no queue" : `${count(way.queue_packets)} (${size(way.queue_bytes)})`);
    const some = ["copies", "marked", "edited"].filter((name) => up[name] || down[name]);
    const hops = [...new Set([up, down].flatMap((way) => way.hops ?? []).map(({ name }) => name))];
    const droppedAt = (name) => (way) => {
      const { dropped } = way.hops.find((hop) => hop.name === name) ?? { dropped: {} };
      return count(Object.values(dropped).reduce((sum, n) => sum + n, 0));
    };
    rows(byId("counters"), COUNTERS, [
      line("packets received", (way) => count(way.packets)),
      line("bytes received, L2", (way) => size(way.bytes)),
      line("delivered", (way) => count(way.delivered)),
      ...drops("dropped", "dropped"),
      ...hops.map((name) => line(`dropped at hop ${name}`, droppedAt(name))),
      ...drops("emulator_lost", "lost by the emulator"),
      ...some.map((name) => line(name, (way) => count(way[name]))),
      line("in flight now", (way) => count(way.in_flight)),
      line("in the queue now", queue),
    ]);
    const late = error.late ? `${count(error.late)} packets left more than ${us(error.budget_us)} late, so measurements may show this machine and not the link` : `none left more than ${us(error.budget_us)} late`;
    say(byId("departures"), `Departure error: median ${us(error.p50_us)}, p99 ${us(error.p99_us)}, max ${us(error.max_us)}; ${late}. Memory for frames now: ${size(held)}.`);
    byId("departures").classList.toggle("bad", error.late > 0);
    this.drawRules();
  }

  drawRules() {
    const rules = WAYS.flatMap((way, at) => (this.sample[way].rules ?? []).map((one) => ({ way, rate: this.series.ruleRate(at, one.name), ...one })));
    byId("by-rule").hidden = !rules.length;
    const dropped = (one) => Object.entries(one.dropped).map(([cause, n]) => `${cause} ${count(n)}`).join(", ") || "0";
    rows(byId("rule-counters"), ["rule", "way", "throughput", "packets", "delivered", "dropped"], rules.map((one) => [
      one.name, one.way, one.rate === null ? "–" : rate(one.rate), count(one.packets), count(one.delivered), dropped(one),
    ]));
  }
}
