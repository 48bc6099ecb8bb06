// One stream: how it stands, its messages as they come, the state that they add up to, its snapshot,
// and what can be done to it.

import { closeStream, createStream, deleteStream, forkStream, titleOf } from "./actions.js";
import { Refused, requests, send } from "./api.js";
import { Composer } from "./composer.js";
import { curlOf } from "./curl.js";
import { curlBlock, lacking } from "./dialogs.js";
import { button, el, factList, notify, svg } from "./dom.js";
import { Follower } from "./follow.js";
import { MessagePane } from "./messagepane.js";
import { messagesOf, positionOf } from "./messages.js";
import { remembered } from "./remember.js";
import { session } from "./session.js";
import { SnapshotPane, snapshotMessages } from "./snapshots.js";
import { readMessage } from "./state.js";
import { StateTable } from "./table.js";
import { Tabs } from "./tabs.js";
import { forbidden } from "./words.js";

const LARGE_BYTES = 16 * 1024 * 1024; // more is not read unasked

const STATES = {
  connecting: "Connecting",
  "catching-up": "Catching up",
  live: "Live",
  reconnecting: "Reconnecting",
  closed: "Closed · all read",
  deleted: "Deleted",
  lost: "Stopped",
  expired: "Token expired",
  refused: "Not allowed",
  paused: "Paused",
};

const FACTS = {
  "Content-Type": "Content type",
  "Stream-Next-Offset": "End",
  "Stream-Closed": "Closed",
  "Stream-TTL": "Expires after idle seconds",
  "Stream-Expires-At": "Expires at",
  "Stream-State": "State checking",
  "Stream-Snapshot-Offset": "Snapshot at",
  "Stream-Earliest-Offset": "Readable from",
  ETag: "ETag",
};

/** The mark of what the token does not allow. */
const lock = () =>
  svg(
    "svg",
    { class: "lock", viewBox: "0 0 12 12", width: 11, height: 11, role: "img", "aria-label": "not allowed" },
    svg("path", { d: "M2.5 5.5h7v5h-7zM4 5.5v-2a2 2 0 0 1 4 0v2" }),
  );

export class StreamView {
  constructor(name, from) {
    this.name = name;
    this.from = from;
    this.isState = null; // not known before the first message
    this.element = el("article", { class: "stream" });
    this.noteToken = () => this.#noteToken();
  }

  async open() {
    session.addEventListener("change", this.noteToken);
    await this.#look();
  }

  close() {
    this.isGone = true;
    this.follower?.end();
    session.removeEventListener("change", this.noteToken);
  }

  async #look() {
    this.element.replaceChildren(el("p", { class: "none padded", role: "status" }, "Opening …"));
    let head;
    try {
      const [missing] = lacking([["read", this.name]]);
      if (missing) throw new Error(forbidden(missing));
      head = (await send(requests.head(this.name))).headers;
    } catch (error) {
      if (!this.isGone) this.#showRefusal(error);
      return;
    }
    if (this.isGone) return;
    remembered.addStream(this.name);
    this.head = head;
    this.type = head.get("Content-Type") ?? "application/octet-stream";
    this.isJson = /^application\/json\b/.test(this.type);
    if (head.get("Stream-State") === "strict") this.isState = true;
    this.#build();
    this.#follow(this.from || this.#usualStart(head.get("Stream-Next-Offset") ?? ""));
  }

  #usualStart(tail) {
    const bytes = positionOf(tail);
    if (!(bytes > LARGE_BYTES)) return "-1";
    const size = Math.round(bytes / 1048576);
    notify(`This stream is large (${size} MiB), so only new messages are shown. You can choose another start.`);
    return "now";
  }

  /** Another token may do other things; the follower sees to itself. */
  #noteToken() {
    if (!this.head) {
      this.#look();
      return;
    }
    this.acts.replaceChildren(...this.#actions());
    this.composer.look();
  }

  // -- what is shown ---------------------------------------------------------------------------

  #showRefusal(error) {
    const title = titleOf(this.name);
    const isMissing = error instanceof Refused && error.status === 404;
    const words = isMissing ? "It was never created, was deleted, or has expired." : error.message;
    const help = isMissing
      ? button("Create it", () => createStream(this.name), { class: "button primary" })
      : button("Try again", () => this.#look());
    this.element.replaceChildren(
      el(
        "div",
        { class: "empty-page" },
        el("h1", {}, isMissing ? `Stream “${title}” not found` : title),
        el("p", { class: "about" }, words),
        help,
        this.#curlOfHead(),
      ),
    );
  }

  #build() {
    this.pill = el("span", { class: "pill", role: "status" });
    this.trouble = el("p", { class: "trouble", hidden: true });
    this.badges = el("span", { class: "badges" });
    this.acts = el("div", { class: "actions" }, this.#actions());
    this.pane = new MessagePane({
      onStart: (offset) => this.#follow(offset),
      onPause: () => (this.follower.isRunning ? this.follower.pause() : this.follower.start()),
      onFork: (offset) => forkStream(this.name, offset),
    });
    this.table = new StateTable();
    this.snapshot = new SnapshotPane(this.name);
    this.facts = el("div", { class: "pane padded" });
    this.composer = new Composer(this);
    const panes = {
      messages: ["Messages", this.pane.element],
      state: ["State", this.table.element],
      snapshot: ["Snapshot", this.snapshot.element],
      details: ["Details", this.facts],
    };
    this.tabs = new Tabs("Views of the stream", panes, (key) => this.#noteChoice(key));
    this.tabs.offer("state", this.isState === true);
    const shown = Object.values(panes).map(([, pane]) => pane);
    this.element.replaceChildren(this.#header(), this.trouble, this.tabs.element, ...shown, this.composer.element);
    this.#drawFacts();
    this.tabs.choose(this.isState ? "state" : "messages");
  }

  #header() {
    const title = el("h1", { title: this.name }, titleOf(this.name));
    const back = el("a", { class: "back", href: "#/" }, "‹ Streams");
    return el(
      "header",
      { class: "stream-head" },
      el("div", { class: "title" }, back, title, this.pill, this.badges),
      this.acts,
    );
  }

  #actions() {
    const leave = () => {
      location.hash = "#/";
    };
    const acts = [
      ["Fork", () => forkStream(this.name), []],
      ["Close", () => closeStream(this.name, this.type, () => this.#refresh()), [["write", this.name]]],
      ["Delete", () => deleteStream(this.name, leave), [["delete", this.name]]],
    ];
    return acts.map(([text, act, needs]) => {
      const missing = lacking(needs).join(" ");
      const title = missing ? `Needs the scope ${missing}` : undefined;
      return button([text, missing ? lock() : null], act, { title, "data-act": text.toLowerCase() });
    });
  }

  #noteChoice(key) {
    if (key === "snapshot") this.snapshot.load();
    if (key === "details") this.#refresh();
  }

  // -- following -------------------------------------------------------------------------------

  #follow(offset) {
    this.follower?.end();
    this.pane.clear();
    this.pane.beginAt(offset);
    this.table.begin();
    this.follower = new Follower(this.name, offset, {
      onBatch: (batch) => this.#take(messagesOf(batch, this.isJson)),
      onState: (state) => this.#showState(state),
      onTrimmed: (earliest) => this.#fromSnapshot(earliest),
    });
    this.follower.start();
  }

  #take(found) {
    if (!found.length) return;
    if (this.isState === null) this.#decideState(found[0].text);
    this.pane.add(found);
    if (this.isState)
      this.#applyAll(
        found.map(({ text }) => text),
        this.follower.state.kind === "live",
      );
  }

  /** What the snapshot says is all that is left of what was before it. */
  async #fromSnapshot(earliest) {
    notify(`A snapshot replaced everything before ${earliest}; reading continues from there.`);
    if (!this.isJson) return;
    try {
      const texts = await snapshotMessages(this.name, earliest);
      if (texts.length && this.isState === null) this.#decideState(texts[0]);
      if (!this.isState) return;
      this.table.begin();
      this.#applyAll(texts, false);
    } catch (error) {
      notify(error.message, "bad");
    }
  }

  #decideState(text) {
    this.isState = this.isJson && readMessage(text) !== null;
    this.tabs.offer("state", this.isState);
    if (this.isState && this.tabs.chosen === "messages") this.tabs.choose("state");
    this.#drawFacts();
  }

  #applyAll(texts, isNews) {
    const { state } = this.table;
    this.table.note(texts.map((text) => state.apply(text)).filter(Boolean), isNews);
  }

  #showState({ kind, text }) {
    this.pill.textContent = STATES[kind];
    this.pill.dataset.kind = kind;
    this.trouble.textContent = text;
    this.trouble.hidden = !text;
    this.pane.showPause(kind);
    this.composer.element.hidden = kind === "closed" || kind === "deleted";
  }

  // -- facts -----------------------------------------------------------------------------------

  async #refresh() {
    try {
      this.head = (await send(requests.head(this.name))).headers;
      this.#drawFacts();
    } catch (error) {
      notify(error.message, "bad");
    }
  }

  #drawFacts() {
    const known = Object.entries(FACTS).filter(([name]) => this.head.get(name) !== null);
    this.facts.replaceChildren(
      factList(Object.fromEntries(known.map(([name, text]) => [text, this.head.get(name)]))),
      button("Refresh", () => this.#refresh()),
      this.#curlOfHead(),
    );
    const badges = [this.type];
    if (this.head.get("Stream-TTL")) badges.push(`TTL ${this.head.get("Stream-TTL")} s`);
    if (this.isState) badges.push("State");
    this.badges.replaceChildren(...badges.map((text) => el("span", { class: "badge" }, text)));
  }

  #curlOfHead() {
    return curlBlock(curlOf(requests.head(this.name), { withToken: !session.isOpen }));
  }
}
