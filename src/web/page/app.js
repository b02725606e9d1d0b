// The page of a running farwire: the choice of the link, the state of the connection, leases and
// exports.

import * as api from "./api.js";
import { Conditions } from "./conditions.js";
import { byId, element, say } from "./dom.js";
import * as run from "./run.js";
import { count, duration, clock, size, time } from "./units.js";
import { Watch } from "./watch.js";

const LOOK_AGAIN_MS = 1_000;
// The largest number of links in the list; a search finds the others.
const MOST_OFFERED = 100;
// The time without a key after which a search begins.
const TYPING_MS = 200;
// The size limit of a capture by the page, which is kept in memory until it is saved.
const MOST_CAPTURED = 64 << 20;

const watch = new Watch();
let controls = null;
let link = null;
// Ends the events of the link that is shown.
let following = new AbortController();

function announce(text, isError = false) {
  const place = byId("status");
  place.classList.toggle("bad", isError);
  say(place, text);
}

// Updates the band at the top, which says whether the page shows the current state.
function state(kind, word, words) {
  byId("state").className = `verdict ${kind}`;
  say(byId("state-word"), word);
  say(byId("state-words"), words);
}

// Shows a link as the server has it now.
function show(shown) {
  if (shown.name !== link?.name) return;
  if (link.started !== shown.started) watch.clear();
  if (shown.lease === null) api.leaseIsOver(shown.name);
  link = shown;
  controls.show(link);
  const [near, far] = link.ends;
  say(byId("ends"), `up: ${near} to ${far}; down: ${far} to ${near}`);
  say(byId("since"), `Revision ${link.revision} since ${clock(time(link.since))}${by()}. The link started at ${clock(time(link.started))}, seed ${link.seed}.`);
  state("met", "Live:", link.says);
  showLease();
  showCommand();
}

// Describes who made the change that is in force.
function by() {
  const change = watch.changes.find(({ revision }) => revision === link.revision);
  return change ? `, by ${change.by}` : "";
}

const refresh = async () => show(await api.link(link.name));

// Lists the first links, and shows the one that the address names or else the first; waits until
// there is one.
async function choose() {
  following.abort();
  const first = await firstLinks();
  const hasMore = first.links.length < first.total;
  const wanted = new URLSearchParams(location.search).get("link");
  let chosen = first.links.find(({ name }) => name === wanted);
  if (!chosen && hasMore && wanted !== null) chosen = await api.link(wanted).catch(() => null);
  follow(chosen ?? first.links[0]);
  byId("search").value = "";
  byId("find").hidden = !hasMore;
  byId("choose").hidden = first.total < 2;
  offer(first);
}

// Offers these links for choice, and the one that is shown.
function offer({ links, total }) {
  const names = links.map(({ name }) => name);
  if (!names.includes(link.name)) names.unshift(link.name);
  const select = byId("links");
  select.replaceChildren(...names.map((name) => element("option", { value: name }, name)));
  select.value = link.name;
  const shown = links.length < total ? `the first ${count(links.length)} of ` : "";
  say(byId("found"), `${shown}${count(total)} ${total === 1 ? "link" : "links"}`);
}

let typing = null;

// Offers the links whose names contain the text of the search field, shortly after it was typed.
function search() {
  clearTimeout(typing);
  const text = byId("search").value.trim();
  typing = setTimeout(async () => {
    try {
      const found = await api.links(text, MOST_OFFERED);
      // The answer to an earlier search may come later.
      if (byId("search").value.trim() === text) offer(found);
    } catch (error) {
      announce(`Search failed: ${error.message}`, true);
    }
  }, TYPING_MS);
}

// Shows the link that was chosen in the list.
async function pick() {
  const name = byId("links").value;
  history.replaceState(null, "", `?${new URLSearchParams({ link: name })}`);
  try {
    const chosen = await api.link(name);
    // Another one may have been chosen meanwhile.
    if (byId("links").value === name) follow(chosen);
  } catch {
    choose();
  }
}

async function firstLinks() {
  for (;;) {
    try {
      const first = await api.links("", MOST_OFFERED);
      if (first.links.length) return first;
      state("", "No link:", "checking again every second.");
    } catch (error) {
      state("unmet", "No connection:", error.message);
    }
    await new Promise((done) => setTimeout(done, LOOK_AGAIN_MS));
  }
}

function follow(chosen) {
  following.abort();
  following = new AbortController();
  const { signal } = following;
  link = chosen;
  document.title = `${link.name} – farwire`;
  say(byId("title"), link.name);
  watch.clear();
  controls.lock(link.fixed);
  show(link);
  watch.load(link.name).then(() => show(link)).catch(() => announce("Cannot read earlier changes.", true));
  api.events(link.name, signal, {
    onEvent: (name, data) => take(name, data),
    onOpen: () => refresh().catch(() => {}),
    onBroken: (error) => broken(error),
  });
}

function take(name, data) {
  if (name === "sample") watch.take(data);
  else if (name === "change") {
    watch.change(data);
    // The response to a change by this page is announced elsewhere.
    const isOwn = controls.isApplying || data.revision <= link.revision;
    if (!isOwn) announce(`Changed by ${data.by}: ${data.says}`);
    refresh().catch(() => {});
  } else if (name === "end") {
    announce(`The link ${link.name} has ended.`);
    choose();
  }
}

// Handles a broken stream: it is resumed, or the link of the next run is awaited if the link is
// gone.
function broken(error) {
  if (error?.status === 404) {
    const next = error.next ? ` Next: ${run.runWords(error.next)}.` : "";
    controls.lock("There is no link between two runs.");
    state("", "Between two runs:", `there is no link now.${next}`);
    choose();
  } else {
    state("unmet", "Not live:", `the connection broke${error ? ` (${error.message})` : ""}; trying again. The page shows the last known state.`);
  }
}

function showLease() {
  const { lease } = link;
  byId("lease").hidden = lease === null;
  if (lease === null) return;
  const end = lease.until ? time(lease.until) : null;
  const whose = api.holdsLease(link.name) ? "this page's" : "another client's";
  const left = end === null ? "when its connection ends" : `in ${duration((end - watch.now) / 1000)}, at ${clock(end)}`;
  say(byId("lease-words"), `These conditions are ${whose} lease: the link reverts to revision ${lease.reverts_to} ${left}.`);
}

function showCommand() {
  const command = link.command === null ? null : `farwire exec ${link.command}`.trim();
  byId("command").value = command ?? "No flags exist for these conditions: download the link file.";
  byId("copy").disabled = command === null;
}

async function copy() {
  const field = byId("command");
  try {
    await navigator.clipboard.writeText(field.value);
  } catch {
    // Browsers deny the clipboard to pages without TLS, except on loopback; a selection can still
    // be copied.
    field.select();
    document.execCommand("copy");
  }
  announce("The command line is copied.");
}

function save(blob, name) {
  const url = URL.createObjectURL(blob);
  element("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

async function takeAway(form, name) {
  try {
    save(await api.download(link.name, `history/${form}`), name);
  } catch (error) {
    announce(`Download failed: ${error.message}`, true);
  }
}

let capturing = null;

// Starts a capture, or ends the running one and saves what has arrived.
async function capture() {
  if (capturing) return capturing.abort();
  capturing = new AbortController();
  const button = byId("capture");
  const words = button.textContent;
  const query = new URLSearchParams({ side: byId("capture-side").value, for: `${byId("capture-seconds").value}s`, max_bytes: String(MOST_CAPTURED) });
  const filter = byId("capture-filter").value.trim();
  if (filter) query.set("filter", filter);
  say(button, "Stop and save");
  try {
    const onBytes = (bytes) => say(byId("capture-state"), `${size(bytes)} so far`);
    const packets = await api.download(link.name, `capture?${query}`, { signal: capturing.signal, onBytes });
    save(packets, `${link.name}.pcapng`);
    say(byId("capture-state"), `${size(packets.size)} saved`);
  } catch (error) {
    say(byId("capture-state"), capturing.signal.aborted ? "" : `Capture failed: ${error.message}`);
  }
  capturing = null;
  say(button, words);
}

// Asks for a token until one is given.
function askForToken(wasWrong) {
  const dialog = byId("token-dialog");
  say(byId("token-wrong"), wasWrong ? "The token is wrong." : "");
  byId("token").value = "";
  dialog.showModal();
  return new Promise((given) => {
    byId("token-form").onsubmit = (event) => {
      event.preventDefault();
      if (!byId("token").value) return;
      dialog.close();
      given(byId("token").value.trim());
    };
  });
}

// Removes the token from the address, where the URL that farwire prints has it, so that neither the
// history nor a copied address contains it.
function takeToken() {
  const query = new URLSearchParams(location.search);
  const given = new URLSearchParams(location.hash.slice(1)).get("token") ?? query.get("token");
  if (!given) return;
  query.delete("token");
  history.replaceState(null, "", query.size ? `?${query}` : location.pathname);
  api.useToken(given);
}

async function start() {
  takeToken();
  api.onTokenWanted(askForToken);
  byId("token-dialog").addEventListener("cancel", (event) => event.preventDefault());
  const on = (id, kind, act) => byId(id).addEventListener(kind, act);
  on("links", "change", pick);
  on("search", "input", search);
  on("copy", "click", copy);
  on("link-file", "click", () => takeAway("link", `${link.name}.toml`));
  on("scenario", "click", () => takeAway("scenario", `${link.name}-scenario.toml`));
  on("capture", "click", capture);
  on("lease-end", "click", () => api.endLease(link.name).then((changed) => show(changed.link), (error) => announce(error.message, true)));
  for (const one of document.querySelectorAll("[name=window], #hold")) one.addEventListener("change", () => { watch.dirty = true; });
  window.addEventListener("resize", () => { watch.dirty = true; });
  const [paths, conditions, profiles] = await Promise.all([api.paths(), api.conditions(), api.profiles()]);
  // Controls that the server does not support are hidden.
  for (const one of document.querySelectorAll("[data-path]")) one.hidden = !paths.has(one.dataset.path);
  controls = new Conditions(conditions, profiles, { offersSchedule: paths.has("/v1/links/{name}/schedule"), onChanged: show, announce, linkTime: () => watch.now });
  setInterval(() => { if (link?.lease) showLease(); }, 1_000);
  if (paths.has("/v1/run")) run.follow();
  choose();
}

start().catch((error) => state("unmet", "Not started:", error.message));
