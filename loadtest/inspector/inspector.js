// The comment column of mitmweb as columns: see addon.py.
const COLUMNS = ["Side", "Mode", "Offset", "Cursor", "Cache"];
const SEPARATOR = " | ";
const WIDTHS = "3.5em 5em 10em 5em 1fr";

const style = document.createElement("style");
style.textContent = `
  .flow-table .col-comment { width: 32em; }
  .weir { display: grid; grid-template-columns: ${WIDTHS}; gap: 0.7em; padding-left: 0.7em; text-align: left; }
  .weir > span { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
  .weir > .origin { color: #8250df; }
  .weir > .hit { color: #1a7f37; }
  .weir > .miss, .weir > .revalidated { color: #9a6700; }`;
document.head.append(style);

function split(cell, words) {
  const row = document.createElement("div");
  row.className = "weir";
  for (const word of words) {
    const part = document.createElement("span");
    part.textContent = word;
    part.title = word;
    part.className = /^[a-z]+/.exec(word)?.[0] ?? "";
    row.append(part);
  }
  cell.replaceChildren(row);
}

function splitAll() {
  for (const cell of document.querySelectorAll("td.col-comment")) {
    const words = cell.textContent.split(SEPARATOR);
    // Once it is split, its text has no separators left.
    if (words.length === COLUMNS.length) split(cell, words);
  }
  const head = document.querySelector("th.col-comment");
  if (head && !head.querySelector(".weir")) split(head, COLUMNS);
}

new MutationObserver(splitAll).observe(document.body, {
  childList: true,
  subtree: true,
  characterData: true,
});
