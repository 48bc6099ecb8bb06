// The token's dialog: what it says, how long it lasts, and where to get another.

import { mintToken } from "./api.js";
import { quote } from "./curl.js";
import { curlBlock, show } from "./dialogs.js";
import { button, byId, el, factList, field, notify } from "./dom.js";
import { session, spell } from "./session.js";
import { HOW_TO_MINT } from "./words.js";

const ALL = "read:* write:* create:* delete:* snapshot:*";

const lifeOf = (exp) => {
  if (!Number.isFinite(Number(exp))) return "not set";
  const left = session.isExpired ? "expired" : `${spell(session.secondsLeft)} left`;
  return `${new Date(exp * 1000).toLocaleString()} (${left})`;
};

const describe = () => {
  const { claims, scopes } = session;
  if (!claims) {
    const how = session.isMint && !session.canMint ? ` ${HOW_TO_MINT}` : "";
    return el("p", { class: "about" }, `You have no token yet. It stays in this tab until you close it.${how}`);
  }
  const may = session.scopeClaim === undefined ? "whatever the gateway allows without scopes" : scopes.words.join("\n");
  return factList({
    Subject: session.subject || "none",
    May: may || "nothing",
    Until: lifeOf(claims.exp),
    Issuer: claims.iss ?? "not set",
    Audience: [claims.aud ?? "not set"].flat().join(", "),
  });
};

const pasteForm = (done) => {
  const box = el("textarea", { rows: 3, spellcheck: "false", autocomplete: "off", placeholder: "eyJ…" });
  const fault = el("p", { class: "fault", role: "alert" });
  const take = (event) => {
    event.preventDefault();
    fault.textContent = session.use(box.value);
    if (!fault.textContent) done();
  };
  return el(
    "form",
    { class: "form", onsubmit: take },
    field("Paste a token", box, "Kept in this tab only, never in the address."),
    fault,
    el("div", { class: "actions" }, el("button", { type: "submit", class: "button primary" }, "Use this token")),
  );
};

const mintForm = (done) => {
  const sub = el("input", { type: "text", value: "dev", autocomplete: "off" });
  const scope = el("input", { type: "text", value: ALL, autocomplete: "off", spellcheck: "false" });
  const minutes = el("input", { type: "number", value: 60, min: 1, max: Math.floor(session.setup.mint_max_secs / 60) });
  const fault = el("p", { class: "fault", role: "alert" });
  const mint = async (event) => {
    event.preventDefault();
    try {
      session.use(await mintToken({ sub: sub.value, scope: scope.value, ttl_secs: Number(minutes.value) * 60 }));
      notify("Minted a development token.");
      done();
    } catch (error) {
      fault.textContent = error.message;
    }
  };
  const command = curlBlock("", "weir token");
  const look = () => {
    const flags = `--sub ${quote(sub.value)} --scope ${quote(scope.value)} --ttl ${minutes.value}m`;
    command.show(`${session.setup.token_command} ${flags}`);
  };
  look();
  return el(
    "form",
    { class: "form", onsubmit: mint, oninput: look },
    el("h3", {}, "Mint a development token"),
    el("div", { class: "pair" }, field("Subject", sub), field("Minutes", minutes)),
    field("Scopes", scope, "action:pattern, separated by spaces; read:chat/* allows reading everything below chat/. Actions: read, write, create, delete, snapshot (publish one)"),
    fault,
    el("div", { class: "actions" }, el("button", { type: "submit", class: "button primary" }, "Mint")),
    el("details", {}, el("summary", {}, "The same as weir token"), command),
  );
};

export const openTokens = () => {
  const done = () => dialog.close();
  const forget = session.token
    ? button(
        "Forget token",
        () => {
          session.forget();
          done();
        },
        { class: "button small" },
      )
    : null;
  const dialog = show(
    "Token",
    describe(),
    forget,
    session.canMint ? mintForm(done) : null,
    pasteForm(done),
  );
  return dialog;
};

/** One click for newcomers: everything allowed, for an hour. */
export const mintQuickly = async () => {
  try {
    session.use(await mintToken({ sub: "dev", scope: ALL, ttl_secs: Math.min(3600, session.setup.mint_max_secs) }));
    notify("Minted a development token for an hour.");
  } catch (error) {
    notify(error.message, "bad");
  }
};

const chipText = () => {
  if (session.isOpen) return ["No tokens needed", "", "open"];
  if (!session.token) return ["No token", "", "missing"];
  const name = session.subject || "token";
  if (session.isExpired) return [name, ": expired", "expired"];
  const left = session.secondsLeft;
  return [name, left === Infinity ? "" : ` · ${spell(left)}`, left < 60 ? "soon" : "good"];
};

const drawBanner = () => {
  const banner = byId("banner");
  const kind = session.isExpired ? `expired ${session.canMint}` : ""; // what it shows
  if (banner.dataset.kind === kind) return;
  banner.dataset.kind = kind;
  if (!kind) return banner.replaceChildren();
  const end = new Date(session.claims.exp * 1000).toLocaleTimeString();
  const text = `Your token expired at ${end}. Get a new one to continue where you stopped.`;
  const mint = session.canMint ? button("Mint a new one", mintQuickly, { class: "button small" }) : null;
  banner.replaceChildren(
    el(
      "div",
      { class: "banner", role: "alert" },
      el("span", {}, text),
      mint,
      button("Paste one", openTokens, { class: "button small" }),
    ),
  );
};

/** The chip in the bar counts down; the banner tells when it is over. */
export const watchToken = () => {
  const chip = byId("token-button");
  const who = el("span");
  const left = el("span", { class: "wide" });
  chip.replaceChildren(who, left); // for good: a click is lost if what it began on is replaced
  const draw = () => {
    const [name, rest, kind] = chipText();
    if (chip.textContent !== name + rest) {
      who.textContent = name;
      left.textContent = rest;
    }
    chip.dataset.kind = kind;
    chip.setAttribute("aria-label", `Token: ${name}${rest}`);
    drawBanner();
  };
  chip.addEventListener("click", openTokens);
  session.addEventListener("change", draw);
  session.addEventListener("look", draw);
  setInterval(draw, 500);
  draw();
};
