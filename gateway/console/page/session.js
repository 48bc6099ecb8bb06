// The token and what it says. It lives in this tab's sessionStorage: not in the URL, not in a
// cookie, not in another tab, and gone with the tab. So does the secret of `weir up`, which comes in
// the address and is taken out of it at once.

import { Scopes } from "./scopes.js";

const KEY = "weir-token";
const MINT_KEY = "weir-mint";

const readClaims = (token) => {
  try {
    const part = token.split(".")[1].replaceAll("-", "+").replaceAll("_", "/");
    const bytes = Uint8Array.from(atob(part), (c) => c.charCodeAt(0));
    const claims = JSON.parse(new TextDecoder().decode(bytes));
    return claims && typeof claims === "object" ? claims : null;
  } catch {
    return null;
  }
};

class Session extends EventTarget {
  setup = { auth: "jwt", scope_claim: "scope", mint_max_secs: 0, token_command: "" };
  token = sessionStorage.getItem(KEY) ?? "";
  claims = readClaims(this.token);
  scopes = new Scopes(this.scopeClaim);
  mintSecret = sessionStorage.getItem(MINT_KEY) ?? "";

  /** What the gateway says of itself. */
  learn(setup) {
    this.setup = setup;
    this.scopes = new Scopes(this.scopeClaim);
  }

  /** Take the secret out of the address that `weir up` printed, if this is that one. */
  readAddress() {
    const secret = /^#mint=([\w-]+)$/.exec(location.hash)?.[1];
    if (!secret) return;
    history.replaceState(null, "", location.pathname);
    sessionStorage.setItem(MINT_KEY, secret);
    this.mintSecret = secret;
    this.dispatchEvent(new Event("change"));
  }

  /** Returns why the text cannot be a token; empty when it was taken. */
  use(text) {
    const token = text.trim().replace(/^Bearer\s+/i, "");
    const claims = readClaims(token);
    if (!/^[\w-]+\.[\w-]+\.[\w-]+$/.test(token) || !claims)
      return "This is not a JWT, which has three parts separated by dots.";
    sessionStorage.setItem(KEY, token);
    this.#become(token, claims);
    return "";
  }

  forget() {
    sessionStorage.removeItem(KEY);
    this.#become("", null);
  }

  /** Somebody met the token's end: what shows how it stands shows it now, all in one moment. */
  look() {
    this.dispatchEvent(new Event("look"));
  }

  #become(token, claims) {
    this.token = token;
    this.claims = claims;
    this.scopes = new Scopes(this.scopeClaim);
    this.dispatchEvent(new Event("change"));
  }

  /** What the token says of scopes, in the claim where this gateway looks; undefined if nothing. */
  get scopeClaim() {
    return this.claims?.[this.setup.scope_claim];
  }

  get isOpen() {
    return this.setup.auth === "off";
  }

  /** Whether the gateway signs tokens for who opened the right address. */
  get isMint() {
    return this.setup.mint_max_secs > 0;
  }

  get canMint() {
    return this.isMint && this.mintSecret !== "";
  }

  get isMissing() {
    return !this.isOpen && !this.token;
  }

  get secondsLeft() {
    const end = Number(this.claims?.exp);
    return Number.isFinite(end) ? end - Date.now() / 1000 : Infinity;
  }

  get isExpired() {
    return Boolean(this.token) && this.secondsLeft <= 0;
  }

  get subject() {
    return String(this.claims?.sub ?? "");
  }

  /** Whether asking makes sense. A token that names no scopes may be good for everything: ask. */
  allows(action, name) {
    if (this.isOpen || this.scopeClaim === undefined) return true;
    return action === "list" ? this.scopes.allowsListing(name) : this.scopes.allows(action, name);
  }
}

export const session = new Session();

/** `2 h 5 min`, `42 s` */
export const spell = (seconds) => {
  const s = Math.max(0, Math.floor(seconds));
  if (s >= 172800) return `${Math.floor(s / 86400)} days`;
  if (s >= 3600) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return s >= 60 ? `${Math.floor(s / 60)} min ${s % 60} s` : `${s} s`;
};
