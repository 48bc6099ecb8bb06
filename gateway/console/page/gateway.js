// The gateway itself: what came in, what had to go to the origin, who waits, how long it took.

import { Refused, requests, send } from "./api.js";
import { LineChart } from "./charts.js";
import { curlOf } from "./curl.js";
import { curlBlock } from "./dialogs.js";
import { el } from "./dom.js";
import { between, collapseFactor, readShare } from "./figures.js";
import { session } from "./session.js";

const SLOTS = 60; // seconds on a chart
const EVERY_MS = 1000;

const rate = (value) => `${value >= 100 ? Math.round(value).toLocaleString("en") : Number(value.toFixed(1))}/s`;
const percent = (value) => (value === null ? "–" : `${Number(value.toFixed(1))} %`);
const amount = (value) => Math.round(value).toLocaleString("en");
const several = (count, word) => `${amount(count)} ${word}${count === 1 ? "" : "s"}`;
const time = (seconds) => (seconds >= 1 ? `${seconds.toFixed(1)} s` : `${Number((seconds * 1000).toPrecision(2))} ms`);
const size = (bytes) => (bytes >= 1048576 ? `${(bytes / 1048576).toFixed(1)} MiB` : `${Math.round(bytes / 1024)} KiB`);

const CHARTS = [
  {
    title: "Requests from clients and to the origin",
    about: "The gap between the lines is what the gateway answered itself.",
    format: rate,
    parts: [
      ["Clients", "k-1", "requests"],
      ["Origin", "k-3", "upstream"],
      ["Sent by hubs", "k-2", "deliveries"],
    ],
  },
  {
    title: "Reads answered without their own request",
    about: "From the cache, from a hub, or by another reader's request.",
    format: percent,
    top: 100,
    parts: [
      ["Cache", "k-1", "hits"],
      ["Hub", "k-2", "hub"],
      ["Collapsed", "k-4", "collapsed"],
    ],
  },
  {
    title: "Readers",
    about: "Waiting long-polls and event streams, and all open connections.",
    format: amount,
    parts: [
      ["Live readers", "k-2", "readers"],
      ["Connections", "k-6", "connections"],
    ],
  },
  {
    title: "Latency",
    about: "All requests except live reads, which wait for data.",
    format: time,
    parts: [
      ["p50", "k-1", "p50"],
      ["p95", "k-3", "p95"],
      ["p99", "k-5", "p99"],
    ],
  },
];

export class GatewayView {
  constructor() {
    this.history = [];
    this.words = el("p", { class: "about", role: "status" }, "Waiting for figures …");
    this.tiles = el("div", { class: "tiles" });
    this.charts = CHARTS.map(
      (chart) => new LineChart({ ...chart, slots: SLOTS, series: chart.parts.map(([name, kind]) => ({ name, kind })) }),
    );
    this.element = el(
      "article",
      { class: "gateway-page" },
      el("header", { class: "page-head" }, el("h1", {}, "Gateway"), this.words),
      this.tiles,
      el(
        "div",
        { class: "pairs" },
        this.charts.map(({ element }) => element),
      ),
      el(
        "details",
        { class: "card" },
        el("summary", {}, "The same as curl"),
        curlBlock(curlOf(requests.stats(), { withToken: !session.isOpen })),
      ),
    );
  }

  async open() {
    this.again = () => this.#poll();
    session.addEventListener("change", this.again);
    await this.#poll();
  }

  close() {
    this.isGone = true;
    clearTimeout(this.timer);
    session.removeEventListener("change", this.again);
  }

  async #poll() {
    clearTimeout(this.timer);
    if (this.isGone) return;
    try {
      if (!document.hidden) {
        const response = await send(requests.stats(), { quiet: true });
        this.#note(await response.json(), performance.now());
      }
    } catch (error) {
      this.words.textContent = error.message;
      this.words.classList.add("fault");
      const needsToken = error instanceof Refused && [401, 403].includes(error.status);
      if (needsToken) return; // until there is another one
      this.latest = null;
    }
    clearTimeout(this.timer);
    if (!this.isGone) this.timer = setTimeout(() => this.#poll(), EVERY_MS);
  }

  #note(figures, at) {
    if (this.latest) {
      const point = between(this.latest.figures, figures, (at - this.latest.at) / 1000);
      this.history = [...this.history, point].slice(-SLOTS);
      this.charts.forEach((chart, index) =>
        chart.draw(CHARTS[index].parts.map(([, , key]) => this.history.map((each) => each[key]))),
      );
    }
    this.latest = { figures, at };
    this.words.classList.remove("fault");
    const origin = figures.upstream_up ? "the origin is up" : "the origin is down";
    this.words.textContent = `${several(figures.workers, "worker")}; ${origin}. Counted anew every second.`;
    this.#drawTiles(figures);
  }

  #drawTiles(figures) {
    const factor = collapseFactor(figures);
    const tiles = [
      ["Without the origin", percent(readShare(figures, "hit", "stale", "hub")), "of all reads so far"],
      [
        "From the cache",
        percent(readShare(figures, "hit", "stale")),
        `${size(figures.cache_bytes)} in ${several(figures.cache_entries, "chunk")}`,
      ],
      ["From hubs", percent(readShare(figures, "hub")), `${several(figures.hubs, "stream")} followed`],
      ["Collapsed", amount(figures.collapsed), "reads shared a fetch"],
      ["Live readers", amount(figures.readers), several(figures.connections, "connection")],
      [
        "Collapse factor",
        factor === null ? "–" : `${factor >= 100 ? amount(factor) : factor.toFixed(1)} : 1`,
        "reads per origin read",
      ],
    ];
    if (!this.tiles.childElementCount)
      this.tiles.append(
        ...tiles.map(([label]) =>
          el("div", { class: "tile" }, el("span", { class: "label" }, label), el("strong", {}), el("small", {})),
        ),
      );
    tiles.forEach(([, figure, about], at) => {
      const [, strong, small] = this.tiles.children[at].children;
      strong.textContent = figure;
      small.textContent = about;
    });
  }
}
