// Starts the reference server: `node reference.mjs [DATA_DIR [PORT]]`, in memory without a directory.
// Everything else is its default (compression is on, but no load here asks for it).
import { DurableStreamTestServer } from "@durable-streams/server"

const [dataDir, port] = process.argv.slice(2)
const server = new DurableStreamTestServer({ port: Number(port ?? 0), host: "127.0.0.1", dataDir })
console.log(`reference listening on ${await server.start()}`)
process.on("SIGTERM", () => process.exit(0))
