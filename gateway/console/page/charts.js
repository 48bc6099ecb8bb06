// Small line charts of the last minutes, drawn as SVG. A series is {name, kind, values}; `kind` names
// its colour and dashes in the style sheet. Values that are null are gaps.

import { el, svg } from "./dom.js";

const WIDTH = 600;
const HEIGHT = 150;
const LINES = 3;

/** The smallest of 1, 2, 5, 10, … that is not below the value. */
export const niceCeiling = (value) => {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value * 0.999);
};

const pathOf = (values, slots, top) => {
  let path = "";
  let pen = "M";
  values.forEach((value, at) => {
    if (value === null || value === undefined) {
      pen = "M";
      return;
    }
    const x = ((at + slots - values.length) / (slots - 1)) * WIDTH;
    const y = HEIGHT - (Math.min(value, top) / top) * (HEIGHT - 6) - 1;
    path += `${pen}${x.toFixed(1)} ${y.toFixed(1)}`;
    pen = "L";
  });
  return path;
};

export class LineChart {
  /** `format(value)` writes a figure; `top` is a fixed upper end, else it follows the values. */
  constructor({ title, about, series, slots, format, top }) {
    this.series = series;
    this.slots = slots;
    this.format = format;
    this.top = top;
    this.title = title;
    this.lines = series.map(({ kind }) => svg("path", { class: `line ${kind}` }));
    this.area = svg("path", { class: `area ${series[0].kind}` });
    const grid = Array.from({ length: LINES }, (_, at) => {
      const y = 0.5 + (at * (HEIGHT - 1)) / (LINES - 1);
      return svg("line", { class: "grid", x1: 0, x2: WIDTH, y1: y, y2: y });
    });
    this.levels = Array.from({ length: LINES }, () => el("span", {}));
    this.drawing = svg(
      "svg",
      { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": title },
      grid,
      this.area,
      this.lines,
    );
    this.figures = series.map(() => el("b", {}));
    const legend = el(
      "ul",
      { class: "legend" },
      series.map(({ name, kind }, at) =>
        el(
          "li",
          {},
          svg(
            "svg",
            { class: "swatch", width: 22, height: 8, "aria-hidden": "true" },
            svg("path", { class: `line ${kind}`, d: "M1 4H21" }),
          ),
          name,
          this.figures[at],
        ),
      ),
    );
    this.element = el(
      "figure",
      { class: "card" },
      el("figcaption", {}, el("h2", {}, title), el("p", {}, about)),
      el(
        "div",
        { class: "plot" },
        el("div", { class: "levels", "aria-hidden": "true" }, this.levels),
        this.drawing,
        el("div", { class: "times", "aria-hidden": "true" }, el("span", {}, `${slots} s ago`), el("span", {}, "now")),
      ),
      legend,
    );
  }

  /** `columns` has the values of each series, oldest first. */
  draw(columns) {
    const top = this.top ?? niceCeiling(Math.max(0, ...columns.flat().filter((value) => value !== null)));
    this.levels.forEach((level, at) => {
      level.textContent = this.format(top * (1 - at / (LINES - 1)));
    });
    columns.forEach((values, at) => {
      this.lines[at].setAttribute("d", pathOf(values, this.slots, top));
      const latest = values.at(-1);
      this.figures[at].textContent = latest === null || latest === undefined ? "–" : this.format(latest);
    });
    const first = pathOf(columns[0], this.slots, top);
    const begin = WIDTH - ((columns[0].length - 1) / (this.slots - 1)) * WIDTH;
    this.area.setAttribute(
      "d",
      first && !columns[0].includes(null) ? `${first}L${WIDTH} ${HEIGHT}L${begin.toFixed(1)} ${HEIGHT}Z` : "",
    );
    const words = this.series.map(({ name }, at) => `${name} ${this.figures[at].textContent}`);
    this.drawing.setAttribute("aria-label", `${this.title}: ${words.join(", ")}`);
  }
}
