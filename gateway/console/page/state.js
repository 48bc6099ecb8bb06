// State Protocol messages and what they add up to: rows by type and key. As forgiving as a reader
// must be: what is no State message is counted and passed over.

const OPERATIONS = ["insert", "update", "delete"];
const CONTROLS = ["snapshot-start", "snapshot-end", "reset"];

const isFilled = (text) => typeof text === "string" && text !== "";

/** A change, a control, or null for something else. */
export const readMessage = (text) => {
  let value;
  try {
    value = JSON.parse(text);
  } catch {
    return null;
  }
  const headers = value?.headers;
  if (!headers || typeof headers !== "object") return null;
  if (CONTROLS.includes(headers.control) && headers.operation === undefined) return { control: headers.control };
  if (!OPERATIONS.includes(headers.operation) || headers.control !== undefined) return null;
  if (!isFilled(value.type) || !isFilled(value.key)) return null;
  if (headers.operation !== "delete" && value.value === undefined) return null;
  return { type: value.type, key: value.key, operation: headers.operation, value: value.value, headers };
};

/** Of types and keys; no character can make two different pairs the same. */
export const idOf = ({ type, key }) => JSON.stringify([type, key]);

export class State {
  constructor() {
    this.rows = new Map();
    this.strangers = 0;
    this.changes = 0;
  }

  /** Returns the id that changed, "*" for everything, or null. */
  apply(text) {
    const message = readMessage(text);
    if (!message) {
      this.strangers++;
      return null;
    }
    if (message.control) {
      if (message.control !== "reset") return null;
      this.rows.clear();
      return "*";
    }
    this.changes++;
    const id = idOf(message);
    if (message.operation === "delete") this.rows.delete(id);
    else this.rows.set(id, message);
    return id;
  }
}
