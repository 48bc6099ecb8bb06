// What can be done to a stream or a bucket, as dialogs.

import { requests } from "./api.js";
import { askFor } from "./dialogs.js";
import { el, field, notify } from "./dom.js";
import { bucketName, bucketOf, faultOf, linkTo, localName, nameOf } from "./names.js";
import { remembered } from "./remember.js";

const TYPES = ["application/json", "text/plain", "application/octet-stream"];

const text = (value = "", attributes = {}) =>
  el("input", { type: "text", value, autocomplete: "off", spellcheck: "false", autocapitalize: "off", ...attributes });
const check = (label, hint) => {
  const box = el("input", { type: "checkbox" });
  return {
    box,
    element: el("label", { class: "check" }, box, el("span", {}, label, hint ? el("small", {}, hint) : null)),
  };
};

const go = (name) => {
  const link = linkTo(name);
  if (location.hash === link) dispatchEvent(new HashChangeEvent("hashchange"));
  else location.hash = link;
};

export const createStream = (start = "") => {
  const name = text(start, { placeholder: "orders, or /ds/bucket/orders", required: true });
  const types = el(
    "datalist",
    { id: "content-types" },
    TYPES.map((value) => el("option", { value })),
  );
  const type = text(TYPES[0], { list: types.id });
  const ttl = text("", { inputmode: "numeric", placeholder: "never" });
  const body = el("textarea", { rows: 3, spellcheck: "false", placeholder: "optional" });
  const state = check("Strict State stream", "Every message must be a valid State Protocol message.");
  const closed = check("Closed from the start", "The stream will only ever contain its first content.");
  askFor({
    title: "Create a stream",
    fields: [
      field("Name", name),
      field("Content type", type, "JSON streams have separate messages; others are bytes."),
      types,
      field("Expires after this many idle seconds", ttl),
      field("First content", body),
      state.element,
      closed.element,
    ],
    verb: "Create",
    read: () => {
      const wanted = nameOf(name.value);
      const fault = faultOf(wanted);
      const asked = {
        type: type.value.trim(),
        ttl: ttl.value.trim(),
        closed: closed.box.checked,
        state: state.box.checked,
        body: body.value,
      };
      return {
        request: requests.create(fault ? "NAME" : wanted, asked),
        needs: [["create", wanted]],
        fault,
      };
    },
    done: () => {
      const made = nameOf(name.value);
      remembered.addStream(made);
      notify(`Created ${made}.`);
      go(made);
    },
  });
};

export const closeStream = (name, type, done) =>
  askFor({
    title: "Close this stream",
    about: `Nobody can append to “${name}” again. Its contents stay readable.`,
    fields: [],
    verb: "Close the stream",
    danger: true,
    read: () => ({ request: requests.close(name, type), needs: [["write", name]] }),
    done: () => {
      notify("The stream is closed.");
      done();
    },
  });

export const forkStream = (source, offset = "") => {
  const name = text(`${source}-fork`);
  const at = text(offset, { placeholder: "the end" });
  askFor({
    title: "Fork this stream",
    about: "A fork shares everything before its offset without a copy, and is independent from there on.",
    fields: [field("Name of the fork", name), field("From offset", at)],
    verb: "Fork",
    read: () => {
      const wanted = nameOf(name.value);
      const fault = faultOf(wanted);
      return {
        request: requests.fork(fault ? "NAME" : wanted, source, at.value.trim()),
        needs: [
          ["create", wanted],
          ["read", source],
        ],
        fault,
      };
    },
    done: () => {
      const made = nameOf(name.value);
      remembered.addStream(made);
      notify(`Forked to ${made}.`);
      go(made);
    },
  });
};

export const deleteStream = (name, done) => {
  const typed = text("", { "aria-required": "true" });
  askFor({
    title: "Delete this stream",
    about: "This cannot be undone. Forks keep the data they share.",
    fields: [field(`Type its name to confirm: ${name}`, typed)],
    verb: "Delete permanently",
    danger: true,
    read: () => ({
      request: requests.remove(name),
      needs: [["delete", name]],
      fault: typed.value === name ? "" : "The name does not match.",
    }),
    done: () => {
      remembered.dropStream(name);
      notify(`Deleted ${name}.`);
      done();
    },
  });
};

export const createBucket = (done) => {
  const name = text("", { placeholder: "agents" });
  askFor({
    title: "Create a bucket",
    about: "A bucket contains streams and lists them.",
    fields: [field("Name", name, "4 to 64 small letters, digits, _ or -")],
    verb: "Create",
    read: () => {
      const ok = /^[a-z0-9_-]{4,64}$/.test(name.value);
      return {
        request: requests.createBucket(ok ? name.value : "NAME"),
        needs: [["create", name.value && bucketName(name.value)]],
        fault: ok ? "" : "This is not a valid bucket name.",
      };
    },
    done: () => {
      remembered.addBucket(name.value);
      notify(`Created the bucket ${name.value}.`);
      done(name.value);
    },
  });
};

export const deleteBucket = (bucket, done) =>
  askFor({
    title: "Delete this bucket",
    about: `“${bucket}” must be empty.`,
    fields: [],
    verb: "Delete the bucket",
    danger: true,
    read: () => ({ request: requests.removeBucket(bucket), needs: [["delete", bucketName(bucket)]] }),
    done: () => {
      remembered.dropBucket(bucket);
      notify(`Deleted the bucket ${bucket}.`);
      done();
    },
  });

/** `orders in agents` for `/ds/agents/orders` */
export const titleOf = (name) => (bucketOf(name) ? `${localName(name)} in ${bucketOf(name)}` : name);
