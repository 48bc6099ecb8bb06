// The messages of a stream as they came: what is kept, how one is shown in a row and as a whole.
// Memory is bounded: beyond a limit the oldest leave, and the page says so.

import { inline, layOutText, splitArray } from "./json.js";

export const MAX_MESSAGES = 100000;
export const MAX_CHARACTERS = 64 * 1024 * 1024;
const HEX_BYTES = 4096;

const bytesOf = (base64) => Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));

const asText = (bytes) => {
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    return /[\x00-\x08\x0b\x0c\x0e-\x1f]/.test(text) ? null : text;
  } catch {
    return null;
  }
};

export const hexDump = (bytes) => {
  const lines = [];
  for (let at = 0; at < Math.min(bytes.length, HEX_BYTES); at += 16) {
    const row = [...bytes.subarray(at, at + 16)];
    const hex = row.map((b) => b.toString(16).padStart(2, "0")).join(" ");
    const text = row.map((b) => (b >= 32 && b < 127 ? String.fromCharCode(b) : "·")).join("");
    lines.push(`${at.toString(16).padStart(8, "0")}  ${hex.padEnd(47)}  ${text}`);
  }
  if (bytes.length > HEX_BYTES) lines.push(`… ${bytes.length - HEX_BYTES} bytes more`);
  return lines.join("\n");
};

/** The messages of one batch: {text, isJson, batch, place}, with `bytes` where they are no text. */
export const messagesOf = ({ data, encoding, start, next }, isJson) => {
  const batch = { start, next, texts: [] };
  if (encoding === "base64") {
    const bytes = bytesOf(data);
    const text = asText(bytes);
    return [text === null ? { text: "", bytes, batch } : { text, batch }];
  }
  if (!isJson) return [{ text: data, batch }];
  batch.texts = splitArray(data);
  return batch.texts.map((text, place) => ({ text, isJson, batch, place }));
};

const POSITION = /^(?:0{16}|[b-df-hj-np-tv-xz]{15}_)_(\d{16})$/;
/** Of our own origin's offsets, which count bytes; NaN for those of others. */
export const positionOf = (offset) => (offset === "-1" ? 0 : Number(POSITION.exec(offset)?.[1] ?? NaN));
/** Another offset of the same stream: the first half names it. */
const movedTo = (offset, position) => offset.slice(0, 17) + String(position).padStart(16, "0");

/** Where a message begins and ends. A batch says it for all its messages together; only where the
    server counts bytes, and they agree, does each have offsets of its own. */
export const offsetsOf = ({ batch, place }) => {
  const { start, next, texts } = batch;
  const whole = { start, next };
  if (texts.length < 2) return whole;
  const encoder = new TextEncoder();
  const ends = [];
  let at = positionOf(start);
  for (const text of texts) ends.push((at += encoder.encode(text).length + 1)); // and a comma
  if (at !== positionOf(next)) return whole;
  return { start: place ? movedTo(next, ends[place - 1]) : start, next: movedTo(next, ends[place]) };
};

export class Messages {
  constructor() {
    this.kept = [];
    this.dropped = 0;
    this.characters = 0;
  }

  get total() {
    return this.dropped + this.kept.length;
  }

  add(found) {
    for (const message of found) {
      this.kept.push(message);
      this.characters += message.text.length;
    }
    let leaving = Math.max(0, this.kept.length - MAX_MESSAGES);
    for (let size = this.characters; size > MAX_CHARACTERS && leaving < this.kept.length - 1; leaving++)
      size -= this.kept[leaving].text.length;
    if (!leaving) return 0;
    for (const message of this.kept.splice(0, leaving)) this.characters -= message.text.length;
    this.dropped += leaving;
    return leaving;
  }
}

/** A row of the list. */
export const fillMessage = (row, message, number) => {
  const place = document.createElement("span");
  place.className = "number";
  place.textContent = number.toLocaleString("en");
  const what = document.createElement("span");
  what.className = message.isJson ? "what json" : "what";
  if (message.isJson) what.append(...inline(message.text));
  else if (message.bytes) what.textContent = `${message.bytes.length} bytes`;
  else what.textContent = message.text.slice(0, 240).replace(/\r?\n/g, " ⏎ ");
  row.replaceChildren(place, what);
};

/** The whole of a message, laid out. */
export const layOut = (message) => {
  if (message.bytes) return [hexDump(message.bytes)];
  return layOutText(message.text, message.isJson);
};
