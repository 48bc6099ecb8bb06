// What the console sent, newest first, each with the curl that does the same.

import { sent } from "./api.js";
import { curlOf } from "./curl.js";
import { curlBlock } from "./dialogs.js";
import { byId, button, el } from "./dom.js";
import { session } from "./session.js";

const MOST = 50;

const summary = ({ request, status, ms }) => [
  el("span", { class: "method" }, request.method ?? "GET"),
  el("span", { class: "path" }, request.path),
  el("span", { class: status && status < 400 ? "status good" : "status bad" }, status ? String(status) : "no answer"),
  el("span", { class: "ms" }, `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms`),
];

const entry = (record) => {
  const details = el("details", {}, el("summary", {}, summary(record)));
  details.addEventListener("toggle", () => {
    if (details.open && details.childElementCount === 1)
      details.append(curlBlock(curlOf(record.request, { withToken: !session.isOpen })));
  });
  return el("li", {}, details);
};

export const startRequestLog = () => {
  const section = byId("requests");
  const list = el("ol", { class: "log", id: "request-list", hidden: true });
  const latest = el("span", { class: "latest" }, "Nothing sent yet");
  const toggle = button(
    [el("b", {}, "curl"), latest],
    () => {
      list.hidden = !list.hidden;
      toggle.setAttribute("aria-expanded", String(!list.hidden));
      if (!list.hidden && list.firstChild) list.firstChild.firstChild.open = true;
    },
    { class: "strip", "aria-expanded": "false", "aria-controls": list.id },
  );
  section.append(toggle, list);
  sent.addEventListener("request", ({ detail }) => {
    latest.replaceChildren(...summary(detail));
    list.prepend(entry(detail));
    while (list.childElementCount > MOST) list.lastChild.remove();
  });
};
