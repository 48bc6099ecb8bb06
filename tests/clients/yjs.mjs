// Documents that are edited together, by @durable-streams/y-durable-streams: `node yjs.mjs NAME
// OPTIONS`. Its server keeps them in streams behind the gateway, and compacts them as they grow.
import { YjsProvider } from "@durable-streams/y-durable-streams"
import { YjsServer } from "@durable-streams/y-durable-streams/server"
import * as Y from "yjs"

const SERVICE = "weir"
const BATCH = 7 // lines; the last or the one before it makes the server compact
const LINE_BYTES = 100
const PATIENCE_MS = 20_000
const log = console.log
console.log = () => {} // where the server tells of compactions

class Editor {
  #waiting = []

  constructor(server, docId) {
    this.doc = new Y.Doc()
    this.lines = this.doc.getArray("lines")
    this.doc.on("update", () => (this.#waiting = this.#waiting.filter((check) => !check())))
    const baseUrl = `${server.url}/v1/yjs/${SERVICE}`
    this.provider = new YjsProvider({ doc: this.doc, baseUrl, docId })
    this.synced = new Promise((resolve, reject) => {
      this.provider.on("synced", (is) => is && resolve())
      this.provider.on("error", reject)
    })
  }

  until(count) {
    return new Promise((resolve) => {
      const check = () => this.lines.length >= count && (resolve(), true)
      if (!check()) this.#waiting.push(check)
    })
  }

  // One line, as an append of its own: the other has it before the next one is written.
  async write(other) {
    const number = this.lines.length
    this.lines.push([`${number} `.padEnd(LINE_BYTES, "x")])
    await other.until(number + 1)
  }

  get numbers() {
    return this.lines.toArray().map((line) => parseInt(line, 10))
  }
}

async function startServer({ base, token }) {
  const dsServerHeaders = { Authorization: `Bearer ${token}` }
  const compactionThreshold = BATCH * LINE_BYTES
  const server = new YjsServer({ dsServerUrl: base, dsServerHeaders, compactionThreshold })
  await server.start()
  return server
}

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms))

async function until(condition) {
  while (!condition()) await sleep(5)
}

// Two who edit one document. After each batch of lines the server compacts; the last lines are
// left uncompacted.
async function edit(server, docId, { compactions, more }) {
  const [writer, reader] = [new Editor(server, docId), new Editor(server, docId)]
  await Promise.all([writer.synced, reader.synced])
  const offsets = []
  const isCompacted = () => {
    const { snapshotOffset, compacting } = server.getDocumentState(SERVICE, docId) ?? {}
    return snapshotOffset && snapshotOffset !== offsets.at(-1) && !compacting
  }
  for (let count = 0; count < compactions; count++) {
    for (let line = 0; line < BATCH; line++) await writer.write(reader)
    await until(isCompacted)
    offsets.push(server.getDocumentState(SERVICE, docId).snapshotOffset)
  }
  for (let line = 0; line < more; line++) await writer.write(reader)
  return { writer, reader, offsets }
}

const scenarios = {
  // Who joins after the compactions, at the server that made them and at one that starts anew,
  // sees what those see who were there all the time, and what they write then.
  async join(options) {
    const server = await startServer(options)
    const documents = await Promise.all(
      options.documents.map(async (docId) => {
        const { writer, reader, offsets } = await edit(server, docId, options)
        const late = [new Editor(server, docId), new Editor(await startServer(options), docId)]
        // `synced` comes with the first chunk, which need not be the last; what is written before
        // it goes nowhere.
        const whole = (editor) => Promise.all([editor.synced, editor.until(writer.lines.length)])
        const all = Promise.all(late.map(whole))
        await Promise.race([all, sleep(PATIENCE_MS)])
        const found = late.map((editor) => editor.numbers)
        if (found.some((numbers) => numbers.length < writer.lines.length)) return { found }
        await late[0].write(writer)
        await Promise.all([reader, late[1]].map((other) => other.until(late[0].lines.length)))
        return { found, offsets, seen: [writer, reader, ...late].map((editor) => editor.numbers) }
      }),
    )
    return documents
  },
}

const [name, options] = process.argv.slice(2)
log(JSON.stringify(await scenarios[name](JSON.parse(options))))
process.exit(0) // kept-alive connections would hold it
