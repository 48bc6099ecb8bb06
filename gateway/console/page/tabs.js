// Panes of which one is shown, chosen by tabs: with the mouse, or with the arrow keys.

import { el } from "./dom.js";

export class Tabs {
  /** `panes` is {key: [text, element]}; `onChoose(key)` runs whenever one is chosen. */
  constructor(label, panes, onChoose) {
    this.panes = panes;
    this.onChoose = onChoose;
    this.chosen = "";
    this.tabs = Object.fromEntries(Object.keys(panes).map((key) => [key, this.#tab(key)]));
    this.element = el(
      "div",
      { class: "tabs", role: "tablist", "aria-label": label, onkeydown: (event) => this.#press(event) },
      Object.values(this.tabs),
    );
  }

  choose(key) {
    this.chosen = key;
    for (const [name, [, pane]] of Object.entries(this.panes)) {
      const isChosen = name === key;
      pane.hidden = !isChosen;
      this.tabs[name].setAttribute("aria-selected", String(isChosen));
      this.tabs[name].tabIndex = isChosen ? 0 : -1;
    }
    this.onChoose(key);
  }

  offer(key, isOffered) {
    this.tabs[key].hidden = !isOffered;
  }

  #tab(key) {
    const [text, pane] = this.panes[key];
    pane.id = `pane-${key}`;
    pane.setAttribute("role", "tabpanel");
    pane.setAttribute("aria-labelledby", `tab-${key}`);
    const attributes = { type: "button", role: "tab", id: `tab-${key}`, "aria-controls": pane.id };
    return el("button", { ...attributes, onclick: () => this.choose(key) }, text);
  }

  #press(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const keys = Object.keys(this.panes).filter((key) => !this.tabs[key].hidden);
    const next = keys[(keys.indexOf(this.chosen) + step + keys.length) % keys.length];
    this.choose(next);
    this.tabs[next].focus();
  }
}
