// A link's conditions as an object, in the JSON form of a link file: reads and sets values by path,
// and compares two objects.

import { traceText } from "./trace.js";

const isTable = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

// Formats a condition's value for its field: a table as `key=value,...`, as flags have it.
export function text(value) {
  if (value === undefined) return "";
  if (isTable(value) && "file" in value) return traceText(value);
  if (isTable(value)) return Object.entries(value).map(([key, one]) => `${key}=${one}`).join(",");
  return String(value);
}

export const at = (spec, path) => path.split(".").reduce((value, key) => value?.[key], spec);

// Sets the value at a path, or removes it if the text is empty. A table that becomes empty is
// removed too.
export function set(spec, path, value) {
  const keys = path.split(".");
  const last = keys.pop();
  const tables = [spec];
  for (const key of keys) tables.push((tables.at(-1)[key] ??= {}));
  if (value === "") delete tables.at(-1)[last];
  else tables.at(-1)[last] = value;
  for (let depth = keys.length; depth > 0; depth--) {
    const isEmpty = isTable(tables[depth]) && Object.keys(tables[depth]).length === 0;
    if (isEmpty) delete tables[depth - 1][keys[depth - 1]];
  }
}

export const same = (one, other) => JSON.stringify(sorted(one)) === JSON.stringify(sorted(other));

const sorted = (value) => {
  if (Array.isArray(value)) return value.map(sorted);
  if (!isTable(value)) return value;
  return Object.fromEntries(Object.keys(value).sort().map((key) => [key, sorted(value[key])]));
};

// A trace replaces another one as a whole.
const TRACE = "trace";

// Returns the JSON Merge Patch (RFC 7396) that turns `from` into `to`.
export function patch(from, to) {
  const changes = {};
  for (const key of new Set([...Object.keys(from), ...Object.keys(to)])) {
    if (!(key in to)) changes[key] = null;
    else if (key !== TRACE && isTable(from[key]) && isTable(to[key])) {
      const inner = patch(from[key], to[key]);
      if (Object.keys(inner).length) changes[key] = inner;
    } else if (!same(from[key] ?? null, to[key])) changes[key] = to[key];
  }
  return changes;
}

// Applies a merge patch to a value.
export function patched(value, changes) {
  if (!isTable(changes)) return structuredClone(changes);
  const made = isTable(value) ? structuredClone(value) : {};
  for (const [key, change] of Object.entries(changes)) {
    if (change === null) delete made[key];
    else made[key] = patched(key === TRACE ? undefined : made[key], change);
  }
  return made;
}
