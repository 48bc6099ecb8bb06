// State Protocol messages and what they add up to: rows in the order of type and key. As forgiving
// as a reader must be: what is no State message is counted and passed over.

const OPERATIONS = ["insert", "update", "upsert", "delete"];
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
  return { type: value.type, key: value.key, operation: headers.operation, value: value.value };
};

/** Of types and keys; no character can make two different pairs the same. */
export const idOf = ({ type, key }) => JSON.stringify([type, key]);

const { compare } = new Intl.Collator("en", { numeric: true }); // 2 before 10
const order = (a, b) => compare(a.type, b.type) || compare(a.key, b.key) || (a.id < b.id ? -1 : Number(a.id > b.id));

/** Where a row belongs in a sorted list, not before `low`. */
const placeOf = (list, row, low) => {
  for (let high = list.length; low < high;) {
    const middle = (low + high) >> 1;
    if (order(list[middle], row) < 0) low = middle + 1;
    else high = middle;
  }
  return low;
};

/** Few among many: compares each with some of the others, never all of them. */
const merge = (list, few) => {
  const merged = [];
  let from = 0;
  for (const row of few.sort(order)) {
    const place = placeOf(list, row, from);
    while (from < place) merged.push(list[from++]);
    merged.push(row);
  }
  while (from < list.length) merged.push(list[from++]);
  return merged;
};

/** A row is {id, type, key, value, words}, the last for searching; a change replaces its value. */
export class State {
  #byId = new Map();
  #sorted = [];
  #fresh = []; // not sorted yet
  #someLeft = false; // some of the above are no more

  constructor() {
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
      this.#byId.clear();
      this.#someLeft = true;
      return "*";
    }
    this.changes++;
    const id = idOf(message);
    if (message.operation === "delete") this.#someLeft = this.#byId.delete(id) || this.#someLeft;
    else this.#put(id, message);
    return id;
  }

  #put(id, { type, key, value }) {
    const row = this.#byId.get(id) ?? this.#add({ id, type, key, words: `${type}\n${key}`.toLowerCase() });
    row.value = value;
  }

  #add(row) {
    this.#byId.set(row.id, row);
    this.#fresh.push(row);
    return row;
  }

  /** In order. Only rows that are new have to find their places. */
  get rows() {
    if (this.#someLeft) {
      const isThere = (row) => this.#byId.get(row.id) === row;
      this.#sorted = this.#sorted.filter(isThere);
      this.#fresh = this.#fresh.filter(isThere);
      this.#someLeft = false;
    }
    if (this.#fresh.length) this.#sorted = merge(this.#sorted, this.#fresh);
    this.#fresh = [];
    return this.#sorted;
  }
}
