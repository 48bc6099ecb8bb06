// JSON as it came: cut into messages and laid out for people without being parsed into values, so
// that large numbers, repeated names and escapes are shown as they are in the stream.

const STRUCTURE = /"(?:[^"\\]|\\.)*"|[[\]{},]/gs;
const TOKEN = /"(?:[^"\\]|\\.)*"|[[\]{},:]|[^\s"[\]{},:]+/gs;
const NAME = /\s*:/y;
const INDENT = "  ";
const MAX_TOKENS = 20000;

/** The texts of an array's elements. */
export const splitArray = (text) => {
  const found = [];
  let depth = 0;
  let start = 0;
  STRUCTURE.lastIndex = 0;
  for (let match; (match = STRUCTURE.exec(text));) {
    const sign = match[0];
    if (sign === "[" || sign === "{") {
      if (++depth === 1) start = match.index + 1;
    } else if (sign === "]" || sign === "}") {
      if (--depth === 0) {
        const last = text.slice(start, match.index).trim();
        if (last) found.push(last);
      }
    } else if (sign === "," && depth === 1) {
      found.push(text.slice(start, match.index).trim());
      start = match.index + 1;
    }
  }
  return found;
};

const kindOf = (token, next) => {
  if (token[0] === '"') return next === ":" ? "name" : "text";
  if (token === "true" || token === "false" || token === "null") return "word";
  return /^[-0-9]/.test(token) ? "number" : "sign";
};

const span = (kind, text) => {
  const element = document.createElement("span");
  element.className = `j-${kind}`;
  element.textContent = text;
  return element;
};

/** One line, coloured, cut off after `limit` characters. Brackets and commas are plain text, so that
    a row of a list is few elements. */
export const inline = (text, limit = 160) => {
  const nodes = [];
  const shown = text.length > limit ? text.slice(0, limit) : text;
  let plain = "";
  let end = 0;
  TOKEN.lastIndex = 0;
  for (let match; (match = TOKEN.exec(shown));) {
    const [token] = match;
    if (match.index > end && /\S/.test(shown.slice(end, match.index))) break; // a string that was cut
    end = TOKEN.lastIndex;
    NAME.lastIndex = end;
    const kind = kindOf(token, token[0] === '"' && NAME.test(shown) ? ":" : "");
    if (kind === "sign") {
      plain += token === "," || token === ":" ? `${token} ` : token;
      continue;
    }
    if (plain) nodes.push(plain);
    plain = "";
    nodes.push(span(kind, token));
  }
  if (plain) nodes.push(plain);
  const rest = shown.slice(end);
  if (rest.trim()) nodes.push(span("text", rest));
  if (text.length > limit) nodes.push(" …");
  return nodes;
};

/** Laid out over lines; null when the text is no JSON. */
export const pretty = (text) => {
  try {
    JSON.parse(text);
  } catch {
    return null;
  }
  const tokens = text.match(TOKEN) ?? [];
  const nodes = [];
  let depth = 0;
  const line = () => `\n${INDENT.repeat(depth)}`;
  for (const [at, token] of tokens.slice(0, MAX_TOKENS).entries()) {
    const next = tokens[at + 1];
    if (token === "{" || token === "[") {
      depth++;
      const closes = next === "}" || next === "]";
      nodes.push(span("sign", token + (closes ? "" : line())));
    } else if (token === "}" || token === "]") {
      depth--;
      const empty = tokens[at - 1] === "{" || tokens[at - 1] === "[";
      nodes.push(span("sign", (empty ? "" : line()) + token));
    } else if (token === ",") nodes.push(span("sign", `,${line()}`));
    else if (token === ":") nodes.push(span("sign", ": "));
    else nodes.push(span(kindOf(token, next), token));
  }
  if (tokens.length > MAX_TOKENS) nodes.push(span("sign", "\n… the rest is too long to show"));
  return nodes;
};
