// Refusals in plain words: what happened, and what would help.

import { session } from "./session.js";

export const HOW_TO_MINT =
  "To get a token, open the address that `weir up` printed, or paste the output of `weir token`.";

const DOING = { GET: "read", HEAD: "read", POST: "append to", PUT: "create", DELETE: "delete" };

/** The scope that a 403 names. */
export const scopeOf = (response) => /scope="([^"]*)"/.exec(response.headers.get("WWW-Authenticate") ?? "")?.[1] ?? "";

const unauthorised = () => {
  if (!session.token) return "This needs a token. Paste one, or mint one if this is a development gateway.";
  if (session.isExpired) {
    const end = new Date(session.claims.exp * 1000).toLocaleTimeString();
    return `Your token expired at ${end}. Get a new one to continue; nothing on this page is lost.`;
  }
  return "The gateway does not accept this token: its issuer, audience or key is wrong, or it was revoked.";
};

export const forbidden = (scope) => {
  const who = session.subject ? `The token of “${session.subject}”` : "The token";
  const has = session.scopes.words.join(" ") || "no scope";
  return scope
    ? `${who} does not allow this. It needs the scope ${scope}, and has: ${has}`
    : `${who} does not allow this. It has: ${has}`;
};

export const BY_CODE = {
  "not-the-console": HOW_TO_MINT,
  closed: "The stream is closed and accepts no more messages.",
  "bucket-not-found": "The bucket does not exist. Create it first.",
  "bucket-exists": "The bucket already exists.",
  "bucket-not-empty": "The bucket still has streams. Delete them first.",
  "offset-beyond-tail": "This offset is beyond the end of the stream, which may have been deleted and re-created.",
  "foreign-offset": "This offset belongs to another stream. This one may have been deleted and re-created.",
  "offset-gone": "A snapshot has replaced this part of the stream.",
  "origin-unreachable": "The gateway is up, but the origin behind it does not respond.",
  "origin-unavailable": "The origin behind the gateway failed repeatedly. The gateway will try again in a moment.",
  "origin-timeout": "The origin behind the gateway did not respond in time.",
};

/** What to tell a person about an answer that is none of the good ones. */
export const explain = (request, response, problem) => {
  const { status } = response;
  if (status === 401) return unauthorised();
  if (status === 403 && problem.code === "insufficient-scope") return forbidden(scopeOf(response));
  if (BY_CODE[problem.code]) return BY_CODE[problem.code];
  if (status === 404) return "The stream does not exist.";
  if (status === 429) return "Too many requests; wait a moment.";
  const detail = problem.detail || `The gateway responded with ${status}.`;
  return status >= 500 ? `${detail} Try again in a moment.` : `Could not ${DOING[request.method ?? "GET"]}: ${detail}`;
};
