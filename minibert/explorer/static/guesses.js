"use strict";

// What the masked-LM head guesses at one position, after every layer.

const GUESSES = 5;

function showGuesses(explorer) {
  chooser(explorer, byId("watched"), "watched", piecesOf);
  explorer.view(
    (s) => [s.bert, s.run, s.watched, s.encoding],
    (s) => {
      const found = s.bert.lens(s.run.hidden, s.watched);
      const without = found === null;
      byId("no-guesses").hidden = !without;
      byId("guess-rows").closest(".wide").hidden = without;
      if (without) return;
      const id = s.encoding.ids[s.watched];
      const original = id === explorer.maskId ? null : id;
      setText(byId("original"), original === null ? "in the text" : short(explorer.data.vocabulary[original], 14));
      const rows = adjust(byId("guess-rows"), found.length, newGuesses);
      found.forEach((logits, l) => drawGuesses(rows[l], logits, original, explorer.data.vocabulary));
    },
  );
}

function newGuesses(layer) {
  const cells = Array.from({ length: GUESSES + 1 }, () => {
    const parts = [element("bdi", { className: "piece" }), " ", element("span", { className: "chance" })];
    return element("td", {}, ...parts);
  });
  const name = layer ? `layer ${layer}` : "embeddings";
  return element("tr", {}, element("th", { scope: "row" }, name), ...cells);
}

// logits (V); original: the id that the text has there, or null
function drawGuesses(row, logits, original, vocabulary) {
  const chances = softmax(logits);
  const ids = [...largest(chances, GUESSES), original];
  ids.forEach((id, i) => {
    const cell = row.cells[i + 1];
    const [piece, chance] = cell.children;
    const named = id !== null && id !== undefined;
    setText(piece, named && i < GUESSES ? short(vocabulary[id], 18) : "");
    setText(chance, named ? percent(chances[id]) : "");
    cell.style.setProperty("--share", named ? percent(chances[id], 2) : "0%");
  });
}
