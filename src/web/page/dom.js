// Creates elements by name. Text is only ever set as text, so nothing from a link, a profile or an
// error becomes markup.

export const byId = (id) => document.getElementById(id);

// Creates an element with these attributes. A function listens to the event of its name; `true` is
// an attribute without a value; `false` and `null` are left out.
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(key, value);
    else if (value !== false && value !== null) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

export function svg(name, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// Sets a text that is updated often, and leaves the page alone if it is the same.
export function say(place, text) {
  if (place.textContent !== text) place.textContent = text;
}

// Replaces the rows of a table. Each row is a list of texts, of which the first is its heading.
// `columns` are the labels of cells on a phone.
export function rows(body, columns, lines) {
  const text = JSON.stringify(lines);
  if (body.dataset.shown === text) return;
  body.dataset.shown = text;
  body.replaceChildren(...lines.map(([name, ...cells]) => element("tr", {},
    element("th", { scope: "row" }, name),
    ...cells.map((cell, at) => element("td", { "data-label": columns[at + 1] }, cell)))));
}
