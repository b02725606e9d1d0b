// The further hops of the link, in the order in which packets pass them on the way up: their names, and their fields.

import { element } from "./dom.js";
import { Fields } from "./fields.js";

export class Hops {
  constructor(place, conditions, listener) {
    Object.assign(this, { place, conditions, listener, shown: [] });
  }

  // Shows as many hops as the draft has, with their values.
  show(draft, inForce) {
    const hops = draft.hops ?? [];
    while (this.shown.length > hops.length) this.shown.pop().element.remove();
    while (this.shown.length < hops.length) this.shown.push(this.made(this.shown.length));
    this.shown.forEach(({ fields, name, summary }, number) => {
      fields.show(draft, inForce);
      // A hop without a name and without conditions is a hole in the list until one of them is typed.
      const value = hops[number]?.name ?? "";
      if (name.value.trim() !== value) name.value = value;
      summary.textContent = `Hop ${value || number + 1}`;
    });
  }

  get fields() {
    return this.shown.map(({ fields }) => fields);
  }

  set disabled(is) {
    for (const { fields, name, remove } of this.shown) {
      fields.disabled = is;
      for (const one of [name, remove]) one.disabled = is;
    }
  }

  made(number) {
    const below = `hops.${number}.`;
    const { onEdit, onRemove } = this.listener;
    const name = element("input", {
      type: "text", id: `c-hops-${number}-name`, autocomplete: "off", spellcheck: "false",
      input: () => onEdit(`${below}name`, name.value.trim()),
    });
    const fields = new Fields(this.conditions, below, this.listener);
    const summary = element("summary");
    const remove = element("button", { type: "button", click: () => onRemove(number) }, "Remove this hop");
    const label = element("div", { class: "rule" }, element("label", {}, "name", name));
    const made = element("details", { class: "ruled", open: true }, summary, label, fields.element, remove);
    this.place.append(made);
    return { element: made, fields, name, summary, remove };
  }
}
