// The suite's own command line finds no tests inside node_modules, hence this file.
// The variable is not called BASE_URL: vitest overwrites that one with "/".
import { runConformanceTests } from "@durable-streams/server-conformance-tests"

const baseUrl = process.env.CONFORMANCE_URL
if (!baseUrl) throw new Error("CONFORMANCE_URL is not set")

const plainFetch = globalThis.fetch

// Node's fetch speaks HTTP/2 only if it is told to, and has no public way to be told: its agents
// are of the class of the one that it makes at its first use.
if (process.env.CONFORMANCE_HTTP2) {
  await plainFetch("data:,")
  const dispatcher = Symbol.for("undici.globalDispatcher.1")
  globalThis[dispatcher] = new globalThis[dispatcher].constructor({ allowH2: true })
}

// The suite knows no tokens: where a server wants one, every request of the suite brings it.
const token = process.env.CONFORMANCE_TOKEN
const fetchAs = (input, init = {}) => {
  const headers = new Headers(init.headers ?? (input instanceof Request ? input.headers : {}))
  headers.set("Authorization", `Bearer ${token}`)
  return plainFetch(input, { ...init, headers })
}

// The suite hardly reads anything twice, so that a cache has little to do: with CONFORMANCE_TWICE,
// every read that does not wait is made once in vain before.
const fetchTwice = async (input, init = {}) => {
  const method = init.method ?? (input instanceof Request ? input.method : "GET")
  const url = new URL(input instanceof Request ? input.url : input)
  if (method === "GET" && !url.searchParams.has("live")) {
    await (await fetchOnce(input instanceof Request ? input.clone() : input, init)).arrayBuffer()
  }
  return fetchOnce(input, init)
}

const fetchOnce = token ? fetchAs : plainFetch
globalThis.fetch = process.env.CONFORMANCE_TWICE ? fetchTwice : fetchOnce

// Subscriptions are not there: their tests are only counted.
const subscriptions = Boolean(process.env.CONFORMANCE_SUBSCRIPTIONS)
runConformanceTests({ baseUrl, longPollTimeoutMs: 5_000, subscriptions })
