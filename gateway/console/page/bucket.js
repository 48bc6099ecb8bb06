// One bucket: its streams, page by page.

import { createStream, deleteBucket } from "./actions.js";
import { requests } from "./api.js";
import { curlOf } from "./curl.js";
import { curlBlock } from "./dialogs.js";
import { button, el } from "./dom.js";
import { listBucket } from "./listing.js";
import { bucketName, bucketOf, linkTo } from "./names.js";
import { remembered } from "./remember.js";
import { session } from "./session.js";

const HEADINGS = ["Stream", "Status", "Content type", "End", "Last write"];

const when = (ms) => (ms ? new Date(ms).toLocaleString() : "never");

export class BucketView {
  constructor(name) {
    this.bucket = bucketOf(name);
    this.body = el("tbody");
    this.words = el("p", { class: "about", role: "status" });
    this.curl = curlBlock("");
    this.asked = 0;
    this.more = button("More", () => this.#load(this.after), { hidden: true });
    this.prefix = el("input", {
      type: "search",
      placeholder: "Starts with",
      "aria-label": "Names that start with",
      oninput: () => this.#load(),
    });
    const table = el(
      "table",
      { class: "streams" },
      el("caption", { class: "away" }, `Streams of ${this.bucket}`),
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          HEADINGS.map((text) => el("th", { scope: "col" }, text)),
        ),
      ),
      this.body,
    );
    this.element = el(
      "article",
      { class: "bucket-page" },
      el(
        "header",
        { class: "stream-head" },
        el(
          "div",
          { class: "title" },
          el("a", { class: "back", href: "#/" }, "‹ Streams"),
          el("h1", {}, this.bucket),
          el("span", { class: "badges" }, el("span", { class: "badge" }, "Bucket")),
        ),
        el(
          "div",
          { class: "actions" },
          button("New stream", () => createStream(`${bucketName(this.bucket)}/`)),
          button("Delete", () =>
            deleteBucket(this.bucket, () => {
              location.hash = "#/";
            }),
          ),
        ),
      ),
      el(
        "div",
        { class: "pane padded" },
        el("div", { class: "tools" }, this.prefix, this.words),
        el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": `Streams of ${this.bucket}` }, table),
        this.more,
        this.curl,
      ),
    );
  }

  async open() {
    await this.#load();
  }

  close() {}

  async #load(after = "") {
    const prefix = this.prefix.value;
    const turn = ++this.asked; // an answer that was overtaken is not shown
    this.curl.show(curlOf(requests.list(this.bucket, after, prefix), { withToken: !session.isOpen }));
    try {
      const page = await listBucket(this.bucket, after, prefix);
      if (turn !== this.asked) return;
      remembered.addBucket(this.bucket);
      if (!after) this.body.replaceChildren();
      this.body.append(...page.streams.map((row) => this.#row(row)));
      this.after = page.next_cursor;
      this.more.hidden = !page.has_more;
      const count = this.body.childElementCount;
      this.words.textContent = count
        ? `${count.toLocaleString("en")} stream${count === 1 ? "" : "s"}${page.has_more ? " so far" : ""}`
        : "No streams.";
    } catch (error) {
      if (turn === this.asked) this.words.textContent = error.message;
    }
  }

  #row({ stream_id: id, status, content_type: type, tail_offset: tail, last_write_at_ms: written }) {
    const link = el("a", { href: linkTo(`${bucketName(this.bucket)}/${id}`) }, id);
    return el(
      "tr",
      {},
      el("td", {}, link),
      el("td", {}, status),
      el("td", {}, type),
      el("td", { class: "number" }, String(tail)),
      el("td", {}, when(written)),
    );
  }
}
