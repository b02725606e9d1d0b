// Curves over time as SVG, in the style of the report's charts: the palette of Okabe and Ito, with
// a dash pattern beside each colour.

import { element, svg, say } from "./dom.js";
import { number } from "./units.js";

const [LEFT, RIGHT, TOP, BOTTOM] = [44, 10, 8, 22];
// The dash patterns of the report. The colours are in the style sheet, because they differ between
// themes.
const DASHES = ["", "6 3", "2 3", "8 3 2 3", "12 4", "1 2", "8 3 2 3 2 3"];
// A point within this distance of the cursor still gives the value there.
const NEAR_MS = 400;
const ticksOf = [1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600];

// Rounds up to the next of 1, 2 and 5 with zeros.
function roundUp(value) {
  const decade = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((round) => round * decade).find((round) => round >= value * 0.9999);
}

// The time at the cursor as a share of the charts' width, which all charts have in common.
const cursor = { share: null, chart: null };
const charts = [];

function look(chart, share) {
  cursor.share = share === null ? null : Math.max(0, Math.min(1, share));
  cursor.chart = share === null ? null : chart;
  charts.forEach((one) => one.drawCursor());
}

export class Chart {
  // Creates a chart with `height` in pixels. `what` describes its content, for the caption and for
  // screen readers.
  constructor(place, { what, about, height, minimum = 0, tall = false }) {
    this.what = what;
    this.minimum = minimum;
    this.height = height;
    this.isTall = tall;
    this.unit = element("small");
    this.legend = element("span", { class: "legend" });
    this.drawing = svg("svg", { role: "img", tabindex: 0, height });
    this.axes = this.drawing.appendChild(svg("g"));
    this.curves = this.drawing.appendChild(svg("g"));
    this.marks = this.drawing.appendChild(svg("g", { class: "marks" }));
    this.here = this.drawing.appendChild(svg("g", { class: "here" }));
    this.readout = element("div", { class: "readout", "aria-hidden": "true", hidden: true });
    this.emptyWords = element("span");
    this.empty = element("p", { class: "empty", hidden: true }, this.emptyWords);
    const frame = element("div", { class: "frame" }, this.drawing, this.empty, this.readout);
    const caption = element("figcaption", { title: about }, element("span", {}, what, " ", this.unit), this.legend);
    this.said = element("p", { class: "unseen", "aria-live": "polite" });
    this.figure = element("figure", { class: tall ? "wide" : "" }, caption, frame, this.said);
    place.append(this.figure);
    this.listen();
    charts.push(this);
  }

  listen() {
    const share = (event) => (event.clientX - this.drawing.getBoundingClientRect().left - LEFT) / this.inner;
    this.drawing.addEventListener("pointermove", (event) => look(this, share(event)));
    this.drawing.addEventListener("pointerleave", () => look(this, null));
    this.drawing.addEventListener("blur", () => look(this, null));
    this.drawing.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -0.02, ArrowRight: 0.02, Home: -1, End: 1 }[event.key];
      if (event.key === "Escape") look(this, null);
      if (step === undefined) return;
      event.preventDefault();
      look(this, (cursor.share ?? 1) + step);
      say(this.said, this.words().join(", "));
    });
  }

  get inner() {
    return Math.max(50, this.width - LEFT - RIGHT);
  }

  // Draws `curves` ({label, look, faint, points: [[time, value or null], ...]}) from one time to
  // another. `empty` is the text if there is nothing to draw.
  draw({ from, to, curves, changes, unit, scale = 1, empty }) {
    this.width = this.drawing.clientWidth;
    if (!this.width) return;
    Object.assign(this, { from, to, list: curves, scale });
    const drawn = curves.filter((curve) => curve.points.some(([, value]) => value !== null));
    const most = Math.max(0, ...drawn.flatMap((curve) => curve.points.map(([, value]) => value ?? 0)));
    const top = Math.max(most / scale, this.minimum) || 1;
    this.step = roundUp(top / (this.isTall ? 5 : 3)) * scale;
    this.most = Math.ceil((top * scale) / this.step - 1e-6) * this.step;
    this.unitText = unit;
    say(this.unit, unit);
    this.drawAxes();
    this.curves.replaceChildren(...drawn.flatMap((curve) => this.curve(curve)));
    this.drawMarks(changes);
    this.drawLegend(curves.filter((curve) => !curve.faint));
    this.empty.hidden = drawn.length > 0;
    say(this.emptyWords, empty);
    this.drawCursor();
  }

  x(time) {
    return LEFT + ((time - this.from) / (this.to - this.from)) * this.inner;
  }

  y(value) {
    return this.height - BOTTOM - (value / this.most) * (this.height - TOP - BOTTOM);
  }

  drawAxes() {
    const shapes = [];
    const [right, bottom] = [this.width - RIGHT, this.height - BOTTOM];
    for (let value = 0; value < this.most + this.step / 2; value += this.step) {
      const y = this.y(value);
      shapes.push(svg("path", { class: "grid", d: `M${LEFT} ${y.toFixed(1)}H${right}` }));
      shapes.push(svg("text", { x: LEFT - 6, y: (y + 4).toFixed(1), "text-anchor": "end" }, String(Number(number(value / this.scale)))));
    }
    const seconds = (this.to - this.from) / 1000;
    const room = this.inner / 74;
    const step = ticksOf.find((tick) => seconds / tick <= room) ?? 600;
    for (let ago = 0; ago <= seconds; ago += step) {
      const x = this.x(this.to - ago * 1000);
      shapes.push(svg("path", { class: "tick", d: `M${x.toFixed(1)} ${bottom}v4` }));
      const text = ago === 0 ? "now" : step >= 60 ? `-${ago / 60} min` : `-${ago} s`;
      const anchor = ago === 0 ? "end" : x < LEFT + 14 ? "start" : "middle";
      shapes.push(svg("text", { x: ago === 0 ? right : x.toFixed(1), y: bottom + 16, "text-anchor": anchor }, text));
    }
    shapes.push(svg("path", { class: "axis", d: `M${LEFT} ${TOP}V${bottom}H${right}` }));
    this.axes.replaceChildren(...shapes);
  }

  curve(curve) {
    const parts = [];
    let part = [];
    for (const [time, value] of curve.points) {
      if (value === null && part.length) {
        parts.push(part);
        part = [];
      }
      if (value === null || time < this.from) continue;
      part.push(`${this.x(time).toFixed(1)},${this.y(value).toFixed(1)}`);
    }
    if (part.length) parts.push(part);
    const style = { class: `look${curve.look}${curve.faint ? " faint" : ""}`, "stroke-dasharray": curve.faint ? "" : DASHES[curve.look % 7] };
    return parts.map((points) => (points.length > 1
      ? svg("polyline", { ...style, points: points.join(" ") })
      : svg("circle", { ...style, cx: points[0].split(",")[0], cy: points[0].split(",")[1], r: 1.2 })));
  }

  // Draws a line where conditions changed, with its number in the tall chart. If there is no room
  // for two numbers, only the newer one is shown.
  drawMarks(changes) {
    let free = Infinity;
    this.marks.replaceChildren(...changes.filter(({ at }) => at >= this.from && at <= this.to).reverse().flatMap((change) => {
      const x = this.x(change.at);
      const text = String(change.revision);
      const shapes = [svg("path", { d: `M${x.toFixed(1)} ${TOP}V${this.height - BOTTOM}` })];
      const width = 10 + 7 * text.length;
      if (this.isTall && x + width / 2 < free && x - width / 2 > LEFT) {
        free = x - width / 2;
        shapes.push(svg("rect", { x: (x - width / 2).toFixed(1), y: TOP - 8, width, height: 16, rx: 3 }));
        shapes.push(svg("text", { x: x.toFixed(1), y: TOP + 4, "text-anchor": "middle" }, text));
      }
      return shapes;
    }));
  }

  drawLegend(curves) {
    const text = curves.map((curve) => curve.look + curve.label).join();
    if (this.legend.dataset.shown === text) return;
    this.legend.dataset.shown = text;
    this.legend.replaceChildren(...curves.map((curve) => element("span", {}, key(curve.look), curve.label)));
  }

  // Returns the points of the curves at the cursor, the nearest to it in time.
  found() {
    const time = this.from + cursor.share * (this.to - this.from);
    const near = (points) => points.reduce((best, point) => (Math.abs(point[0] - time) < Math.abs(best[0] - time) ? point : best));
    const seen = (curve) => curve.points.filter(([at, value]) => value !== null && Math.abs(at - time) <= Math.max(NEAR_MS, (this.to - this.from) / 100));
    return (this.list ?? []).map((curve) => ({ curve, points: seen(curve) })).filter(({ points }) => points.length)
      .map(({ curve, points }) => ({ curve, point: near(points) }));
  }

  words() {
    const ago = ((this.to - this.from) * (1 - cursor.share)) / 1000;
    const found = this.found().sort((one, other) => Boolean(one.curve.faint) - Boolean(other.curve.faint));
    const values = found.map(({ curve, point: [, value] }) => `${curve.label} ${number(value / this.scale)} ${this.unitText}`);
    return [`${number(ago)} s ago`, ...(values.length ? values : ["nothing"])];
  }

  drawCursor() {
    this.readout.hidden = true;
    if (cursor.share === null || !this.width) return this.here.replaceChildren();
    const x = LEFT + cursor.share * this.inner;
    const found = this.found();
    this.here.replaceChildren(
      svg("path", { d: `M${x.toFixed(1)} ${TOP}V${this.height - BOTTOM}` }),
      ...found.map(({ curve, point }) => svg("circle", { class: `look${curve.look}`, cx: this.x(point[0]).toFixed(1), cy: this.y(point[1]).toFixed(1), r: 3.5 })),
    );
    if (cursor.chart !== this) return;
    this.readout.hidden = false;
    say(this.readout, this.words().join("\n"));
    const wide = this.readout.offsetWidth;
    const left = x + 10 + wide < this.width ? x + 10 : x - 10 - wide;
    this.readout.style.left = `${Math.max(2, left)}px`;
  }

  // Describes the chart for screen readers.
  describe(text) {
    this.drawing.setAttribute("aria-label", `${this.what}: ${text}. Arrow keys read earlier values.`);
  }
}

// Draws the sample of a curve for a legend.
export const key = (look) => svg("svg", { class: "key", width: 22, height: 8, "aria-hidden": "true" },
  svg("path", { class: `look${look}`, d: "M0 4h22", "stroke-dasharray": DASHES[look % 7] }));
