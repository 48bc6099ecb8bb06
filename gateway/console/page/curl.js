// The command line that does the same as a request. The token stays out of it: $TOKEN.

export const quote = (text) => `'${String(text).replaceAll("'", "'\\''")}'`;

/** A request is {method, path, headers, body, live}; see api.js. */
export const curlOf = (request, { withToken = true } = {}) => {
  const { method = "GET", path, headers = {}, body, live } = request;
  const flags = ["curl"];
  if (live) flags.push("-N");
  if (method === "HEAD") flags.push("-I");
  else if (method === "GET") flags.push(live ? "" : "-i");
  else flags.push("-i", "-X", method);
  const lines = [flags.filter(Boolean).join(" ")];
  if (withToken) lines.push('-H "Authorization: Bearer $TOKEN"');
  for (const [name, value] of Object.entries(headers)) lines.push(`-H ${quote(`${name}: ${value}`)}`);
  // `--data-raw`, because `-d @name` would send a file.
  if (body !== undefined) lines.push(`--data-raw ${quote(body)}`);
  lines.push(quote(location.origin + path));
  return lines.join(" \\\n  ");
};
