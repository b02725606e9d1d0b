// Figures as text, and the steps of a quantity in tc's units.

// Formats a number with this many significant digits, without an exponent.
export function number(value, digits = 3) {
  // A value too small for nine decimal places is a rounding error of a sum.
  if (Math.abs(value) < 5e-10) return "0";
  const whole = Math.floor(Math.log10(Math.abs(value)));
  return value.toFixed(Math.max(0, Math.min(9, digits - 1 - whole)));
}

const RATES = [[1e9, "Gbit/s"], [1e6, "Mbit/s"], [1e3, "kbit/s"], [1, "bit/s"]];
const SIZES = [[1 << 30, "GiB"], [1 << 20, "MiB"], [1 << 10, "KiB"], [1, "bytes"]];

const scale = (value, units) => units.find(([size]) => value >= size) ?? units.at(-1);
// Returns the unit for a rate of this size.
export const rateUnit = (bitPerS) => scale(bitPerS, RATES);

function scaled(value, units) {
  const [size, unit] = scale(value, units);
  return `${size === 1 ? Math.round(value) : number(value / size)} ${unit}`;
}

export const rate = (bitPerS) => scaled(bitPerS, RATES);
export const size = (bytes) => scaled(bytes, SIZES);
export const ms = (value) => `${number(value)} ms`;
export const us = (value) => (value >= 1e4 ? ms(value / 1e3) : `${number(value)} us`);
export const percent = (share) => `${share === 0 ? "0" : number(share * 100, share < 1e-3 ? 1 : 3)} %`;
export const count = (value) => String(value).replace(/\B(?=(\d{3})+$)/g, "\u202f");

export function duration(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min${s % 60 ? ` ${s % 60} s` : ""}`;
  return `${Math.floor(s / 3600)} h ${Math.floor(s / 60) % 60} min`;
}

// Converts an RFC 3339 time to milliseconds since the epoch. Not every browser reads nanoseconds.
export const time = (text) => Date.parse(text.replace(/(\.\d{3})\d+/, "$1"));
export const clock = (at) => new Date(at).toTimeString().slice(0, 8);

const QUANTITY = /^(\d+(?:\.\d+)?)([a-zA-Z%]+)(.*)$/s;
// The first value after a step up from an empty field, by the placeholder of the value.
const FIRST = [[/^TIME/, "1ms"], [/^PERCENT/, "0.1%"], [/^RATE\[/, "10mbit"]];
const UNITS = [["ns", "us", "ms", "s"], ["bit", "kbit", "mbit", "gbit"], ["b", "kb", "mb"], ["KiB", "MiB"]];

// Returns a value that is one step greater or less: by about a tenth, to a round figure, or with
// `far` to the next of 1, 2 and 5. Options after it stay. Returns `null` for a value without steps.
export function stepped(text, up, far, valueName) {
  if (text.trim() === "") return up ? FIRST.find(([name]) => name.test(valueName))?.[1] ?? null : null;
  const [, figure, unit, rest] = QUANTITY.exec(text.trim()) ?? [];
  if (figure === undefined || Number(figure) === 0) return null;
  let value = far ? nextRound(Number(figure), up) : nextTenth(Number(figure), up);
  if (unit === "%") value = Math.min(value, 100);
  const [shown, shownUnit] = inUnit(value, unit);
  return `${shown}${shownUnit}${rest}`;
}

// 12500us is 12.5ms: from 1000 on the next unit is easier to read.
function inUnit(value, unit) {
  const family = UNITS.find((units) => units.includes(unit)) ?? [unit];
  const size = family[0] === "KiB" ? 1024 : 1000;
  let at = family.indexOf(unit);
  if (value >= size && at + 1 < family.length) [value, at] = [value / size, at + 1];
  else if (value < 1 && at > 0) [value, at] = [value * size, at - 1];
  return [String(Number(value.toPrecision(4))), family[at]];
}

function nextTenth(value, up) {
  const decade = 10 ** Math.floor(Math.log10(up ? value : value * 0.9999));
  const lead = (up ? value : value * 0.9999) / decade;
  const step = decade * (lead < 2 ? 0.1 : lead < 5 ? 0.2 : 0.5);
  const steps = value / step;
  return step * (up ? Math.floor(steps + 1.0001) : Math.ceil(steps - 1.0001));
}

function nextRound(value, up) {
  const decade = 10 ** Math.floor(Math.log10(value));
  const rounds = [0.5, 1, 2, 5, 10].map((round) => round * decade);
  return up ? rounds.find((round) => round > value * 1.0001) : rounds.findLast((round) => round < value * 0.9999);
}
