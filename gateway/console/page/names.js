// Names of streams and buckets, and their URLs. A bucket is `/ds/bucket`, its streams
// `/ds/bucket/stream`; everything else is flat, below /v1/stream/.

const FLAT = "/v1/stream/";
const BUCKETS = "/ds/";

/** Why this is no name; empty when it is one. Browsers take dots out of paths, encoded or not: what
 * is asked for would be another stream, or no stream at all. */
export const faultOf = (name) => {
  if (!name) return "Enter a name.";
  return name.split("/").some((part) => part === "." || part === "..")
    ? "No part of a name can be “.” or “..”: browsers drop such parts."
    : "";
};

/** Throws for what has no path. */
export const pathOf = (name) => {
  const fault = faultOf(name);
  if (fault) throw new Error(fault);
  const encoded = name.split("/").map(encodeURIComponent).join("/");
  return name.startsWith(BUCKETS) ? encoded : FLAT + encoded;
};

/** The name in what somebody typed: a name, a path or a whole URL. */
export const nameOf = (typed) => {
  const text = typed.trim();
  const isPlace = text.startsWith("/") || /^https?:\/\//.test(text);
  const path = isPlace && URL.canParse(text, location.origin) ? new URL(text, location.origin).pathname : "";
  if (path.startsWith(FLAT)) return decode(path.slice(FLAT.length));
  if (path.startsWith(BUCKETS)) return decode(path);
  return text;
};

const decode = (text) => {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
};

/** `agents` for `/ds/agents` and `/ds/agents/x`; empty for a flat stream. */
export const bucketOf = (name) => (name.startsWith(BUCKETS) ? name.slice(BUCKETS.length).split("/")[0] : "");

export const isBucket = (name) => name.startsWith(BUCKETS) && name.split("/").length === 3;

export const bucketName = (bucket) => BUCKETS + bucket;

export const localName = (name) => (bucketOf(name) ? name.split("/").slice(3).join("/") : name);

export const linkTo = (name) => `#/${isBucket(name) ? "bucket" : "stream"}/${encodeURIComponent(name)}`;
