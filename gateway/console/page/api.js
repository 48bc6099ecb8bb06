// Every request that the console sends. A request is a plain value, so that what is sent and the
// curl that does the same cannot differ; `send` adds the token and keeps a record for the page.

import { pathOf, bucketName } from "./names.js";
import { session } from "./session.js";
import { explain } from "./words.js";

// -- requests ----------------------------------------------------------------------------------

const given = (headers) => Object.fromEntries(Object.entries(headers).filter(([, value]) => value));

const query = (values) => {
  const pairs = Object.entries(given(values)).map(([name, value]) => `${name}=${encodeURIComponent(value)}`);
  return `?${pairs.join("&")}`;
};

export const requests = {
  head: (name) => ({ method: "HEAD", path: pathOf(name) }),
  create: (name, { type, ttl, closed, state, body }) => ({
    method: "PUT",
    path: pathOf(name),
    headers: given({
      "Content-Type": type,
      "Stream-TTL": ttl,
      "Stream-Closed": closed && "true",
      "Stream-State": state && "strict",
    }),
    ...(body ? { body } : {}),
  }),
  append: (name, type, body) => ({ method: "POST", path: pathOf(name), headers: { "Content-Type": type }, body }),
  close: (name, type) => ({
    method: "POST",
    path: pathOf(name),
    headers: { "Content-Type": type, "Stream-Closed": "true" },
  }),
  fork: (name, source, offset) => ({
    method: "PUT",
    path: pathOf(name),
    headers: given({ "Stream-Forked-From": pathOf(source), "Stream-Fork-Offset": offset }),
  }),
  remove: (name) => ({ method: "DELETE", path: pathOf(name) }),
  watch: (name, offset, cursor) => ({
    path: pathOf(name) + query({ offset, live: "sse", cursor }),
    live: true,
  }),
  snapshot: (name, offset) => ({ path: `${pathOf(name)}/snapshot/${encodeURIComponent(offset)}` }),
  bootstrap: (name) => ({ path: `${pathOf(name)}/bootstrap` }),
  list: (bucket, after, prefix) => ({
    path: `${pathOf(bucketName(bucket))}/streams${query({ limit: 200, prefix, after })}`,
  }),
  createBucket: (bucket) => ({ method: "PUT", path: pathOf(bucketName(bucket)) }),
  removeBucket: (bucket) => ({ method: "DELETE", path: pathOf(bucketName(bucket)) }),
  stats: () => ({ path: "/console/stats" }),
  recent: () => ({ path: "/console/streams" }),
};

// -- sending -----------------------------------------------------------------------------------

/** An answer other than 2xx; `message` is in plain words. */
export class Refused extends Error {
  constructor(request, response, problem) {
    super(explain(request, response, problem));
    this.status = response.status;
    this.code = problem.code ?? "";
    this.headers = response.headers;
  }
}

/** No answer at all. */
export class Unreachable extends Error {
  constructor() {
    super("The gateway does not respond. It may be restarting.");
  }
}

export const sent = new EventTarget();

const record = (request, status, started) => {
  const detail = { request, status, ms: performance.now() - started, at: new Date() };
  sent.dispatchEvent(new CustomEvent("request", { detail }));
};

const problemOf = async (response) => {
  try {
    return (await response.json()) ?? {};
  } catch {
    return {};
  }
};

/** The response, its body unread; throws Refused, Unreachable, or AbortError. */
export const send = async (request, { signal, quiet = false } = {}) => {
  const { method = "GET", path, headers = {}, body } = request;
  const authorization = session.token && !session.isOpen ? { Authorization: `Bearer ${session.token}` } : {};
  const started = performance.now();
  let response;
  try {
    const options = {
      method,
      body,
      signal,
      headers: { ...headers, ...authorization },
      cache: "no-store",
      // A cookie may hold a token as well; two of them are refused.
      credentials: authorization.Authorization ? "omit" : "same-origin",
    };
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    if (!quiet) record(request, 0, started);
    throw new Unreachable();
  }
  if (!quiet) record(request, response.status, started);
  if (!response.ok) throw new Refused(request, response, await problemOf(response));
  return response;
};

// -- what is beside the streams ----------------------------------------------------------------

export const loadSetup = async () => {
  const response = await send({ path: "/console/setup" }, { quiet: true });
  session.learn(await response.json());
};

/** A development token; only a gateway of `weir up`, opened at the address that it printed, signs one. */
export const mintToken = async (wish) => {
  const request = {
    method: "POST",
    path: "/console/token",
    headers: { "Content-Type": "application/json", "Weir-Mint": session.mintSecret },
    body: JSON.stringify(wish),
  };
  const response = await send(request, { quiet: true });
  return (await response.json()).token;
};
