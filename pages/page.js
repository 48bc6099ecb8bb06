// The report's interactive parts: tooltips, sorting, filtering, light and dark.
// Everything shown is inserted as text; nothing is parsed as markup.
"use strict";

const make = (name, text, attributes = {}) => {
  const element = document.createElement(name);
  if (text) element.textContent = text;
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
};

// Tooltips

const tip = document.getElementById("tip");

const placeTip = (x, y) => {
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const left = x + 16 + width > innerWidth ? x - 16 - width : x + 16;
  const top = Math.min(Math.max(y - height / 2, 8), innerHeight - height - 8);
  tip.style.transform = `translate(${Math.max(left, 8)}px, ${Math.max(top, 8)}px)`;
};

const hideTip = () => {
  tip.hidden = true;
  for (const cursor of document.querySelectorAll(".cursor.on")) cursor.classList.remove("on");
};

document.addEventListener("pointermove", (event) => {
  const marked = event.target.closest?.("[data-tip]");
  if (marked) {
    tip.textContent = marked.dataset.tip;
    placeTip(event.clientX, event.clientY);
  } else if (!event.target.closest?.(".timed")) {
    hideTip();
  }
});
document.addEventListener("scroll", hideTip, { passive: true });
document.addEventListener("keydown", (event) => event.key === "Escape" && hideTip());

const timed = [...document.querySelectorAll(".timed")];

for (const plot of timed) {
  const figure = plot.closest("figure");
  const marks = plot.querySelector(".marks");
  const names = [...figure.querySelectorAll(".values thead th")].slice(1).map((th) => th.textContent);
  const rows = figure.querySelector(".values tbody").rows;
  const swatches = [...figure.querySelectorAll(".legend .swatch")];
  let slot = rows.length - 1;

  const show = (x, y) => {
    // Charts with the same axis share a cursor.
    for (const other of timed) {
      const cursor = other.querySelector(".cursor");
      cursor.classList.toggle("on", other.dataset.axis === plot.dataset.axis);
      cursor.setAttribute("x", `${(100 * slot) / rows.length}%`);
    }
    const [time, ...values] = [...rows[slot].cells].map((cell) => cell.textContent);
    const lines = names.map((name, at) => {
      const line = make("div");
      if (swatches[at]) line.append(swatches[at].cloneNode(true));
      line.append(make("span", name), make("strong", values[at]));
      return line;
    });
    tip.replaceChildren(make("b", time), ...lines);
    placeTip(x, y);
  };

  const follow = (event) => {
    const box = marks.getBoundingClientRect();
    const part = (event.clientX - box.left) / box.width;
    if (part < 0 || part >= 1) return hideTip();
    slot = Math.floor(part * rows.length);
    show(event.clientX, event.clientY);
  };
  plot.addEventListener("pointermove", follow);
  plot.addEventListener("pointerdown", follow);
  plot.addEventListener("pointerleave", hideTip);
  plot.addEventListener("blur", hideTip);
  plot.addEventListener("keydown", (event) => {
    const to = { ArrowLeft: slot - 1, ArrowRight: slot + 1, Home: 0, End: rows.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    slot = Math.min(Math.max(to, 0), rows.length - 1);
    const box = marks.getBoundingClientRect();
    show(box.left + ((slot + 0.5) / rows.length) * box.width, box.top + box.height / 2);
  });
}

// Tables: sort by a column, filter by the first one, show the first rows until expanded

for (const table of document.querySelectorAll(".sortable")) {
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const short = Number(table.dataset.short);
  let all = rows.length <= short + 2;
  let wanted = "";

  const refresh = () => {
    let shown = 0;
    for (const row of body.rows) {
      const fits = row.cells[0].textContent.toLowerCase().includes(wanted);
      row.hidden = !fits || (!all && !wanted && shown >= short);
      shown += fits ? 1 : 0;
    }
  };

  const key = (row, column) => {
    const cell = row.cells[column];
    if (cell.dataset.value === undefined) return cell.textContent;
    return cell.dataset.value === "" ? null : Number(cell.dataset.value);
  };
  const compare = (a, b, sign) => {
    if (a === null || b === null) return (a === null) - (b === null); // unknown comes last
    return sign * (typeof a === "number" ? a - b : a.localeCompare(b, "en", { numeric: true }));
  };
  const sort = (column, heading) => {
    const text = rows[0] && rows[0].cells[column].dataset.value === undefined;
    const before = heading.getAttribute("aria-sort");
    const down = before ? before === "ascending" : !text;
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", down ? "descending" : "ascending");
    rows.sort((a, b) => compare(key(a, column), key(b, column), down ? -1 : 1));
    body.append(...rows);
    refresh();
  };

  [...table.tHead.rows[0].cells].forEach((heading, column) => {
    if (heading.dataset.fixed !== undefined || rows.length < 2) return;
    const button = make("button", heading.textContent, { type: "button" });
    button.addEventListener("click", () => sort(column, heading));
    heading.replaceChildren(button);
  });

  const tools = make("div", "", { class: "tools" });
  if (table.dataset.find && rows.length > short) {
    const input = make("input", "", { type: "search", placeholder: table.dataset.find, "aria-label": table.dataset.find });
    input.addEventListener("input", () => {
      wanted = input.value.trim().toLowerCase();
      refresh();
    });
    tools.append(input);
  }
  if (!all) {
    const words = () => (all ? `Show the first ${short}` : `Show all ${rows.length} rows`);
    const more = make("button", words(), { type: "button", class: "more" });
    more.addEventListener("click", () => {
      all = !all;
      more.textContent = words();
      refresh();
    });
    tools.append(more);
  }
  if (tools.hasChildNodes()) table.parentElement.after(tools);
  refresh();
}

// The current section, and the theme

const links = new Map([...document.querySelectorAll("nav a")].map((a) => [a.hash.slice(1), a]));
const seen = new Set();
const watcher = new IntersectionObserver(
  (changes) => {
    for (const { target, isIntersecting } of changes) seen[isIntersecting ? "add" : "delete"](target.id);
    const current = [...links.keys()].find((id) => seen.has(id));
    for (const [id, link] of links) {
      if (id === current) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
  },
  { rootMargin: "-64px 0px -60% 0px" },
);
for (const section of document.querySelectorAll("main > section")) watcher.observe(section);

const root = document.documentElement;
const theme = make("button", "", { type: "button", class: "theme" });
const isDark = () => root.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
const nameTheme = () => (theme.textContent = isDark() === "dark" ? "Light" : "Dark");
theme.addEventListener("click", () => {
  root.dataset.theme = isDark() === "dark" ? "light" : "dark";
  nameTheme();
});
nameTheme();
document.querySelector(".top")?.append(theme);
