// A running experiment: its progress and its figures. Without an experiment, nothing is shown.

import * as api from "./api.js";
import { byId, rows, say } from "./dom.js";
import { count, duration, number } from "./units.js";

const EVERY_MS = 2_000;
let timer = null;

// Describes a run: its case and its number.
export const runWords = ({ case: name, repeat, attempt }) => `${name}, run ${repeat}${attempt > 1 ? `, attempt ${attempt}` : ""}`;

// Reads the progress of the experiment repeatedly, as long as there is one.
export async function follow() {
  clearTimeout(timer);
  let run = null;
  try {
    run = await api.run();
  } catch (error) {
    // The code that follows the events reports whether the server can be reached.
    if (!(error instanceof api.Refused)) timer = setTimeout(follow, EVERY_MS);
    return;
  }
  byId("run").hidden = byId("run-figures").hidden = run === null;
  if (run === null) return;
  show(run);
  timer = setTimeout(follow, EVERY_MS);
}

function show(run) {
  const { scenario, done, planned, eta_s: eta, phase, next, rows: figures } = run;
  say(byId("run-title"), scenario);
  const bar = byId("run-bar");
  [bar.max, bar.value] = [planned, done];
  const left = eta === null ? "" : `, about ${duration(eta)} left`;
  const now = [run.case && runWords(run), phase].filter(Boolean).join(": ");
  say(byId("run-state"), `${done} of ${planned} runs${left}${now ? `. Now: ${now}` : ""}${next ? `. Next: ${runWords(next)}` : ""}`);
  const value = (one) => (one == null ? "–" : one >= 1e4 ? count(Math.round(one)) : number(one, 4));
  const interval = ({ low, high }) => (low == null || high == null ? "–" : `${value(low)} to ${value(high)}`);
  rows(byId("run-rows"), ["case", "instrument", "figure", "value", "95 % interval", "valid"], figures.map((figure) => [
    figure.case, figure.instrument, figure.figure, value(figure.value), interval(figure), figure.valid ? "yes" : "no",
  ]));
}
