// What the console remembers between visits: names that were opened, never a token or a message.

import { bucketName } from "./names.js";

const RECENT = "weir-recent";
const BUCKETS = "weir-buckets";
const MOST = 30;

const read = (key) => {
  try {
    const value = JSON.parse(localStorage.getItem(key) ?? "[]");
    return Array.isArray(value) ? value.filter((name) => typeof name === "string") : [];
  } catch {
    return [];
  }
};

const changes = new EventTarget();

const write = (key, names, gone = "") => {
  localStorage.setItem(key, JSON.stringify(names.slice(0, MOST)));
  changes.dispatchEvent(new CustomEvent("change", { detail: { gone } }));
};

const front = (key, name) => {
  const names = read(key);
  if (names[0] !== name) write(key, [name, ...names.filter((other) => other !== name)]);
};

const drop = (key, item, name) =>
  write(
    key,
    read(key).filter((other) => other !== item),
    name,
  );

export const remembered = {
  changes,
  streams: () => read(RECENT),
  buckets: () => read(BUCKETS),
  addStream: (name) => front(RECENT, name),
  addBucket: (bucket) => front(BUCKETS, bucket),
  dropStream: (name) => drop(RECENT, name, name),
  dropBucket: (bucket) => drop(BUCKETS, bucket, bucketName(bucket)),
};
