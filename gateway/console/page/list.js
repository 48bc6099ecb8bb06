// A long list of which only what is in sight exists as elements. All rows have one height, so the
// place of a row follows from its number; the rows in sight are reused while scrolling.

import { el, freshId, perFrame } from "./dom.js";

const ROW_PX = 30;
const SPARE = 4; // rows above and below, so that scrolling does not show gaps

export class VirtualList {
  #schedule = perFrame(() => this.#draw());

  /** `fillRow(element, index)` shows an item; `onSelect(index)` says that a person chose one. */
  constructor({ label, fillRow, onSelect }) {
    this.fillRow = fillRow;
    this.onSelect = onSelect;
    this.count = 0;
    this.selected = -1;
    this.sticks = true; // to the end, until somebody scrolls up
    this.id = freshId("list");
    this.rows = new Map();
    this.pool = [];
    this.space = el("div", { class: "space", role: "presentation" });
    this.element = el(
      "div",
      {
        class: "list",
        role: "listbox",
        tabindex: "0",
        "aria-label": label,
        onscroll: () => this.#noteScroll(),
        onkeydown: (event) => this.#press(event),
        onclick: (event) => this.#click(event),
      },
      this.space,
    );
    new ResizeObserver(() => this.#schedule()).observe(this.element);
  }

  /** There are `count` items now; `again` when those in sight may have changed as well. */
  update(count, again = false) {
    this.count = count;
    if (again) for (const row of this.rows.values()) row.dataset.stale = "1";
    this.#schedule();
  }

  select(index, byPerson = true) {
    if (index < 0 || index >= this.count) return;
    this.selected = index;
    if (byPerson) {
      this.sticks = index === this.count - 1;
      this.#reveal(index);
      this.onSelect(index);
    }
    this.#schedule();
  }

  stick() {
    this.sticks = true;
    this.#schedule();
  }

  #reveal(index) {
    const { element } = this;
    const top = index * ROW_PX;
    if (top < element.scrollTop) element.scrollTop = top;
    else if (top + ROW_PX > element.scrollTop + element.clientHeight)
      element.scrollTop = top + ROW_PX - element.clientHeight;
  }

  #noteScroll() {
    const { element } = this;
    if (!this.moving) this.sticks = element.scrollTop + element.clientHeight >= element.scrollHeight - ROW_PX;
    this.#schedule();
  }

  #draw() {
    const { element, space } = this;
    space.style.height = `${this.count * ROW_PX}px`;
    if (this.sticks) {
      this.moving = true; // by ourselves: no person scrolled
      element.scrollTop = this.count * ROW_PX;
      requestAnimationFrame(() => {
        this.moving = false;
      });
    }
    const first = Math.max(0, Math.floor(element.scrollTop / ROW_PX) - SPARE);
    const last = Math.min(this.count, Math.ceil((element.scrollTop + element.clientHeight) / ROW_PX) + SPARE);
    for (const [index, row] of this.rows) {
      if (index >= first && index < last) continue;
      this.rows.delete(index);
      row.remove();
      this.pool.push(row);
    }
    for (let index = first; index < last; index++) this.#place(index);
    const active = this.rows.get(this.selected);
    if (active) element.setAttribute("aria-activedescendant", active.id);
    else element.removeAttribute("aria-activedescendant");
  }

  #place(index) {
    let row = this.rows.get(index);
    if (!row || row.dataset.stale) {
      if (!row) {
        row = this.pool.pop() ?? el("div", { class: "row", role: "option" });
        this.rows.set(index, row);
        this.space.append(row);
      }
      delete row.dataset.stale;
      row.id = `${this.id}-${index}`;
      row.dataset.index = index;
      row.style.transform = `translateY(${index * ROW_PX}px)`;
      row.setAttribute("aria-posinset", index + 1);
      this.fillRow(row, index);
    }
    row.setAttribute("aria-setsize", this.count);
    row.setAttribute("aria-selected", String(index === this.selected));
  }

  #click(event) {
    const row = event.target.closest(".row");
    if (row) this.select(Number(row.dataset.index));
  }

  #press(event) {
    const page = Math.max(1, Math.floor(this.element.clientHeight / ROW_PX) - 1);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (!(event.key in steps) || !this.count) return;
    event.preventDefault();
    const from = this.selected < 0 ? this.count - 1 : this.selected;
    this.select(Math.min(this.count - 1, Math.max(0, from + steps[event.key])));
  }
}
