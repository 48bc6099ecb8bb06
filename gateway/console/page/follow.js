// Following one stream: reads by SSE, comes back after every end with the last offset, and says how
// it stands. Nothing is read twice and nothing is left out: an offset moves only with its data.
//
//   connecting -> catching-up -> live            data flows
//   reconnecting                                 the gateway is away; tried again, ever more slowly
//   closed, deleted, lost                        the end
//   expired, refused                             until there is another token
//   paused                                       by the person, or because nobody looks

import { Refused, requests, send } from "./api.js";
import { chunksOf, readEvents } from "./events.js";
import { session } from "./session.js";

const FIRST_WAIT_MS = 150;
const LONGEST_WAIT_MS = 5000;
const HIDDEN_MS = 60000; // a tab in the background gives its connection back after this

const sleep = (ms, signal) =>
  new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener(
      "abort",
      () => {
        clearTimeout(timer);
        resolve();
      },
      { once: true },
    );
  });

const changed = (target, signal) =>
  new Promise((resolve) => {
    target.addEventListener("change", resolve, { once: true, signal });
    signal.addEventListener("abort", resolve, { once: true });
  });

export class Follower {
  /** `onBatch({data, encoding, type, start, next})`, `onState({kind, text})`, `onTrimmed(earliest)` */
  constructor(name, offset, { onBatch, onState, onTrimmed }) {
    this.name = name;
    this.offset = offset;
    this.connections = 0;
    this.state = { kind: "connecting", text: "" };
    this.onBatch = onBatch;
    this.onState = onState;
    this.onTrimmed = onTrimmed;
    this.cursor = "";
    this.failures = 0;
    this.hide = () => this.#watchVisibility();
  }

  start() {
    if (this.isOver) return;
    this.control = new AbortController();
    document.addEventListener("visibilitychange", this.hide);
    this.#run(this.control.signal);
  }

  /** Until `start`; the offset stays. */
  pause() {
    this.control?.abort();
    document.removeEventListener("visibilitychange", this.hide);
    this.#tell("paused");
  }

  /** For good. */
  end() {
    this.isOver = true;
    this.onState = this.onBatch = () => {};
    this.pause();
  }

  get isRunning() {
    return Boolean(this.control) && !this.control.signal.aborted;
  }

  #tell(kind, text = "") {
    if (kind === this.state.kind && text === this.state.text) return;
    this.state = { kind, text };
    this.onState(this.state);
  }

  async #run(signal) {
    this.#tell("connecting");
    while (!signal.aborted) {
      try {
        const goesOn = await this.#read(signal);
        if (!goesOn) return;
        // A clean end is a rotation: come back at once, but not in a tight loop.
        if (!this.gotEvent) await sleep(this.#nextWait(), signal);
      } catch (error) {
        if (signal.aborted) return;
        if (!(await this.#recover(error, signal))) return;
      }
    }
  }

  /** One connection; false when there is nothing more to come. */
  async #read(signal) {
    this.gotEvent = false;
    const response = await send(requests.watch(this.name, this.offset, this.cursor), {
      signal,
      quiet: this.connections > 0,
    });
    this.connections++;
    const encoding = response.headers.get("Stream-SSE-Data-Encoding") ?? "";
    let data = null;
    for await (const event of readEvents(chunksOf(response.body))) {
      if (signal.aborted) return false;
      this.gotEvent = true;
      this.failures = 0;
      if (event.kind === "data") data = event.data;
      else if (event.kind === "control") {
        const ended = this.#step(data, encoding, JSON.parse(event.data));
        data = null;
        if (ended) return false;
      } else if (event.kind === "end" && event.data.includes("token-")) {
        const why = event.data.includes("revoked") ? "was revoked" : "expired";
        await this.#awaitToken(
          "expired",
          `Your token ${why}. Following continues from here once you have a new one.`,
          signal,
        );
        return !signal.aborted;
      }
    }
    return true;
  }

  #step(data, encoding, control) {
    const { streamNextOffset: next, streamCursor = this.cursor } = control;
    if (data !== null) this.onBatch({ data, encoding, start: this.offset, next });
    this.offset = next;
    this.cursor = streamCursor;
    if (control.streamClosed) this.#tell("closed");
    else this.#tell(control.upToDate || this.state.kind === "live" ? "live" : "catching-up");
    return Boolean(control.streamClosed);
  }

  /** After a failure: true to go on. */
  async #recover(error, signal) {
    if (!(error instanceof Refused)) {
      this.#tell("reconnecting", error.message);
      await sleep(this.#nextWait(), signal);
      return true;
    }
    const earliest = error.headers.get("Stream-Earliest-Offset");
    if (error.status === 410 && earliest) {
      this.offset = earliest;
      this.cursor = "";
      await this.onTrimmed(earliest);
      return true;
    }
    if (error.status === 401) {
      await this.#awaitToken(session.isExpired ? "expired" : "refused", error.message, signal);
      return true;
    }
    if (error.status === 403) {
      await this.#awaitToken("refused", error.message, signal);
      return true;
    }
    if (error.status === 404 || error.status === 410) {
      this.#tell("deleted", "The stream no longer exists.");
      return false;
    }
    if (error.status === 429 || error.status >= 500) {
      this.#tell("reconnecting", error.message);
      await sleep(this.#nextWait(), signal);
      return true;
    }
    this.#tell("lost", error.message);
    return false;
  }

  async #awaitToken(kind, text, signal) {
    session.look();
    this.#tell(kind, text);
    await changed(session, signal);
    if (!signal.aborted) this.#tell("connecting");
  }

  #nextWait() {
    const longest = Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** this.failures++);
    return longest / 2 + (Math.random() * longest) / 2;
  }

  #watchVisibility() {
    clearTimeout(this.hiding);
    if (document.hidden)
      this.hiding = setTimeout(() => document.hidden && this.isRunning && this.#sleepWhileHidden(), HIDDEN_MS);
  }

  #sleepWhileHidden() {
    this.pause();
    document.addEventListener("visibilitychange", () => this.start(), { once: true });
  }
}
