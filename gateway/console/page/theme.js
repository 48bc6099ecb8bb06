// Light, dark, or as the system has it. The choice is kept in this browser.

import { byId, el } from "./dom.js";

const KEY = "weir-theme";
const NEXT = { "": "light", light: "dark", dark: "" };
const NAMES = { "": "Auto", light: "Light", dark: "Dark" };

export const startTheme = () => {
  const control = byId("theme-button");
  const show = (theme) => {
    if (theme) document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
    control.replaceChildren(el("span", { class: "wide" }, NAMES[theme]));
    control.setAttribute("aria-label", `Colours: ${NAMES[theme]}`);
  };
  const kept = () => (localStorage.getItem(KEY) in NEXT ? localStorage.getItem(KEY) : "");
  control.addEventListener("click", () => {
    localStorage.setItem(KEY, NEXT[kept()]);
    show(kept());
  });
  show(kept());
};
