// The messages of a stream as a list, one of them laid out beside it, and where reading begins.

import { button, copyButton, el, perFrame } from "./dom.js";
import { VirtualList } from "./list.js";
import { Messages, fillMessage, layOut, offsetsOf } from "./messages.js";

const STARTS = [
  ["-1", "From the start"],
  ["now", "Only new messages"],
  ["", "From an offset …"],
];

export class MessagePane {
  /** `onStart(offset)`, `onPause()` and `onFork(offset)` say what a person wants. */
  constructor({ onStart, onPause, onFork }) {
    this.onStart = onStart;
    this.onFork = onFork;
    this.messages = new Messages();
    this.list = new VirtualList({
      label: "Messages",
      fillRow: (row, index) => fillMessage(row, this.messages.kept[index], this.#numberOf(index)),
      onSelect: (index) => this.#show(index),
    });
    this.detail = el("div", { class: "detail" });
    this.empty = el("p", { class: "none padded" }, "No messages here yet. New messages appear at once.");
    this.count = el("span", { class: "count" });
    this.pauseButton = button("Pause", onPause, { class: "button small" });
    this.element = el(
      "div",
      { class: "pane messages" },
      el("div", { class: "tools" }, this.#travel(), this.pauseButton, this.count),
      el("div", { class: "split" }, el("div", { class: "list-box" }, this.empty, this.list.element), this.detail),
    );
    this.clear();
  }

  clear() {
    this.messages = new Messages();
    this.list.selected = -1;
    this.list.update(0, true);
    this.list.stick();
    this.#count();
    const hint = "The newest message is shown here. Choose another in the list.";
    this.detail.replaceChildren(el("p", { class: "none padded" }, hint));
  }

  add(found) {
    const gone = this.messages.add(found);
    this.list.selected = Math.max(-1, this.list.selected - gone);
    this.list.update(this.messages.kept.length, gone > 0);
    this.#count();
    if (this.list.sticks) this.#showNewest();
  }

  /** Say where reading began. */
  beginAt(offset) {
    const isNamed = STARTS.some(([value]) => value === offset);
    this.start.value = isNamed ? offset : "";
    this.offset.value = isNamed ? "" : offset;
    this.offset.hidden = isNamed;
  }

  showPause(kind) {
    this.pauseButton.hidden = ["closed", "deleted", "lost"].includes(kind);
    this.pauseButton.textContent = kind === "paused" ? "Resume" : "Pause";
  }

  /** Time travel: where reading begins. */
  #travel() {
    const options = STARTS.map(([value, text]) => el("option", { value }, text));
    this.start = el("select", { "aria-label": "Read from" }, options);
    this.offset = el("input", {
      type: "text",
      class: "offset",
      placeholder: "offset",
      "aria-label": "Offset",
      spellcheck: "false",
      hidden: true,
    });
    const go = () => {
      const wanted = this.start.value || this.offset.value.trim();
      if (wanted) this.onStart(wanted);
    };
    this.start.addEventListener("change", () => {
      this.offset.hidden = this.start.value !== "";
      if (this.start.value) go();
      else this.offset.focus();
    });
    const submit = (event) => {
      event.preventDefault();
      go();
    };
    return el("form", { class: "travel", onsubmit: submit }, this.start, this.offset);
  }

  #numberOf(index) {
    return this.messages.dropped + index + 1;
  }

  #count() {
    const { total, dropped } = this.messages;
    const words = total ? `${total.toLocaleString("en")} message${total === 1 ? "" : "s"}` : "No messages yet";
    this.count.textContent = dropped ? `${words}, the first ${dropped.toLocaleString("en")} no longer kept` : words;
    this.empty.hidden = total > 0;
    this.list.element.hidden = total === 0;
  }

  #showNewest = perFrame(() => {
    const newest = this.messages.kept.length - 1;
    if (!this.list.sticks || newest < 0) return;
    this.list.select(newest, false);
    this.#show(newest);
  });

  #show(index) {
    const message = this.messages.kept[index];
    const number = this.#numberOf(index);
    const { start, next } = offsetsOf(message);
    this.detail.replaceChildren(
      el(
        "header",
        {},
        el("h2", {}, `Message ${number.toLocaleString("en")}`),
        copyButton(() => message.text || layOut(message)[0]),
        button("Read from here", () => this.onStart(start), { class: "button small" }),
        button("Fork here", () => this.onFork(next), { class: "button small" }),
      ),
      el("pre", { class: "text", tabindex: "0", role: "group", "aria-label": `Message ${number}` }, layOut(message)),
      el("p", { class: "about" }, `Up to offset ${next}`),
    );
  }
}
