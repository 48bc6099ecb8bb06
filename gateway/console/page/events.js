// An event stream read from a fetch: EventSource cannot send a token. Yields {kind, data}.

/** `chunks` are bytes as they come, cut anywhere. */
export async function* readEvents(chunks) {
  const decoder = new TextDecoder();
  let text = "";
  let kind = "";
  let data = [];
  for await (const chunk of chunks) {
    text += decoder.decode(chunk, { stream: true });
    // A line that ends in CR may go on with LF: keep it until we know.
    const usable = text.endsWith("\r") ? text.length - 1 : text.length;
    const lines = text.slice(0, usable).split(/\r\n|\n|\r/);
    text = lines.pop() + text.slice(usable);
    for (const line of lines) {
      if (line === "") {
        if (data.length) yield { kind: kind || "message", data: data.join("\n") };
        kind = "";
        data = [];
        continue;
      }
      const colon = line.indexOf(":");
      const name = colon < 0 ? line : line.slice(0, colon);
      const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
      if (name === "data") data.push(value);
      else if (name === "event") kind = value;
    }
  }
}

/** The bytes of a response; a browser without async iteration of streams gets it here. */
export async function* chunksOf(body) {
  const reader = body.getReader();
  try {
    for (let part; !(part = await reader.read()).done;) yield part.value;
  } finally {
    reader.cancel().catch(() => {});
  }
}
