// The effects of conditions, as computed by the server.

import { element } from "./dom.js";
import { ms, number, rate, size } from "./units.js";

const percent = (value) => `${number(value)} %`;
// The rows of the table: the name of each effect, a note on it, and the format of its value.
const LINES = [
  ["slowest rate", "of full frames, L2", (way) => way.rate_bit_per_s !== undefined && rate(way.rate_bit_per_s)],
  ["policed to", "what comes faster is dropped", (way) => way.police_bit_per_s !== undefined && rate(way.police_bit_per_s)],
  ["BDP", "rate times round trip: what one connection has in flight to fill it", (way) => way.bdp_bytes !== undefined && size(way.bdp_bytes)],
  ["queue when full", "before the slowest rate", (way) => way.queue_bytes !== undefined && size(way.queue_bytes)],
  ["then the wait is", "for the last packet of a full queue", (way) => way.queue_ms !== undefined && ms(way.queue_ms)],
  ["its AQM aims at", "the wait that the queue's management keeps to", (way) => way.aqm_target_ms !== undefined && ms(way.aqm_target_ms)],
  ["lost at random", "in the long run", (way) => way.loss_percent !== undefined && percent(way.loss_percent)],
  ["lost in a row", "in the mean", (way) => way.burst_packets !== undefined && way.burst_packets > 1.005 && `${number(way.burst_packets)} packets`],
  ["dropped", "of 10,000 packets tried in model time", (way) => percent(way.tried.dropped_percent)],
  ["delay", "mean and deviation of those packets", (way) => way.tried.delay_ms && `${ms(way.tried.delay_ms.mean)} ± ${number(way.tried.delay_ms.deviation, 2)}`],
  ["overtaken", "of those packets, after RFC 4737", (way) => way.tried.reordered_percent > 0 && percent(way.tried.reordered_percent)],
];

// Fills the table and the notes of an InEffect.
export function implied(effect) {
  const lines = LINES.map(([name, about, read]) => [name, about, read(effect.up), read(effect.down)]).filter(([, , up, down]) => up || down);
  const line = ([name, about, up, down]) => element("tr", {}, element("th", { scope: "row", title: about }, name),
    ...(up === down ? [element("td", { colspan: 2 }, up)] : [element("td", {}, up || "–"), element("td", {}, down || "–")]));
  const isApart = lines.some(([, , up, down]) => up !== down);
  const heads = isApart ? [element("th", { scope: "col" }, "up"), element("th", { scope: "col" }, "down")] : [element("th", { scope: "col", colspan: 2 }, "each way")];
  const round = element("tr", {}, element("th", { scope: "row", title: "propagation both ways, without queues" }, "round trip"), element("td", { colspan: 2 }, ms(effect.round_trip_ms)));
  return [
    element("table", { class: "implied" }, element("thead", {}, element("tr", {}, element("td"), ...heads)), element("tbody", {}, ...lines.map(line), round)),
    ...(effect.notes.length ? [element("ul", { class: "notes" }, ...effect.notes.map((note) => element("li", {}, note)))] : []),
  ];
}
