// The rules, which give packets other conditions: what they match, and their fields.

import { element } from "./dom.js";
import { Fields } from "./fields.js";
import { at } from "./spec.js";

const PROTOCOLS = [["", "any protocol"], ["udp", "UDP"], ["tcp", "TCP"], ["sctp", "SCTP"], ["icmp", "ICMP"]];

export class Rules {
  constructor(place, conditions, listener) {
    Object.assign(this, { place, conditions, listener, shown: [] });
  }

  // Shows as many rules as the draft has, with their values.
  show(draft, inForce) {
    const rules = draft.rules ?? [];
    while (this.shown.length > rules.length) this.shown.pop().element.remove();
    while (this.shown.length < rules.length) this.shown.push(this.made(this.shown.length));
    this.shown.forEach(({ fields, rule, summary }, number) => {
      fields.show(draft, inForce);
      for (const input of rule) {
        const value = String(at(draft, input.path) ?? "");
        if (input.value.trim() !== value) input.value = value;
      }
      summary.textContent = `Rule ${rules[number].name || number + 1}`;
    });
  }

  get fields() {
    return this.shown.map(({ fields }) => fields);
  }

  set disabled(is) {
    for (const { fields, rule, remove } of this.shown) {
      fields.disabled = is;
      for (const one of [...rule, remove]) one.disabled = is;
    }
  }

  made(number) {
    const below = `rules.${number}.`;
    const { onEdit, onRemove } = this.listener;
    const input = (key, words, made) => {
      made.path = `${below}${key}`;
      made.id = `c-${below}${key}`.replaceAll(".", "-");
      const read = () => (key === "port" && /^\d+$/.test(made.value) ? Number(made.value) : made.value.trim());
      made.addEventListener("input", () => onEdit(made.path, read()));
      return element("label", {}, words, made);
    };
    const text = (placeholder) => element("input", { type: "text", autocomplete: "off", spellcheck: "false", placeholder });
    const rule = [
      input("name", "name", text("")),
      input("match", "filter", text("tcp port 443")),
      input("protocol", "protocol", element("select", {}, ...PROTOCOLS.map(([value, words]) => element("option", { value }, words)))),
      input("port", "port", text("any")),
    ];
    const fields = new Fields(this.conditions, below, this.listener);
    const summary = element("summary");
    const remove = element("button", { type: "button", click: () => onRemove(number) }, "Remove this rule");
    const made = element("details", { class: "ruled", open: true }, summary, element("div", { class: "rule" }, ...rule), fields.element, remove);
    this.place.append(made);
    return { element: made, fields, summary, remove, rule: rule.map((label) => label.lastElementChild) };
  }
}
