// What a token allows, by the rules of docs/auth.md: only to explain before the gateway refuses.
// The gateway decides; a test holds the two equal.

const FLAT = "/v1/stream/";
const ENTRY = /^(read|write|create|delete|snapshot|subscribe):([^*]*)(\*?)$/s;

const readEntry = (entry) => {
  const found = ENTRY.exec(entry);
  if (!found) return null;
  try {
    return {
      action: found[1],
      text: found[2].replace(/(?:%[0-9A-Fa-f]{2})+/g, decodeURIComponent),
      open: found[3] === "*",
    };
  } catch {
    return null;
  }
};

const covers = ({ text, open }, name) => {
  if (open && (text === "" || text === "/")) return true;
  if (open && FLAT.startsWith(text)) return !name.startsWith("/") || name.startsWith(text);
  const pattern = text.startsWith(FLAT) ? text.slice(FLAT.length) : text;
  if (!pattern || (pattern !== text && pattern.startsWith("/"))) return false;
  return open ? name.startsWith(pattern) : name === pattern;
};

export class Scopes {
  constructor(claim) {
    const text = Array.isArray(claim) ? claim.join(" ") : String(claim ?? "");
    this.words = text.split(" ").filter(Boolean);
    this.entries = this.words.map(readEntry).filter(Boolean);
  }

  allows(action, name) {
    return this.entries.some((entry) => entry.action === action && covers(entry, name));
  }

  /** A listing shows every name: the right to some of them is not enough. */
  allowsListing(bucket) {
    const listing = `${bucket}/streams`;
    return (
      this.entries.some((e) => e.action === "read" && !e.open && e.text === listing) ||
      this.allows("read", `${bucket}/`)
    );
  }

  /** Buckets that the token names, so that they can be offered. */
  get buckets() {
    const named = this.entries.map(({ text }) => /^\/ds\/([a-z0-9_-]{4,64})(?:\/|$)/.exec(text)?.[1]);
    return [...new Set(named.filter(Boolean))];
  }

  /** Streams that the token names one by one. */
  get streams() {
    const exact = this.entries.filter(
      (e) => !e.open && e.text && !e.text.startsWith("/ds/") && !e.text.startsWith("/console/"),
    );
    return [...new Set(exact.map(({ text }) => (text.startsWith(FLAT) ? text.slice(FLAT.length) : text)))];
  }
}

const UNSAFE = /[^A-Za-z0-9/!#$&'()+,\-.:;<=>?@[\]^_`{|}~]/gu;
const escaped = (character) => (character === "*" ? "%2A" : encodeURIComponent(character));

/** The scope that grants just this. */
export const scopeName = (action, name) => `${action}:${name.replace(UNSAFE, escaped)}`;
