// Reads bootstraps with a reader of multipart that is none of ours: `node multipart.mjs URL...`.
// Prints for each URL its parts as [content type, bytes in base64], or what was wrong with them.
import busboy from "@fastify/busboy"
import { once } from "node:events"
import { Readable } from "node:stream"
import { buffer } from "node:stream/consumers"

async function read(url) {
  const response = await fetch(url)
  const [, boundary] = /^multipart\/mixed; boundary=(\S+)$/.exec(response.headers.get("content-type"))
  const parts = []
  const dicer = new busboy.Dicer({ boundary })
  dicer.on("part", (part) => {
    const type = new Promise((resolve) => part.on("header", (header) => resolve(header["content-type"])))
    parts.push(Promise.all([type, buffer(part)]))
  })
  await once(Readable.fromWeb(response.body).pipe(dicer), "finish")
  return (await Promise.all(parts)).map(([type, body]) => [type.join(), body.toString("base64")])
}

const found = []
for (const url of process.argv.slice(2)) found.push(await read(url).catch((error) => String(error)))
console.log(JSON.stringify(found))
