// Where to go: open by name, buckets with their streams, and streams. Servers list the streams of a
// bucket and nothing else; so the rest is what was opened here, what the token names, and what the
// gateway served lately.

import { createBucket, createStream } from "./actions.js";
import { requests, send } from "./api.js";
import { button, byId, el } from "./dom.js";
import { listBucket } from "./listing.js";
import { bucketName, bucketOf, isBucket, linkTo, nameOf } from "./names.js";
import { remembered } from "./remember.js";
import { session } from "./session.js";

const ASK_MS = 10000;

const current = () => {
  try {
    return decodeURIComponent(location.hash.split("/").slice(2).join("/").split("?")[0]);
  } catch {
    return "";
  }
};

const link = (name, text, extra) =>
  el("a", { href: linkTo(name), class: "item", "data-name": name }, el("span", { class: "name" }, text), extra);

/** Which of the links leads to what is shown. */
const mark = () => {
  const name = current();
  for (const item of byId("sidebar").querySelectorAll(".item")) {
    if (item.dataset.name === name) item.setAttribute("aria-current", "page");
    else item.removeAttribute("aria-current");
  }
};

const openByName = () => {
  const box = el("input", {
    type: "text",
    placeholder: "Name, path or URL",
    "aria-label": "Open a stream by name",
    autocomplete: "off",
    spellcheck: "false",
    autocapitalize: "off",
  });
  const open = (event) => {
    event.preventDefault();
    const name = nameOf(box.value);
    if (!name) return;
    location.hash = linkTo(name);
    box.value = "";
  };
  return el("form", { class: "open", onsubmit: open }, box, el("button", { type: "submit", class: "button" }, "Open"));
};

/** A bucket that opens to its streams. It stays the same element while others come and go. */
const bucketItem = (bucket) => {
  const inside = el("div", { class: "inside" });
  const load = async (after = "") => {
    try {
      const page = await listBucket(bucket, after);
      const rows = page.streams.map((row) =>
        link(
          `${bucketName(bucket)}/${row.stream_id}`,
          row.stream_id,
          row.status === "Closed" ? el("small", {}, "closed") : null,
        ),
      );
      const more = page.has_more ? [button("More", () => load(page.next_cursor), { class: "button small more" })] : [];
      const none = rows.length || after ? [] : [el("p", { class: "none" }, "Empty")];
      inside.querySelector(".more")?.remove();
      if (after) inside.append(...rows, ...more);
      else inside.replaceChildren(...rows, ...more, ...none);
      mark();
    } catch (error) {
      inside.replaceChildren(el("p", { class: "none" }, error.message));
    }
  };
  const about = el(
    "a",
    { href: linkTo(bucketName(bucket)), class: "item about-bucket", "data-name": bucketName(bucket) },
    "About this bucket",
  );
  const details = el(
    "details",
    { class: "bucket" },
    el("summary", {}, el("span", { class: "name" }, bucket)),
    about,
    inside,
  );
  details.addEventListener("toggle", () => details.open && load());
  details.load = load;
  return details;
};

const bucketItems = new Map();
let served = []; // names of streams and buckets that the gateway knows of

const each = (names) => [...new Set(names)];

const bucketsKnown = () =>
  each([...remembered.buckets(), ...session.scopes.buckets, ...served.map(bucketOf).filter(Boolean)]);

const streamsKnown = () =>
  each([...remembered.streams(), ...session.scopes.streams, ...served.filter((name) => !bucketOf(name))]);

const itemOf = (bucket) => {
  if (!bucketItems.has(bucket)) bucketItems.set(bucket, bucketItem(bucket));
  return bucketItems.get(bucket);
};

/** The gateway may name it for a while yet; asking for it would be in vain. */
const forget = (name) => {
  const isOf = isBucket(name) ? (other) => bucketOf(other) === bucketOf(name) : (other) => other === name;
  served = served.filter((other) => !isOf(other));
  if (isBucket(name)) bucketItems.delete(bucketOf(name));
};

/** A stream was opened, created or deleted: what is in an open bucket may be another. */
const reloadOpen = () => {
  for (const item of bucketItems.values()) if (item.open) item.load();
};

const draw = (place) => {
  const buckets = bucketsKnown();
  const streams = streamsKnown();
  place.replaceChildren(
    el(
      "section",
      { "aria-labelledby": "buckets-title" },
      el(
        "header",
        {},
        el("h2", { id: "buckets-title" }, "Buckets"),
        button("New", () => createBucket(() => draw(place)), { class: "button small", "aria-label": "New bucket" }),
      ),
      buckets.length
        ? buckets.map(itemOf)
        : el("p", { class: "none" }, "Buckets in use are listed here with all their streams."),
    ),
    el(
      "section",
      { "aria-labelledby": "streams-title" },
      el(
        "header",
        {},
        el("h2", { id: "streams-title" }, "Streams"),
        button("New", () => createStream(), { class: "button small", "aria-label": "New stream" }),
      ),
      streams.length
        ? streams.map((name) => link(name, name))
        : el("p", { class: "none" }, "Streams that you opened, or that this gateway served recently, are listed here."),
    ),
  );
  mark();
};

/** Ask which streams are in use; quietly, and only if there may be an answer. */
const askAround = async (again) => {
  if (session.isMissing || session.isExpired || document.hidden) return;
  try {
    const response = await send(requests.recent(), { quiet: true });
    const { streams } = await response.json();
    if (JSON.stringify(streams) === JSON.stringify(served)) return;
    served = streams;
    again();
  } catch {
    // What is remembered is shown all the same.
  }
};

export const startSidebar = () => {
  const lists = el("div", { class: "lists" });
  byId("sidebar").append(openByName(), lists);
  const again = () => draw(lists);
  const ask = () => askAround(again);
  session.addEventListener("change", () => {
    served = [];
    bucketItems.clear();
    again();
    ask();
  });
  remembered.changes.addEventListener("change", ({ detail }) => {
    forget(detail.gone);
    again();
    reloadOpen();
  });
  addEventListener("hashchange", () => {
    mark();
    ask();
  });
  setInterval(ask, ASK_MS);
  again();
  ask();
};
