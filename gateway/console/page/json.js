// JSON as it came: cut into messages and laid out for people without being parsed into values, so
// that large numbers, repeated names and escapes are shown as they are in the stream.

const TOKEN = /["[\]{},:]|[^\s"[\]{},:]+/g;
const INDENT = "  ";
const MAX_TOKENS = 20000;
const MAX_CHARACTERS = 200000; // longer texts are shown as they are, the beginning of them

/** Behind the string that begins here. No pattern: one that knows escapes needs stack for each. */
const endOfString = (text, start) => {
  for (let at = start; (at = text.indexOf('"', at + 1)) >= 0;) {
    let slashes = 0;
    while (text[at - 1 - slashes] === "\\") slashes++;
    if (slashes % 2 === 0) return at + 1;
  }
  return text.length; // it was cut
};

/** The pieces of JSON and where they are: [token, start, end]. */
function* tokensOf(text) {
  for (let at = 0; ;) {
    TOKEN.lastIndex = at;
    const found = TOKEN.exec(text);
    if (!found) return;
    const start = found.index;
    at = found[0] === '"' ? endOfString(text, start) : TOKEN.lastIndex;
    yield [text.slice(start, at), start, at];
  }
}

/** The texts of an array's elements. */
export const splitArray = (text) => {
  const found = [];
  let depth = 0;
  let first = 0;
  for (const [token, start, end] of tokensOf(text)) {
    if (token === "[" || token === "{") {
      if (++depth === 1) first = end;
    } else if (token === "]" || token === "}") {
      if (--depth === 0) {
        const last = text.slice(first, start).trim();
        if (last) found.push(last);
      }
    } else if (token === "," && depth === 1) {
      found.push(text.slice(first, start).trim());
      first = end;
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
  const tokens = [...tokensOf(text.length > limit ? text.slice(0, limit) : text)].map(([token]) => token);
  let plain = "";
  for (const [at, token] of tokens.entries()) {
    const kind = kindOf(token, tokens[at + 1]);
    if (kind === "sign") {
      plain += token === "," || token === ":" ? `${token} ` : token;
      continue;
    }
    if (plain) nodes.push(plain);
    plain = "";
    nodes.push(span(kind, token));
  }
  if (plain) nodes.push(plain);
  if (text.length > limit) nodes.push(" …");
  return nodes;
};

/** Laid out over lines; null when the text is no JSON. */
const pretty = (text) => {
  try {
    JSON.parse(text);
  } catch {
    return null;
  }
  const tokens = [];
  for (const [token] of tokensOf(text)) {
    tokens.push(token);
    if (tokens.length > MAX_TOKENS) break;
  }
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

/** A text as a whole: laid out if it is JSON and short enough, else as it is, its beginning. */
export const layOutText = (text, isJson = true) => {
  const more = text.length - MAX_CHARACTERS;
  if (more > 0) return [`${text.slice(0, MAX_CHARACTERS)}\n… ${more.toLocaleString("en")} characters more`];
  return (isJson && pretty(text)) || [text];
};
