// Elements by their names. Text is only ever set as text: nothing that a link, a profile or an error says becomes markup.

export const byId = (id) => document.getElementById(id);

// An element with these attributes (a function listens to the event of its name; `true` stands without a value, `false` and `null` not at all).
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

// Sets a text that is drawn again and again, without touching the page where it is the same.
export function say(place, text) {
  if (place.textContent !== text) place.textContent = text;
}

// The rows of a table anew; each is a list of texts, the first of which names it. `columns` are what cells are called on a phone.
export function rows(body, columns, lines) {
  const text = JSON.stringify(lines);
  if (body.dataset.shown === text) return;
  body.dataset.shown = text;
  body.replaceChildren(...lines.map(([name, ...cells]) => element("tr", {},
    element("th", { scope: "row" }, name),
    ...cells.map((cell, at) => element("td", { "data-label": columns[at + 1] }, cell)))));
}
