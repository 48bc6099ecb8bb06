// Forms that do one thing. Each shows the curl of what it will send while it is filled in, says what
// the token lacks before anything is sent, and explains a refusal in place.

import { send } from "./api.js";
import { curlOf } from "./curl.js";
import { button, copyButton, el } from "./dom.js";
import { scopeName } from "./scopes.js";
import { session } from "./session.js";
import { forbidden } from "./words.js";

/** The scopes of `needs`, pairs of action and name, that the token does not have. */
export const lacking = (needs) =>
  needs
    .filter(([action, name]) => name && !session.allows(action, name))
    .map(([action, name]) => scopeName(action, name));

/** A command with a button that copies it. */
export const curlBlock = (text, label = "curl") => {
  const code = el("pre", { class: "curl", tabindex: "0", role: "group", "aria-label": label }, el("code", {}, text));
  const block = el(
    "div",
    { class: "curl-block" },
    code,
    copyButton(() => code.textContent),
  );
  block.show = (words) => {
    code.firstChild.textContent = words;
  };
  return block;
};

const frame = (title, body, onclose) => {
  const heading = el("h2", { id: "dialog-title" }, title);
  const close = button("✕", () => dialog.close(), { class: "button ghost", "aria-label": "Close" });
  const dialog = el(
    "dialog",
    {
      "aria-labelledby": "dialog-title",
      onclose: () => {
        dialog.remove();
        onclose?.();
      },
    },
    el("header", {}, heading, close),
    body,
  );
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
};

/** A dialog with any content. */
export const show = (title, ...content) => frame(title, el("div", { class: "form" }, content));

/** `read()` gives {request, needs, fault}; `done(response)` runs after it was accepted. */
export const askFor = ({ title, about, fields, read, verb, danger = false, done }) => {
  const curl = curlBlock("");
  const fault = el("p", { class: "fault", role: "alert" });
  const go = el("button", { type: "submit", class: danger ? "button danger" : "button primary" }, verb);
  const form = el(
    "form",
    { class: "form", method: "dialog" },
    about ? el("p", { class: "about" }, about) : null,
    fields,
    fault,
    el(
      "div",
      { class: "actions" },
      go,
      button("Cancel", () => dialog.close()),
    ),
    el("details", { open: innerHeight > 700 }, el("summary", {}, "The same as curl"), curl),
  );
  let tried = false;

  const look = () => {
    const { request, needs = [], fault: wrong } = read();
    const missing = lacking(needs);
    fault.textContent = missing.length ? forbidden(missing.join(" ")) : tried ? (wrong ?? "") : "";
    go.disabled = missing.length > 0;
    curl.show(request ? curlOf(request, { withToken: !session.isOpen }) : "…");
    return missing.length || wrong ? null : request;
  };

  form.addEventListener("input", look);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    tried = true;
    const request = look();
    if (!request || go.disabled) return;
    go.disabled = true;
    try {
      const response = await send(request);
      dialog.close();
      done(response);
    } catch (error) {
      fault.textContent = error.message;
      go.disabled = false;
    }
  });
  const dialog = frame(title, form);
  look();
  form.querySelector("input, textarea, select")?.focus();
  return dialog;
};
