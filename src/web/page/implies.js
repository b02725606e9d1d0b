// The effects of conditions, as computed by the server.

import { element } from "./dom.js";
import { ms, number, rate, size } from "./units.js";

const percent = (value) => `${number(value)} %`;
// The rows of the table: the name of each effect, a note on it, and the format of its value.
const LINES = [
  ["lowest rate", "of full frames, L2", (way) => way.rate_bit_per_s !== undefined && rate(way.rate_bit_per_s)],
  ["policer rate", "faster traffic is dropped", (way) => way.police_bit_per_s !== undefined && rate(way.police_bit_per_s)],
  ["BDP", "bandwidth-delay product: bytes in flight that keep the bottleneck busy", (way) => way.bdp_bytes !== undefined && size(way.bdp_bytes)],
  ["queue size", "before the lowest rate", (way) => way.queue_bytes !== undefined && size(way.queue_bytes)],
  ["delay of a full queue", "for its last packet", (way) => way.queue_ms !== undefined && ms(way.queue_ms)],
  ["AQM target", "the delay that the queue management aims at", (way) => way.aqm_target_ms !== undefined && ms(way.aqm_target_ms)],
  ["random loss", "in the long run", (way) => way.loss_percent !== undefined && percent(way.loss_percent)],
  ["burst of losses", "on average", (way) => way.burst_packets !== undefined && way.burst_packets > 1.005 && `${number(way.burst_packets)} packets`],
  ["dropped", "of 10,000 simulated packets", (way) => percent(way.tried.dropped_percent)],
  ["delay", "mean and standard deviation of these packets", (way) => way.tried.delay_ms && `${ms(way.tried.delay_ms.mean)}, SD ${ms(way.tried.delay_ms.deviation)}`],
  ["overtaken", "of these packets, by RFC 4737", (way) => way.tried.reordered_percent > 0 && percent(way.tried.reordered_percent)],
];

// Fills the table and the notes of an InEffect.
export function implied(effect) {
  const lines = LINES.map(([name, about, read]) => [name, about, read(effect.up), read(effect.down)]).filter(([, , up, down]) => up || down);
  const line = ([name, about, up, down]) => element("tr", {}, element("th", { scope: "row", title: about }, name),
    ...(up === down ? [element("td", { colspan: 2 }, up)] : [element("td", {}, up || "–"), element("td", {}, down || "–")]));
  const isApart = lines.some(([, , up, down]) => up !== down);
  const heads = isApart ? [element("th", { scope: "col" }, "up"), element("th", { scope: "col" }, "down")] : [element("th", { scope: "col", colspan: 2 }, "both directions")];
  const round = element("tr", {}, element("th", { scope: "row", title: "propagation in both directions, without queues" }, "round trip"), element("td", { colspan: 2 }, ms(effect.round_trip_ms)));
  return [
    element("table", { class: "implied" }, element("thead", {}, element("tr", {}, element("td"), ...heads)), element("tbody", {}, ...lines.map(line), round)),
    ...(effect.notes.length ? [element("ul", { class: "notes" }, ...effect.notes.map((note) => element("li", {}, note)))] : []),
  ];
}
