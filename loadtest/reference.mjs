// Starts the reference server: `node reference.mjs [DATA_DIR]`, in memory without a directory.
// Everything else is its default (compression is on, but no load here asks for it).
import { DurableStreamTestServer } from "@durable-streams/server"

const dataDir = process.argv[2]
const server = new DurableStreamTestServer({ port: 0, host: "127.0.0.1", dataDir })
console.log(`reference listening on ${await server.start()}`)
process.on("SIGTERM", () => process.exit(0))
