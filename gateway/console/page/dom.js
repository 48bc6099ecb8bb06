// Elements from data. Whatever comes from a stream enters as text: nothing here parses markup.

const SVG = "http://www.w3.org/2000/svg";

const fill = (element, attributes, children) => {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(
    ...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false),
  );
  return element;
};

/** `el("button", {type: "button", onclick: act}, "Go")` */
export const el = (name, attributes = {}, ...children) => fill(document.createElement(name), attributes, children);

export const svg = (name, attributes = {}, ...children) =>
  fill(document.createElementNS(SVG, name), attributes, children);

export const byId = (id) => document.getElementById(id);

export const button = (text, onclick, attributes = {}) =>
  el("button", { type: "button", class: "button", onclick, ...attributes }, text);

/** Draws once a frame, however often it is asked to. */
export const perFrame = (draw) => {
  let frame = 0;
  return () => {
    frame ||= requestAnimationFrame(() => {
      frame = 0;
      draw();
    });
  };
};

let numbers = 0;
export const freshId = (prefix) => `${prefix}-${++numbers}`;

/** A control with its label; `hint` is read with it. */
export const field = (label, control, hint) => {
  control.id ||= freshId("field");
  const note = hint ? el("small", { id: `${control.id}-hint` }, hint) : null;
  if (note) control.setAttribute("aria-describedby", note.id);
  return el("div", { class: "field" }, el("label", { for: control.id }, label), control, note);
};

/** {name: value} for people. */
export const factList = (facts) =>
  el(
    "dl",
    { class: "facts" },
    Object.entries(facts).map(([name, value]) => [el("dt", {}, name), el("dd", {}, String(value))]),
  );

const NOTICES = 3; // in sight at once

/** Words that everyone sees for a moment, and that screen readers say. */
export const notify = (text, kind = "good") => {
  const notice = el("p", { class: `notice ${kind}` }, text);
  const notices = byId("notices");
  notices.append(notice);
  while (notices.children.length > NOTICES) notices.firstChild.remove();
  setTimeout(() => notice.remove(), kind === "bad" ? 9000 : 4000);
};

export const copyButton = (text, label = "Copy") => {
  const control = button(
    label,
    async () => {
      const words = typeof text === "function" ? text() : text;
      try {
        await navigator.clipboard.writeText(words);
        notify("Copied.");
      } catch {
        notify("The browser did not allow copying; select the text instead.", "bad");
      }
    },
    { class: "button small" },
  );
  return control;
};
