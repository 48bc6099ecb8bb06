// The start: which view the address names, and what is on every page.

import { createBucket, createStream } from "./actions.js";
import { loadSetup } from "./api.js";
import { BucketView } from "./bucket.js";
import { button, byId, el, notify } from "./dom.js";
import { GatewayView } from "./gateway.js";
import { bucketName, faultOf, linkTo } from "./names.js";
import { startRequestLog } from "./requestlog.js";
import { session } from "./session.js";
import { startSidebar } from "./sidebar.js";
import { StreamView } from "./stream.js";
import { startTheme } from "./theme.js";
import { mintQuickly, openTokens, watchToken } from "./tokens.js";
import { HOW_TO_MINT } from "./words.js";

const welcomeWords = (needs) => {
  if (!needs)
    return "Open a stream by name, choose one from the list, or create one. New messages appear as they are appended.";
  if (session.canMint)
    return "This is a development gateway on your machine. Mint a token that allows everything for an hour.";
  if (session.isMint) return `This is a development gateway. ${HOW_TO_MINT}`;
  return "All requests use your own token. It stays in this tab and is not stored on the server.";
};

const welcome = () => {
  const needs = session.isMissing;
  const mint = session.canMint;
  const steps = needs
    ? [
        mint ? button("Mint a development token", mintQuickly, { class: "button primary" }) : null,
        button("Paste a token", openTokens, { class: mint ? "button" : "button primary" }),
      ]
    : [
        button("Create a stream", () => createStream(), { class: "button primary" }),
        button("Create a bucket", () =>
          createBucket((bucket) => {
            location.hash = linkTo(bucketName(bucket));
          }),
        ),
      ];
  return el(
    "div",
    { class: "empty-page" },
    el("h1", {}, needs ? "Welcome to Weir" : "Streams, live"),
    el("p", { class: "about" }, welcomeWords(needs)),
    el("div", { class: "actions" }, steps),
  );
};

class HomeView {
  element = el("article", { class: "home" });
  draw = () => this.element.replaceChildren(welcome());

  open() {
    session.addEventListener("change", this.draw);
    this.draw();
  }

  close() {
    session.removeEventListener("change", this.draw);
  }
}

const viewOf = (hash) => {
  const [place, query = ""] = hash.split("?");
  const [, kind = "", ...rest] = place.split("/");
  let name = rest.join("/");
  try {
    name = decodeURIComponent(name);
  } catch {
    // as it is
  }
  if (name && faultOf(name)) {
    notify(faultOf(name), "bad");
    return ["home", new HomeView()];
  }
  if (kind === "stream" && name) return ["stream", new StreamView(name, new URLSearchParams(query).get("from"))];
  if (kind === "bucket" && name) return ["bucket", new BucketView(name)];
  if (kind === "gateway") return ["gateway", new GatewayView()];
  return ["home", new HomeView()];
};

let view = null;

const go = () => {
  session.readAddress();
  view?.close();
  const [kind, next] = viewOf(location.hash);
  view = next;
  byId("frame").dataset.view = kind;
  for (const link of document.querySelectorAll("nav a")) {
    const here = (link.dataset.view === "gateway") === (kind === "gateway");
    if (here) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  byId("main").replaceChildren(view.element);
  view.open();
};

byId("skip").addEventListener("click", (event) => {
  event.preventDefault();
  byId("main").focus();
});

session.readAddress(); // before anything is waited for
startTheme();
startRequestLog();
try {
  await loadSetup();
} catch {
  // The page works without: nothing can be minted, and the gateway asks for a token.
}
watchToken();
startSidebar();
addEventListener("hashchange", go);
go();
