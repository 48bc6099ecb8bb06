// The form that appends to a stream. It stays open: people append more than once.

import { requests, send } from "./api.js";
import { curlOf } from "./curl.js";
import { curlBlock, lacking } from "./dialogs.js";
import { el, field } from "./dom.js";
import { session } from "./session.js";
import { forbidden } from "./words.js";

const CHANGE = '{"type": "user", "key": "1", "value": {"name": "Ada"}, "headers": {"operation": "insert"}}';

const exampleFor = ({ isState, isJson }) => (isState ? CHANGE : isJson ? '{"hello": "world"}' : "Some text");

const faultOf = (text) => {
  try {
    JSON.parse(text);
    return "";
  } catch (error) {
    return `Invalid JSON: ${error.message}`;
  }
};

export class Composer {
  /** `stream` is {name, type, isJson, isState}. */
  constructor(stream) {
    this.stream = stream;
    this.area = el("textarea", { rows: 2, spellcheck: "false", placeholder: exampleFor(stream) });
    this.fault = el("p", { class: "fault", role: "alert" });
    this.curl = curlBlock("");
    this.submit = el("button", { type: "submit", class: "button primary" }, "Append");
    this.area.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.element.requestSubmit();
    });
    this.element = el(
      "form",
      { class: "composer", onsubmit: (event) => this.#append(event), oninput: () => this.look() },
      field(`Append (${stream.type})`, this.area),
      this.fault,
      el(
        "div",
        { class: "actions" },
        this.submit,
        el("small", {}, "Ctrl+Enter"),
        el("details", {}, el("summary", {}, "curl"), this.curl),
      ),
    );
    this.look();
  }

  /** Show what would be sent, and whether it may be. */
  look() {
    const missing = lacking([["write", this.stream.name]]);
    this.submit.disabled = missing.length > 0;
    this.fault.textContent = missing.length ? forbidden(missing[0]) : "";
    this.curl.show(curlOf(this.#request(), { withToken: !session.isOpen }));
  }

  #request() {
    return requests.append(this.stream.name, this.stream.type, this.area.value);
  }

  async #append(event) {
    event.preventDefault();
    this.area.focus();
    if (!this.area.value || this.submit.disabled) return;
    this.fault.textContent = this.stream.isJson ? faultOf(this.area.value) : "";
    if (this.fault.textContent) return;
    try {
      await send(this.#request());
      this.area.value = "";
      this.look();
    } catch (error) {
      this.fault.textContent = error.message;
    }
  }
}
