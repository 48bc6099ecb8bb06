// Starts the reference server of loadtest/ in memory, with the long-poll timeout in milliseconds.
import { createRequire } from "node:module"

const loadtest = createRequire(new URL("../../loadtest/reference.mjs", import.meta.url))
const { DurableStreamTestServer } = loadtest("@durable-streams/server")

const options = { port: 0, host: "127.0.0.1", longPollTimeout: Number(process.argv[2]) }
console.log(`reference listening on ${await new DurableStreamTestServer(options).start()}`)
