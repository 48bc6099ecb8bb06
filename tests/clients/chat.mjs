// A chat whose answers are streams, by @durable-streams/aisdk-transport and the AI SDK:
// `node chat.mjs NAME OPTIONS`. Server and page meet in this process; what they write and read goes
// through the gateway. The page sends no header with its reads: `read` is the URL that it gets.
import { createDurableChatTransport, toDurableStreamResponse } from "@durable-streams/aisdk-transport"
import { stream } from "@durable-streams/client"
import { AbstractChat, convertToModelMessages, streamText } from "ai"
import { MockLanguageModelV3 } from "ai/test"

const API = "http://chat.test/api/chat"
const FIRST = ["A stream ", "keeps "]
const REST = ["what ", "was ", "said: “é”."]

const bearer = (token) => ({ Authorization: `Bearer ${token}` })
const textOf = (message) => (message?.parts ?? []).map((part) => part.text ?? "").join("")

// Says the first words at once, the others when it may.
function makeModel(mayGoOn) {
  const tokens = { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0, text: 1, reasoning: 0 }
  async function* parts() {
    yield { type: "stream-start", warnings: [] }
    yield { type: "text-start", id: "1" }
    for (const delta of FIRST) yield { type: "text-delta", id: "1", delta }
    await mayGoOn
    for (const delta of REST) yield { type: "text-delta", id: "1", delta }
    yield { type: "text-end", id: "1" }
    const usage = { inputTokens: tokens, outputTokens: tokens }
    yield { type: "finish", finishReason: { unified: "stop", raw: "stop" }, usage }
  }
  return new MockLanguageModelV3({ doStream: async () => ({ stream: ReadableStream.from(parts()) }) })
}

// The routes that the transport's guide asks for, called as `fetch`.
function makeServer(model, { url, read, token }) {
  const active = new Map()
  const point = (status, streamUrl) =>
    Response.json({ streamUrl }, { status, headers: { Location: streamUrl } })
  return async (address, { method, body }) => {
    if (method === "GET") {
      const id = new URL(address).pathname.split("/").at(-2)
      return active.has(id) ? point(200, active.get(id)) : new Response(null, { status: 204 })
    }
    const { id, messages } = JSON.parse(body)
    active.set(id, read)
    const answer = streamText({ model, messages: await convertToModelMessages(messages) })
    return toDurableStreamResponse({
      source: answer.toUIMessageStream({ onFinish: () => active.delete(id) }),
      stream: { writeUrl: url, readUrl: read, headers: bearer(token) },
    })
  }
}

// What `useChat` keeps for a page, and who waits for it.
class Shown {
  status = "ready"
  error = undefined
  messages = []
  #waiting = []
  #look = () => {
    this.#waiting = this.#waiting.filter((check) => !check())
  }
  pushMessage = (message) => {
    this.messages = [...this.messages, message]
    this.#look()
  }
  popMessage = () => {
    this.messages = this.messages.slice(0, -1)
  }
  replaceMessage = (index, message) => {
    this.messages = this.messages.with(index, message)
    this.#look()
  }
  snapshot = (value) => structuredClone(value)

  get answer() {
    return textOf(this.messages.find((message) => message.role === "assistant"))
  }

  until(text) {
    return new Promise((resolve) => {
      const check = () => this.answer === text && (resolve(), true)
      if (!check()) this.#waiting.push(check)
    })
  }
}

class Page extends AbstractChat {
  constructor(server) {
    const state = new Shown()
    super({ id: "chat-1", state, transport: createDurableChatTransport({ api: API, fetchClient: server }) })
    this.shown = state
  }
}

const scenarios = {
  // A page asks and is left in the middle of the answer; another goes on where the stream is, and
  // one that comes when all is said finds nothing to resume.
  async resume({ url, read, token }) {
    let goOn
    const model = makeModel(new Promise((resolve) => (goOn = resolve)))
    const server = makeServer(model, { url, read, token })
    const [left, back, late] = [new Page(server), new Page(server), new Page(server)]
    const asked = left.sendMessage({ text: "What does a stream do?" })
    await left.shown.until(FIRST.join(""))
    await left.stop()
    await asked
    const resumed = back.resumeStream()
    await back.shown.until(FIRST.join(""))
    goOn()
    await resumed
    await late.resumeStream()
    const kept = await (await stream({ url, headers: bearer(token), live: true })).json()
    return {
      answers: [left, back, late].map((page) => page.shown.answer),
      status: back.status,
      kept: kept.map((chunk) => chunk.delta ?? "").join(""),
    }
  },

  // What a page sees whose reads are refused.
  async refused({ url, read, token }) {
    const page = new Page(makeServer(makeModel(Promise.resolve()), { url, read, token }))
    await page.sendMessage({ text: "Hello?" })
    return { answer: page.shown.answer, status: page.status, error: page.error?.status }
  },
}

const [name, options] = process.argv.slice(2)
console.log(JSON.stringify(await scenarios[name](JSON.parse(options))))
process.exit(0) // kept-alive connections would hold it
