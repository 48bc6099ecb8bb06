// The state as a table that follows the stream: rows that changed light up for a moment, rows that
// went fade. At most so many rows are drawn; the filter finds the others.

import { el, perFrame } from "./dom.js";
import { inline } from "./json.js";
import { State } from "./state.js";

const MAX_ROWS = 500;
const FLASH_MS = 1600;

export class StateTable {
  #schedule = perFrame(() => this.#draw());

  constructor() {
    this.state = new State();
    this.drawn = new Map();
    this.changed = new Set();
    this.body = el("tbody");
    this.about = el("p", { class: "about", role: "status" });
    this.filter = el("input", {
      type: "search",
      placeholder: "Filter by type or key",
      "aria-label": "Filter by type or key",
      oninput: () => this.#schedule(),
    });
    const head = el(
      "thead",
      {},
      el(
        "tr",
        {},
        ["Type", "Key", "Value"].map((text) => el("th", { scope: "col" }, text)),
      ),
    );
    const table = el("table", { class: "state" }, el("caption", { class: "away" }, "Current state"), head, this.body);
    const scroll = el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "State table" }, table);
    this.element = el("div", { class: "pane" }, el("div", { class: "tools" }, this.filter, this.about), scroll);
  }

  /** From nothing. */
  begin() {
    this.state = new State();
    this.#schedule();
  }

  /** These ids changed; `isNews` unless it is only what was there before we came. */
  note(ids, isNews) {
    if (isNews) for (const id of ids) this.changed.add(id);
    this.#schedule();
  }

  #wanted() {
    const text = this.filter.value.trim().toLowerCase();
    return text ? this.state.rows.filter(({ words }) => words.includes(text)) : this.state.rows;
  }

  #draw() {
    const found = this.#wanted();
    const shown = new Map(found.slice(0, MAX_ROWS).map((entity) => [entity.id, entity]));
    for (const [id, row] of this.drawn) {
      if (shown.has(id)) continue;
      row.remove();
      this.drawn.delete(id);
    }
    let before = null;
    for (const [id, entity] of shown) {
      const row = this.drawn.get(id) ?? this.#add(id);
      const follows = before ? before.nextSibling === row : this.body.firstChild === row;
      if (!follows) before ? before.after(row) : this.body.prepend(row);
      if (row.value !== entity.value) this.#show(row, entity);
      before = row;
    }
    this.#flash([...this.changed].map((id) => this.drawn.get(id)).filter(Boolean));
    this.changed.clear();
    this.#tell(found.length);
  }

  #add(id) {
    const row = el("tr", {}, el("td", {}), el("td", {}), el("td", { class: "value" }));
    this.drawn.set(id, row);
    return row;
  }

  #show(row, entity) {
    row.value = entity.value;
    const [type, key, value] = row.cells;
    type.textContent = entity.type;
    key.textContent = entity.key;
    value.replaceChildren(...inline(JSON.stringify(entity.value), 400));
  }

  #flash(rows) {
    for (const row of rows) row.classList.remove("flash");
    void this.body.offsetWidth; // begins the animation anew, of all rows at once
    for (const row of rows) {
      row.classList.add("flash");
      clearTimeout(row.timer);
      row.timer = setTimeout(() => row.classList.remove("flash"), FLASH_MS);
    }
  }

  #tell(count) {
    const { rows, strangers, changes } = this.state;
    const words = [`${rows.length.toLocaleString("en")} entities after ${changes.toLocaleString("en")} changes`];
    if (count > MAX_ROWS)
      words.push(`the first ${MAX_ROWS} are shown, ${(count - MAX_ROWS).toLocaleString("en")} are hidden: use the filter to find them`);
    if (strangers) words.push(`${strangers.toLocaleString("en")} messages are not State messages`);
    this.about.textContent = `${words.join("; ")}.`;
  }
}
