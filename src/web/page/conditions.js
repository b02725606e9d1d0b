// The form that changes a link: fields with a draft, a preview of its effects, undo and redo,
// profiles, and leases.

import * as api from "./api.js";
import { byId, element, say } from "./dom.js";
import { Fields } from "./fields.js";
import { Hops } from "./hops.js";
import { implied } from "./implies.js";
import { Rules } from "./rules.js";
import { patch, patched, same, set } from "./spec.js";
import { adopt } from "./trace.js";
import { clock, time } from "./units.js";

const DRY_RUN_AFTER_MS = 250;
const STEP_AFTER_MS = 120;
// The number of earlier conditions that undo can reach.
const MOST_SEEN = 100;

// Formats a profile's name and description.
const title = ({ name, about }) => (about ? `${name}: ${about}` : name);

export class Conditions {
  // `onChanged(link)` receives every link in a response, `announce(text, isError)` every message
  // for the user. `linkTime()` returns the present time on the link's clock.
  constructor(conditions, profiles, { offersSchedule, onChanged, announce, linkTime }) {
    Object.assign(this, { profiles, offersSchedule, onChanged, announce, linkTime, link: null, draft: {}, seen: [], now: -1 });
    const listener = {
      onEdit: (path, value) => this.edit(path, value),
      onStep: () => this.afterStep(),
      onFocus: (condition) => this.help(condition),
      onRemove: (number) => this.removeRule(number),
    };
    this.fields = new Fields(conditions, "", listener);
    byId("fields").append(this.fields.element);
    this.rules = new Rules(byId("rules"), conditions, listener);
    this.hops = new Hops(byId("hops"), conditions, { ...listener, onRemove: (number) => this.removeHop(number) });
    byId("profiles").append(...profiles.map((profile) => element("option", { value: profile.name }, title(profile))));
    const fitted = profiles.filter(({ source }) => source === "fitted");
    byId("fitted").append(...fitted.map((profile) => this.offer(profile)));
    this.listen();
    setInterval(() => { if (this.link) this.showSchedule(); }, 1_000);
  }

  listen() {
    const on = (id, kind, act) => byId(id).addEventListener(kind, act);
    on("form", "submit", (event) => { event.preventDefault(); this.apply(); });
    on("undo", "click", () => this.step(-1));
    on("redo", "click", () => this.step(1));
    on("discard", "click", () => { this.draft = structuredClone(this.link.conditions); this.showDraft(); });
    on("clear", "click", () => this.replace({}, "no conditions"));
    on("profiles", "change", () => this.useProfile());
    on("add-rule", "click", () => this.addRule());
    on("add-hop", "click", () => this.addHop());
    on("schedule-start", "click", () => this.schedule({ state: "running" }, "schedule started"));
    on("schedule-stop", "click", () => this.schedule({ state: "stopped" }, "schedule stopped"));
    on("schedule-seek", "click", () => this.seek());
    on("seek", "keydown", (event) => {
      if (event.key !== "Enter") return;
      event.preventDefault();
      this.seek();
    });
    on("apart", "change", () => byId("conditions").classList.toggle("apart", byId("apart").checked));
    on("lease-seconds", "input", () => { byId("lease-wanted").checked = true; });
    document.addEventListener("keydown", (event) => {
      const isText = event.target.matches("input[type=text], input[type=password], textarea");
      if (!(event.ctrlKey || event.metaKey) || event.key.toLowerCase() !== "z" || isText) return;
      event.preventDefault();
      this.step(event.shiftKey ? 1 : -1);
    });
  }

  // Shows the current state of a link. Edits that are not applied stay.
  show(link) {
    const isOther = this.link?.name !== link.name || this.link.started !== link.started;
    const edits = isOther ? {} : patch(this.link.conditions, this.draft);
    if (isOther) [this.seen, this.now] = [[], -1];
    this.link = link;
    this.remember(link.conditions);
    this.draft = patched(link.conditions, edits);
    this.showDraft();
    if (isOther && this.saysOneWay()) {
      byId("apart").checked = true;
      byId("conditions").classList.add("apart");
    }
  }

  // Adds conditions to the steps of undo and redo. A change by another client is one more step, and
  // it clears the steps of redo.
  remember(conditions) {
    if (this.now >= 0 && same(this.seen[this.now], conditions)) return;
    const target = this.target ?? -1;
    if (target >= 0 && same(this.seen[target], conditions)) {
      this.now = target;
    } else {
      this.seen.splice(this.now + 1, Infinity, structuredClone(conditions));
      if (this.seen.length > MOST_SEEN) this.seen.shift();
      this.now = this.seen.length - 1;
    }
  }

  get allFields() {
    return [this.fields, ...this.rules.fields, ...this.hops.fields];
  }

  saysOneWay() {
    return this.allFields.some((fields) => fields.saysOneWay());
  }

  edit(path, value) {
    set(this.draft, path, value);
    this.afterEdit();
  }

  addRule() {
    const rules = (this.draft.rules ??= []);
    const names = rules.map(({ name }) => name);
    const number = [...names, ""].findIndex((_, at) => !names.includes(`rule-${at + 1}`)) + 1;
    rules.push({ name: `rule-${number}`, match: "udp" });
    this.showDraft();
    byId(`c-rules-${rules.length - 1}-match`).focus();
  }

  removeRule(number) {
    this.draft.rules.splice(number, 1);
    if (!this.draft.rules.length) delete this.draft.rules;
    this.showDraft();
    byId("add-rule").focus();
  }

  addHop() {
    const hops = (this.draft.hops ??= []);
    const names = hops.map(({ name }) => name);
    const number = [...names, ""].findIndex((_, at) => !names.includes(`hop-${at + 1}`)) + 1;
    hops.push({ name: `hop-${number}` });
    this.showDraft();
    byId(`c-hops-${hops.length - 1}-name`).focus();
  }

  removeHop(number) {
    this.draft.hops.splice(number, 1);
    if (!this.draft.hops.length) delete this.draft.hops;
    this.showDraft();
    byId("add-hop").focus();
  }

  showDraft() {
    this.fields.show(this.draft, this.link.conditions);
    this.rules.show(this.draft, this.link.conditions);
    this.hops.show(this.draft, this.link.conditions);
    const others = ["toffee", "stages", "schedule"].filter((key) => key in this.draft);
    byId("kept").hidden = !others.length;
    this.showSchedule();
    say(byId("kept"), `${others.join(", ")}: unchanged here; change them with a link file.`);
    this.afterEdit();
  }

  get edits() {
    return patch(this.link.conditions, this.draft);
  }

  // Updates which buttons are usable, and previews the effects of the draft once the user stops
  // typing.
  afterEdit() {
    const isEdited = Object.keys(this.edits).length > 0;
    const locked = this.isLocked;
    byId("apply").disabled = locked || !isEdited;
    byId("discard").disabled = !isEdited;
    byId("undo").disabled = locked || this.now < 1;
    byId("redo").disabled = locked || this.now + 1 >= this.seen.length;
    byId("clear").disabled = locked || !Object.keys(this.link.conditions).length;
    say(byId("implies-title"), isEdited ? "Effect if applied" : "Effect");
    byId("implies").classList.toggle("tried", isEdited);
    clearTimeout(this.dryRunTimer);
    this.dryRunTimer = setTimeout(() => this.dryRun(), DRY_RUN_AFTER_MS);
  }

  async dryRun() {
    if (this.isLocked) return;
    this.trying?.abort();
    this.trying = new AbortController();
    try {
      const { implies } = await api.change(this.link.name, { whole: this.draft, dryRun: true, signal: this.trying.signal });
      this.forgive();
      byId("implies-body").replaceChildren(...implied(implies));
    } catch (error) {
      if (error.name !== "AbortError") this.refuse(error, true);
    }
  }

  // Applies a step by key or button automatically if the user has enabled that. Of several quick
  // steps only the last is applied.
  afterStep() {
    if (!byId("live").checked) return;
    clearTimeout(this.stepTimer);
    this.stepTimer = setTimeout(() => this.apply(), STEP_AFTER_MS);
  }

  // Puts the edits into force, unless another client has changed the link since this page saw it.
  async apply() {
    if (this.isLocked || !Object.keys(this.edits).length) return;
    if (this.isApplying) return this.afterStep();
    await this.send({ patch: this.edits }, null);
  }

  // Replaces all conditions by others and drops the edits.
  async replace(conditions, what) {
    if (await this.send({ whole: conditions }, what)) {
      this.draft = structuredClone(this.link.conditions);
      this.showDraft();
    }
  }

  async step(by) {
    const target = this.now + by;
    if (this.isLocked || !this.seen[target]) return;
    this.target = target;
    await this.replace(this.seen[target], by < 0 ? "undone" : "redone");
    this.target = null;
  }

  showSchedule() {
    const { schedule } = this.link;
    byId("schedule").hidden = !this.offersSchedule || !schedule;
    if (!schedule) return;
    const runs = schedule.state === "running";
    // A schedule that waits for the first packet begins at a time that the page does not know.
    const waits = this.link.conditions.start === "first-packet";
    const since = (this.linkTime() - time(this.link.since)) / 1000;
    const position = waits ? "" : `, at ${(schedule.time_s + Math.max(0, since)).toFixed(0)} s`;
    say(byId("schedule-state"), runs ? `is running${position}` : `is stopped at ${schedule.time_s.toFixed(3)} s`);
    byId("schedule-start").disabled = this.isLocked || runs;
    byId("schedule-stop").disabled = this.isLocked || !runs;
    byId("schedule-seek").disabled = this.isLocked;
  }

  seek() {
    const to = byId("seek").value.trim();
    return this.schedule({ to }, `schedule at ${to}`);
  }

  // Starts or stops the schedule, or moves it to another time. The edits stay.
  async schedule(schedule, what) {
    if (!this.isLocked) await this.send({ schedule }, what);
  }

  async send(conditions, what) {
    const field = byId("lease-seconds");
    const seconds = byId("lease-wanted").checked ? field.value : null;
    if (seconds !== null && !(seconds && field.checkValidity())) {
      this.announce(`Enter after how many seconds the link reverts, ${field.min} to ${field.max}, or untick "Revert after".`, true);
      field.focus();
      return false;
    }
    this.isApplying = true;
    try {
      const changed = await api.change(this.link.name, { ...conditions, revision: this.link.revision, seconds });
      this.forgive();
      this.taken(changed, what);
      return true;
    } catch (error) {
      await this.refuse(error, false);
      return false;
    } finally {
      this.isApplying = false;
    }
  }

  taken(changed, what) {
    this.onChanged(changed.link);
    adopt(this.draft, changed.link.conditions);
    this.showDraft();
    const under = changed.under_previous ? `; ${changed.under_previous} packets in flight are still under the earlier conditions` : "";
    this.announce(`${what ? `${what}: ` : ""}revision ${changed.revision} since ${clock(time(changed.at))}${under}`);
  }

  // Shows a refusal beside the field that it names, or below the form. After a change by another
  // client, the form shows that change and keeps the edits.
  async refuse(error, isDryRun) {
    this.forgive();
    if (error.status === 403) this.lock(`The link cannot be changed here: ${error.message}.`);
    else if (error.status === 412) {
      this.onChanged(await api.link(this.link.name));
      this.announce("Another client changed the link meanwhile: check the conditions, and apply again.", true);
    } else if (error.status === 404 || !(error instanceof api.Refused)) {
      if (!isDryRun) this.announce(`Not applied: ${error.message}`, true);
    } else {
      const isPlaced = error.field !== null && this.allFields.some((fields) => fields.refuse(error.field, error.message));
      const where = error.field && !error.message.includes(error.field) ? `${error.field}: ` : "";
      say(byId("form-error"), isPlaced ? "" : `${where}${error.message}`);
      if (!isDryRun) this.announce(`Not applied: ${error.message}`, true);
    }
  }

  // Sets the conditions of the chosen profile. The list then shows no profile, because conditions may change again.
  useProfile() {
    const list = byId("profiles");
    const profile = this.profiles.find(({ name }) => name === list.value);
    list.value = "";
    if (profile) this.use(profile);
  }

  use({ name, conditions }) {
    return this.replace(conditions, `profile ${name}`);
  }

  // Creates the line of a link that `farwire fit` wrote, with a button that puts it into force.
  offer(profile) {
    const label = `Use this link: ${profile.name}`;
    return element("div", { class: "line" }, element("span", { class: "soft" }, title(profile)),
      element("button", { type: "button", disabled: true, "aria-label": label, click: () => this.use(profile) }, "Use this link"));
  }

  forgive() {
    say(byId("form-error"), "");
    for (const fields of this.allFields) fields.forgive();
  }

  // Disables all controls, because the token is read-only or there is no link.
  lock(why) {
    this.isLocked = why !== null;
    byId("locked").hidden = why === null;
    // Messages have names of commands between backticks, as on a terminal.
    say(byId("locked"), (why ?? "").replaceAll("`", ""));
    this.fields.disabled = this.isLocked;
    this.rules.disabled = this.isLocked;
    this.hops.disabled = this.isLocked;
    byId("profiles").disabled = this.isLocked;
    for (const button of byId("fitted").querySelectorAll("button")) button.disabled = this.isLocked;
    byId("add-rule").disabled = this.isLocked;
    byId("add-hop").disabled = this.isLocked;
    if (!this.link) return;
    this.showSchedule();
    this.afterEdit();
  }

  help({ key, value_name: valueName, help }) {
    say(byId("help"), `${key.replaceAll("_", " ")} (${valueName}): ${help}`);
  }
}
