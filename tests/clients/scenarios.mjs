// What a user of the official TypeScript client does: `node scenarios.mjs NAME OPTIONS`.
// Prints what the client saw as JSON; the tests judge it. Options: the stream's url, tokens, and
// what the scenario names. Messages are strings; in a byte stream each ends with a line feed.
import { DurableStream, IdempotentProducer, stream } from "@durable-streams/client"
import { MaterializedState, isChangeEvent } from "@durable-streams/state"

const MESSAGES = 5
const JSON_TYPE = "application/json"
const PADDING = "x".repeat(100)

const bearer = (token) => ({ Authorization: `Bearer ${token}` })
const encode = (type, message) => (type === JSON_TYPE ? JSON.stringify(message) : `${message}\n`)

// A reader keeps what it gets; a writer can wait for it.
class Seen {
  messages = []
  #text = ""
  #waiting = []

  take(messages) {
    this.messages.push(...messages)
    this.#waiting = this.#waiting.filter((check) => !check())
  }

  takeText(text) {
    const lines = (this.#text + text).split("\n")
    this.#text = lines.pop()
    this.take(lines)
  }

  until(count) {
    return new Promise((resolve) => {
      const check = () => this.messages.length >= count && (resolve(), true)
      if (!check()) this.#waiting.push(check)
    })
  }
}

function subscribe(session, type) {
  const seen = new Seen()
  const decoder = new TextDecoder()
  if (type === JSON_TYPE) session.subscribeJson((batch) => seen.take(batch.items))
  else if (type.startsWith("text/")) session.subscribeText((chunk) => seen.takeText(chunk.text))
  else session.subscribeBytes((chunk) => seen.takeText(decoder.decode(chunk.data, { stream: true })))
  return seen
}

// All up to the tail, as it was encoded.
async function readAll(session, type) {
  if (type === JSON_TYPE) return (await session.json()).map((item) => JSON.stringify(item)).join("")
  return type.startsWith("text/") ? session.text() : new TextDecoder().decode(await session.body())
}

// Counts the requests that a session makes, by live mode.
function counting(asked) {
  return (url, init) => {
    const mode = new URL(url).searchParams.get("live") ?? "catch-up"
    asked[mode] = (asked[mode] ?? 0) + 1
    return fetch(url, init)
  }
}

// As StreamDB does it: a reset clears, marks of snapshots change nothing.
function applyAll(state, events) {
  for (const event of events) {
    if (isChangeEvent(event)) state.apply(event)
    else if (event.headers.control === "reset") state.clear()
  }
}

const failure = (error) => ({ name: error.name, status: error.status ?? null })

const scenarios = {
  // Write a number of messages, read them all, twice. (With `live: false` the client would stop
  // after the first chunk.)
  async catchUp({ url, token, type, count }) {
    const headers = bearer(token)
    const handle = await DurableStream.create({ url, headers, contentType: type })
    const sent = Array.from({ length: count }, (_, n) => encode(type, `message ${n} ${PADDING}`))
    for (const message of sent) await handle.append(message)
    const asked = {}
    const reads = []
    for (let n = 0; n < 2; n++) {
      const session = await stream({ url, headers, live: true, fetch: counting(asked) })
      reads.push(await readAll(session, type))
    }
    const { contentType } = await handle.head()
    return { complete: reads.every((read) => read === sent.join("")), asked, type: contentType }
  },

  // Read live what is written message by message, each after the one before was seen; then close.
  async follow({ url, token, type, live }) {
    const headers = bearer(token)
    const handle = await DurableStream.create({ url, headers, contentType: type })
    const asked = {}
    const session = await stream({ url, headers, live, fetch: counting(asked) })
    const seen = subscribe(session, type)
    for (let n = 0; n < MESSAGES; n++) {
      await handle.append(encode(type, `live ${n} é`))
      await seen.until(n + 1)
    }
    await handle.close({ body: encode(type, "the end") })
    await Promise.all([seen.until(MESSAGES + 1), session.closed])
    return { messages: seen.messages, closed: session.streamClosed, asked }
  },

  // Read by SSE until a second connection was made, with tokens[n] for request n (or the last one).
  async reconnect({ url, token, tokens }) {
    const writer = await DurableStream.create({ url, headers: bearer(token), contentType: JSON_TYPE })
    const asked = {}
    const rest = [...tokens]
    const next = () => `Bearer ${rest.length > 1 ? rest.shift() : rest[0]}`
    const options = { url, headers: { Authorization: next }, live: "sse", fetch: counting(asked) }
    const session = await stream(options)
    const seen = subscribe(session, JSON_TYPE)
    let written = 0
    while ((asked.sse ?? 0) < 2) {
      await writer.append(JSON.stringify(written++))
      await seen.until(written)
    }
    await writer.close()
    await session.closed
    return { complete: seen.messages.every((m, n) => m === n) && seen.messages.length === written, asked }
  },

  // Follow by SSE until the stream is closed.
  async watch({ url }) {
    const asked = {}
    const session = await stream({ url, live: "sse", fetch: counting(asked) })
    const messages = []
    for await (const message of session.jsonStream()) messages.push(message)
    return { messages, offset: session.offset, asked }
  },

  // Follow by SSE until it fails.
  async outlive({ url, token, writer }) {
    const headers = bearer(writer)
    await DurableStream.create({ url, headers, contentType: JSON_TYPE, body: JSON.stringify("a") })
    const session = await stream({ url, headers: bearer(token), live: "sse" })
    const seen = subscribe(session, JSON_TYPE)
    const error = await session.closed.then(() => null, failure)
    return { messages: seen.messages, error }
  },

  // Many small batches at the same time, each sent twice as after a lost answer.
  async produce({ url, token, count }) {
    const headers = bearer(token)
    const handle = await DurableStream.create({ url, headers, contentType: JSON_TYPE })
    const errors = []
    const producer = new IdempotentProducer(handle, "writer-1", {
      maxBatchBytes: 1,
      maxInFlight: 5,
      fetch: async (...request) => {
        await fetch(...request)
        return fetch(...request)
      },
      onError: (error) => errors.push(failure(error)),
    })
    for (let n = 0; n < count; n++) producer.append(JSON.stringify(n))
    await producer.flush()
    await producer.close(JSON.stringify("the end"))
    const messages = await (await stream({ url, headers, live: false })).json()
    return { messages, errors, closed: (await handle.head()).streamClosed }
  },

  // A newer epoch of the same producer shuts the older one out.
  async fence({ url, token }) {
    const headers = bearer(token)
    const handle = await DurableStream.create({ url, headers, contentType: JSON_TYPE })
    const errors = []
    const onError = (error) => errors.push(error.name)
    const older = new IdempotentProducer(handle, "writer-1", { epoch: 0, onError })
    const newer = new IdempotentProducer(handle, "writer-1", { epoch: 1 })
    for (const [producer, message] of [[older, "a"], [newer, "b"], [older, "c"]]) {
      producer.append(JSON.stringify(message))
      await producer.flush()
    }
    return { messages: await (await stream({ url, headers, live: false })).json(), errors }
  },

  // Close, and write nevertheless.
  async close({ url, token }) {
    const headers = bearer(token)
    const handle = await DurableStream.create({ url, headers, contentType: JSON_TYPE })
    await handle.append(JSON.stringify("first"))
    const { finalOffset } = await handle.close()
    const refused = await handle.append(JSON.stringify("late")).catch(failure)
    const session = await stream({ url, headers, live: true })
    const messages = await session.json()
    const head = await handle.head()
    return { messages, refused, closed: head.streamClosed, same: head.offset === finalOffset }
  },

  async remove({ url, token }) {
    const headers = bearer(token)
    const handle = await DurableStream.create({ url, headers, contentType: JSON_TYPE })
    await handle.append(JSON.stringify("first"))
    await (await stream({ url, headers, live: false })).json()
    await handle.delete()
    return { error: await stream({ url, headers, live: false }).catch(failure) }
  },

  // The state of a stream of State messages, as rows of type, key and value: from its snapshot, if
  // it has one, and from the messages after that.
  async materialise({ url, token }) {
    const headers = bearer(token)
    const state = new MaterializedState()
    const snapshot = await fetch(`${url}/snapshot`, { headers })
    const events = snapshot.ok ? await snapshot.json() : []
    applyAll(state, events)
    const offset = snapshot.ok ? snapshot.headers.get("Stream-Next-Offset") : "-1"
    const more = await (await stream({ url, headers, offset, live: true })).json()
    applyAll(state, more)
    const rows = state.types.flatMap((type) => [...state.getType(type)].map((row) => [type, ...row]))
    return { rows, counts: [events.length, more.length] }
  },

  // Read with whatever token this is, if any.
  async read({ url, token }) {
    const headers = token ? bearer(token) : {}
    return { error: await stream({ url, headers, live: false }).then(() => null, failure) }
  },
}

const [name, options] = process.argv.slice(2)
console.log(JSON.stringify(await scenarios[name](JSON.parse(options))))
process.exit(0) // kept-alive connections would hold it
