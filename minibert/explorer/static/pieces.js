"use strict";

// The pieces of the text, and the substrings that were tried for each word.

const TRIED = 40; // shown of a word

function showPieces(explorer) {
  const list = byId("piece-list");
  const settle = roving(list);
  list.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button) explorer.hide(Number(button.dataset.position));
  });
  explorer.view(
    (s) => [s.encoding, s.ids, s.watched],
    (s) => {
      const buttons = adjust(list, s.n, newPiece);
      s.pieces.forEach((piece, i) => drawPiece(buttons[i], s, piece, i));
      settle();
      const { cut } = s.encoding;
      setText(byId("cut"), cut ? `The page shows the first ${s.n} pieces; ${cut} more are left out.` : "");
    },
  );
}

function newPiece(position) {
  const parts = ["piece", "id", "span"].map((className) => element("bdi", { className }));
  const button = element("button", { type: "button", className: "card", tabIndex: -1 }, ...parts);
  button.dataset.position = position;
  return button;
}

function drawPiece(button, s, piece, i) {
  const [name, id, place] = button.children;
  const span = s.encoding.spans[i];
  const covered = span ? `${span[0]}–${span[1]}` : "–";
  const side = s.types[i] ? "B " : "";
  setText(name, short(piece, 32));
  setText(id, String(s.ids[i]));
  setText(place, side + covered);
  button.setAttribute("aria-pressed", String(s.hidden.has(i)));
  button.classList.toggle("second", Boolean(s.types[i]));
  button.classList.toggle("watched", i === s.watched);
  button.title = s.hidden.has(i) ? `hidden: ${short(s.encoding.pieces[i])}` : visible(piece.slice(0, 200));
}

function showWords(explorer) {
  const list = byId("word-list");
  explorer.view(
    (s) => [s.encoding],
    (s) => {
      const items = adjust(list, s.encoding.words.length, () => element("li"));
      s.encoding.words.forEach((word, i) => drawWord(items[i], word, s.encoding.pieces));
    },
  );
}

// word, then the substrings in the order in which they were tried
function drawWord(item, word, pieces) {
  const key = `${word.text}\n${word.pieces.length}`;
  if (item.key === key) return; // as typing changes one word of many
  item.key = key;
  const nodes = word.tried.slice(0, TRIED).map(({ begin, end, found }) => {
    const text = short(word.text.slice(begin, end), 32);
    return element(found ? "ins" : "del", {}, element("bdi", {}, begin ? `##${text}` : text));
  });
  const more = word.tried.length - nodes.length;
  if (more > 0) nodes.push(element("span", { className: "faint" }, `and ${more} more`));
  const last = word.tried[word.tried.length - 1];
  if (last && !last.found) nodes.push(element("span", { className: "faint" }, "[UNK]"));
  if (!nodes.length) {
    const whole = word.pieces.map((i) => short(pieces[i])).join(" ") || "left out";
    nodes.push(element("span", { className: "faint" }, `not cut: ${whole}`));
  }
  if (nodes.length > 1) nodes.unshift(element("b", {}, element("bdi", {}, short(word.text, 32))));
  item.replaceChildren(...nodes.flatMap((node) => [node, " "]));
}
