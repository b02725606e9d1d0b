// The live API, version 1, as this page uses it. The token and the identifiers of this page's
// leases are kept only in memory.

let token = null;
let askForToken = null;
let asked = null;
const leases = new Map();

// The function to call if the server requires a token. It returns a promise of one.
export const onTokenWanted = (ask) => { askForToken = ask; };

// Sends this token with all further requests.
export const useToken = (given) => { token = given; };

// A refusal: the problem+json of the response, with the field that it names.
export class Refused extends Error {
  constructor(status, problem) {
    super(problem.detail || problem.title || `the server answered ${status}`);
    this.status = status;
    this.field = problem.field ?? null;
    this.next = problem.next ?? null;
  }
}

// Repeats a request with a token if one is required. Several requests share one prompt.
async function request(path, { headers = {}, ...options } = {}) {
  for (;;) {
    const sent = token;
    const answer = await fetch(path, {
      ...options,
      cache: "no-store",
      headers: sent === null ? headers : { ...headers, Authorization: `Bearer ${sent}` },
    });
    if (answer.status === 401 && askForToken) {
      if (sent === token) {
        asked ??= askForToken(sent !== null).finally(() => { asked = null; });
        token = await asked;
      }
      continue;
    }
    if (!answer.ok) throw new Refused(answer.status, await answer.json().catch(() => ({})));
    return answer;
  }
}

const json = async (path, options) => (await request(path, options)).json();
const linkPath = (name) => `v1/links/${encodeURIComponent(name)}`;

// Returns the first `links` whose names contain a text, at most `limit` of them, and their `total`
// number.
export const links = (search, limit) => json(`v1/links?${new URLSearchParams({ search, limit })}`);

export const link = (name) => json(linkPath(name));
export const paths = async () => new Set(Object.keys((await json("v1/openapi.json")).paths));
export const profiles = () => json("v1/profiles");
export const conditions = () => json("v1/conditions");
export const run = () => json("v1/run");
export const changes = async (name) => (await json(`${linkPath(name)}/history`)).changes;
export const holdsLease = (name) => leases.has(name);

// Changes conditions: `patch` is a JSON Merge Patch of them, `whole` replaces them.
// `schedule` starts or stops their schedule (`state`) or moves it to another time (`to`).
export async function change(name, { patch, whole, schedule, revision, seconds, dryRun, signal }) {
  const query = new URLSearchParams();
  if (dryRun) query.set("dry_run", "1");
  if (seconds != null) query.set("for", `${seconds}s`);
  const headers = { "Content-Type": patch ? "application/merge-patch+json" : "application/json" };
  if (revision !== undefined) headers["If-Match"] = `"${revision}"`;
  if (leases.has(name)) headers["Farwire-Lease"] = leases.get(name);
  const path = `${linkPath(name)}${schedule ? "/schedule" : ""}`;
  const changed = await json(`${path}${query.size ? `?${query}` : ""}`, {
    method: patch ? "PATCH" : "PUT",
    headers,
    body: JSON.stringify(patch ?? whole ?? schedule),
    signal,
  });
  if (changed.link.lease?.id) leases.set(name, changed.link.lease.id);
  return changed;
}

// Ends a lease early: the link reverts now.
export async function endLease(name) {
  const headers = leases.has(name) ? { "Farwire-Lease": leases.get(name) } : {};
  const changed = await json(`${linkPath(name)}/lease`, { method: "DELETE", headers });
  leases.delete(name);
  return changed;
}

export const leaseIsOver = (name) => leases.delete(name);

// Reads the body of a GET as one file. `onBytes` receives the number of bytes up to now. If
// `signal` ends it, the file holds what has arrived.
export async function download(name, path, { signal, onBytes } = {}) {
  const answer = await request(`${linkPath(name)}/${path}`, { signal });
  const reader = answer.body.getReader();
  const parts = [];
  let bytes = 0;
  try {
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      parts.push(part.value);
      bytes += part.value.length;
      onBytes?.(bytes);
    }
  } catch (error) {
    if (!signal?.aborted) throw error;
  }
  return new Blob(parts, { type: answer.headers.get("Content-Type") ?? "" });
}

const SILENCE_MS = 5_000;
const RETRY_MS = 1_000;

// Follows a link's events until `signal` ends it. A broken stream is resumed after the last event
// received. EventSource is not used because it cannot send a token.
export async function events(name, signal, { onEvent, onOpen, onBroken }) {
  let last = "0";
  while (!signal.aborted) {
    const stalled = new AbortController();
    let silence;
    const alive = () => {
      clearTimeout(silence);
      silence = setTimeout(() => stalled.abort(), SILENCE_MS);
    };
    try {
      alive();
      const answer = await request(`${linkPath(name)}/events`, {
        headers: { Accept: "text/event-stream", "Last-Event-ID": last },
        signal: AbortSignal.any([signal, stalled.signal]),
      });
      onOpen();
      await read(answer.body, (event) => {
        if (event.id) last = event.id;
        onEvent(event.name, JSON.parse(event.data));
      }, alive);
      onBroken(null);
    } catch (error) {
      if (!signal.aborted) onBroken(error);
    }
    clearTimeout(silence);
    await new Promise((done) => setTimeout(done, RETRY_MS));
  }
}

// Reads the server-sent events of a stream (HTML Standard, 9.2.6).
async function read(body, onEvent, alive) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    alive();
    text += part.value;
    const blocks = text.split(/\r?\n\r?\n/);
    text = blocks.pop();
    for (const block of blocks) {
      const event = { name: "message", id: null, data: "" };
      for (const line of block.split(/\r?\n/)) {
        const [, field, value] = /^([^:]*):? ?(.*)$/.exec(line);
        if (field === "event") event.name = value;
        if (field === "id") event.id = value;
        if (field === "data") event.data += event.data ? `\n${value}` : value;
      }
      if (event.data) onEvent(event);
    }
  }
}
