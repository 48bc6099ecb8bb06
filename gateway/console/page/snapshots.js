// The latest snapshot of a stream, and the bootstrap that a new reader gets: snapshot and updates in
// one answer.

import { requests, send } from "./api.js";
import { button, el, factList } from "./dom.js";
import { layOutText, splitArray } from "./json.js";

const MOST_PARTS = 200;

/** The parts of a multipart answer: {headers, body}. */
export const readParts = (text, contentType) => {
  const boundary = /boundary="?([^";]+)"?/.exec(contentType)?.[1];
  if (!boundary) return [];
  const pieces = `\r\n${text}`.split(`\r\n--${boundary}`).slice(1);
  return pieces
    .filter((piece) => !piece.startsWith("--"))
    .map((piece) => {
      const cut = piece.indexOf("\r\n\r\n");
      const lines = piece
        .slice(0, cut)
        .split("\r\n")
        .filter(Boolean)
        .map((line) => line.split(/:\s*/, 2));
      return {
        headers: Object.fromEntries(lines.map(([name, value]) => [name.toLowerCase(), value])),
        body: piece.slice(cut + 4),
      };
    });
};

/** Text of any kind, laid out if it is JSON. */
export const textBlock = (text, label) =>
  el("pre", { class: "text", tabindex: "0", role: "group", "aria-label": label }, layOutText(text));

/** The messages in the latest snapshot, for those who go on from it; empty where there is none. */
export const snapshotMessages = async (name, offset) => {
  const response = await send(requests.snapshot(name, offset));
  const text = await response.text();
  return text.trimStart().startsWith("[") ? splitArray(text) : [];
};

/** A part of a bootstrap: the snapshot first, if there is one, then the updates. */
const partOf = ({ body }, at, hasSnapshot) => {
  const title = hasSnapshot && at === 0 ? "Snapshot" : `Update ${hasSnapshot ? at : at + 1}`;
  const size = `${body.length.toLocaleString("en")} characters`;
  return el("details", {}, el("summary", {}, `${title} · ${size}`), textBlock(body, `Part ${at + 1}`));
};

export class SnapshotPane {
  constructor(name) {
    this.name = name;
    this.body = el("div", { class: "stack" });
    this.element = el(
      "div",
      { class: "pane padded" },
      el(
        "div",
        { class: "tools" },
        button("Refresh", () => this.load()),
        button("Bootstrap", () => this.bootstrap()),
      ),
      this.body,
    );
  }

  async load() {
    try {
      const head = await send(requests.head(this.name));
      const offset = head.headers.get("Stream-Snapshot-Offset");
      if (!offset || offset === "-1") {
        this.#say(
          "This stream has no snapshot, so readers start at its beginning. `weir compact URL` publishes one for a State stream; its token needs the scope snapshot.",
        );
        return;
      }
      const response = await send(requests.snapshot(this.name, offset));
      const text = await response.text();
      const facts = {
        "Replaces everything before": offset,
        "Content type": response.headers.get("Content-Type") ?? "unknown",
        Size: `${text.length.toLocaleString("en")} characters`,
      };
      this.body.replaceChildren(factList(facts), textBlock(text, "Snapshot"));
    } catch (error) {
      this.#say(error.message);
    }
  }

  async bootstrap() {
    try {
      const response = await send(requests.bootstrap(this.name));
      const parts = readParts(await response.text(), response.headers.get("Content-Type") ?? "");
      const offset = response.headers.get("Stream-Snapshot-Offset") ?? "-1";
      const hasSnapshot = offset !== "-1";
      const facts = {
        Snapshot: hasSnapshot ? `at ${offset}` : "none",
        Parts: parts.length.toLocaleString("en"),
        "Continue from": response.headers.get("Stream-Next-Offset") ?? "unknown",
      };
      const rows = parts.slice(0, MOST_PARTS).map((part, at) => partOf(part, at, hasSnapshot));
      const rest = parts.length > MOST_PARTS ? `Only the first ${MOST_PARTS} parts are shown.` : "";
      this.body.replaceChildren(factList(facts), ...rows, el("p", { class: "none" }, rest));
    } catch (error) {
      this.#say(error.message);
    }
  }

  #say(text) {
    this.body.replaceChildren(el("p", { class: "none" }, text));
  }
}
