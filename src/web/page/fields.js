// The fields of conditions: one row per condition, with a value for both directions or, if these
// differ, one for up and one for down.

import { element, say } from "./dom.js";
import { at, text } from "./spec.js";
import { named, read, traceText } from "./trace.js";
import { stepped } from "./units.js";

// These conditions are always shown; the others on request, or if they have a value.
const COMMON = ["delay", "jitter", "loss", "rate", "queue", "aqm"];
const WAYS = [["", "both directions"], ["up.", "up"], ["down.", "down"]];

// A set of rows for conditions below a path: "", "rules.0." or "hops.0.".
export class Fields {
  // `conditions` is the response of GET /v1/conditions. `onEdit(path, text)` is called for every
  // edit, `onStep()` for a step by key or button, and `onFocus(condition)` for the condition whose
  // help to show.
  constructor(conditions, below, { onEdit, onStep, onFocus }) {
    Object.assign(this, { below, onEdit, onStep, onFocus });
    this.inputs = new Map();
    this.choosers = [];
    const row = (condition) => this.row(condition);
    const common = conditions.filter(({ key }) => COMMON.includes(key));
    const others = conditions.filter(({ key }) => !COMMON.includes(key));
    this.more = element("details", { class: "more" }, element("summary", {}, `${others.length} more conditions`), ...others.flatMap(row));
    const heads = WAYS.map(([way, name]) => element("span", { class: way ? "one-way" : "" }, name));
    this.element = element("div", { class: "fields" },
      element("div", { class: "row heads", "aria-hidden": "true" }, element("span"), ...heads),
      ...common.flatMap(row), this.more);
  }

  row(condition) {
    const { key } = condition;
    const id = `c-${this.below}${key}`.replaceAll(".", "-");
    const error = element("p", { class: "error", id: `${id}-error` });
    const inputs = WAYS.map(([way, name]) => {
      const input = element("input", {
        type: "text", id: `${id}${way && `-${name}`}`, "aria-describedby": `help ${id}-error`, class: way ? "one-way" : "", "data-way": name,
        autocomplete: "off", autocapitalize: "off", spellcheck: "false",
        "aria-label": way ? `${key} ${name}` : null,
        input: () => this.edited(input),
        focus: () => this.onFocus(condition),
        keydown: (event) => this.onKey(event, input),
      });
      Object.assign(input, { path: `${this.below}${way}${key}`, way, condition, error });
      this.inputs.set(input.path, input);
      return input;
    });
    const step = (up) => element("button", {
      type: "button", class: "step", tabindex: -1, "aria-hidden": "true", title: `${up ? "Increase (up arrow key)" : "Decrease (down arrow key)"}`, click: () => this.step(inputs[0], up, false),
    }, up ? "+" : "\u2212");
    const steps = [step(false), step(true)];
    inputs[0].steps = steps;
    const label = element("label", { for: inputs[0].id }, key.replaceAll("_", " "));
    const fields = element("div", { class: "row" }, label, element("span", { class: "value" }, steps[0], inputs[0], steps[1]), inputs[1], inputs[2], error);
    return key === "trace" ? [fields, this.files(inputs)] : [fields];
  }

  // Returns a row of controls that choose the file of a trace.
  files(inputs) {
    const choosers = inputs.map((input, at) => {
      const chooser = element("input", {
        type: "file", id: `${input.id}-file`, class: input.way ? "one-way" : "", "aria-label": `trace file, ${WAYS[at][1]}`,
        focus: () => this.onFocus(input.condition), change: () => this.choose(input, chooser),
      });
      return chooser;
    });
    this.choosers.push(...choosers);
    return element("div", { class: "row" }, element("label", { for: choosers[0].id }, "trace file"), ...choosers);
  }

  // Puts the trace of the chosen file into its field. The same file can be chosen again after it was changed.
  async choose(input, chooser) {
    const [file] = chooser.files;
    if (!file) return;
    try {
      input.trace = await read(file);
      input.value = traceText(input.trace);
      this.edited(input);
    } catch (error) {
      // The API knows nothing of this file, so its answers leave this in place.
      input.error.unread = input;
      input.setAttribute("aria-invalid", "true");
      say(input.error, error.message);
    }
    chooser.value = "";
  }

  onKey(event, input) {
    if (event.key === "Escape" && input.classList.contains("edited")) {
      input.value = input.before;
      this.edited(input);
    }
    const up = { ArrowUp: true, ArrowDown: false }[event.key];
    if (up === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    this.step(input, up, event.shiftKey);
  }

  step(input, up, far) {
    const value = stepped(input.value || input.placeholder, up, far, input.condition.value_name);
    if (value === null) return;
    input.value = value;
    this.edited(input);
    this.onStep();
  }

  edited(input) {
    if (input.error.unread === input) input.error.unread = undefined;
    const typed = input.value.trim();
    this.onEdit(input.path, input.condition.key === "trace" ? named(typed, input.trace) : typed);
    this.mark(input);
    if (input.way) return;
    for (const [way] of WAYS.slice(1)) this.inputs.get(`${this.below}${way}${input.condition.key}`).placeholder = input.value.trim();
  }

  mark(input) {
    const isEdited = input.value.trim() !== input.before;
    input.classList.toggle("edited", isEdited);
    input.title = isEdited ? `applied: ${input.before || "nothing"}` : "";
    for (const [at, button] of input.steps?.entries() ?? []) {
      button.disabled = input.disabled || stepped(input.value, at === 1, false, input.condition.value_name) === null;
    }
  }

  // Shows conditions and marks the values that differ from those in force. The field that has the
  // focus is left alone.
  show(draft, inForce) {
    for (const [path, input] of this.inputs) {
      input.before = text(at(inForce, path));
      const value = text(at(draft, path));
      if (at(draft, path)?.file) input.trace = at(draft, path);
      if (input.value.trim() !== value) input.value = value;
      if (input.way) input.placeholder = text(at(draft, `${this.below}${input.condition.key}`));
      this.mark(input);
    }
    const isSaid = [...this.more.querySelectorAll("input")].some((input) => input.value);
    if (isSaid) this.more.open = true;
  }

  // Returns true if a direction has its own value.
  saysOneWay() {
    return [...this.inputs.values()].some((input) => input.way && input.value);
  }

  // Shows an error beside the field that it names; returns `false` if there is no such field.
  refuse(path, words) {
    const input = this.inputs.get(path) ?? this.inputs.get(path.replace(/\.(\d+)$|\[\d+\]$/, ""));
    if (!input) return false;
    input.setAttribute("aria-invalid", "true");
    say(input.error, words);
    if (this.more.contains(input)) this.more.open = true;
    return true;
  }

  forgive() {
    for (const input of this.inputs.values()) {
      if (input.error.unread !== input) input.removeAttribute("aria-invalid");
      // The fields of both directions share the place of the error.
      if (!input.error.unread) say(input.error, "");
    }
  }

  set disabled(is) {
    for (const input of this.inputs.values()) {
      input.disabled = is;
      this.mark(input);
    }
    for (const chooser of this.choosers) chooser.disabled = is;
  }
}
