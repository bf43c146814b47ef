"use strict";

// The whole way from the text to what the model says, a row for each layer. Each part has a thumbnail of its numbers, a
// row of pixels for each piece, and leads to the section that shows them.

const LIKELIEST = 4; // guesses or classes
const QUICK = 2e5; // so many pixels are drawn at once; more wait until the page is at rest

function showFlow(explorer) {
  const list = byId("flow-rows");
  const settle = roving(list);
  list.addEventListener("click", (event) => {
    const link = event.target.closest("a");
    if (!link) return;
    const head = [...link.firstChild.children].indexOf(event.target.closest("i"));
    explorer.change(link.isAttention && head >= 0 ? { ...link.choice, head } : link.choice);
  });
  const draw = (s) => {
    const rows = flowOf(explorer, s);
    setText(byId("flow-title"), `From the text to the ${s.task ? "answer" : "guess"}`);
    byId("flow-notes").hidden = Boolean(s.task);
    list.style.setProperty("--n", s.n);
    list.style.setProperty("--watched", s.watched);
    const items = adjust(list, rows.length, newRow);
    rows.forEach((row, i) => drawRow(items[i], row, s));
    settle();
  };
  const rest = rested(() => draw(explorer.scene));
  explorer.view(
    (s) => [s.bert, s.run, s.watched, s.pieces, s.dark],
    (s) => (pixelsOf(s) <= QUICK ? draw(s) : rest()),
  );
}

function pixelsOf({ config, n }) {
  const { num_hidden_layers: L, num_attention_heads: A, hidden_size: H, intermediate_size: F } = config;
  return L * n * (A * n + 2 * H + F);
}

// Rows from the text down: {kind, name, note, parts}, a part being {name, to, choice, pictures, shares}: the section
// that it leads to, what is chosen there, its pictures, each of numbers in rows, and bars
function flowOf(explorer, s) {
  const { hidden, parts } = s.run;
  const last = hidden.length - 1;
  const pieces = s.pieces.map((piece) => short(piece, 16)).join(" ");
  const embeddings = ["word", "position", "segment"].map((name, i) => part(name, "pieces", {}, [parts[i]]));
  embeddings.push(part("sum, LayerNorm", "hidden", chosenVector(s, 0), [hidden[0]]));
  const isGuessing = !s.task && s.bert.lens(hidden, s.watched) !== null; // of all layers in one product
  const notes = hidden.map((states) => (isGuessing ? likeliest(guessOf(explorer, s, states, s.watched), 1) : []));
  const row = (kind, name, parts, note = []) => ({ kind, name, parts, note });
  const rows = [
    row("pieces", "Pieces", [part(pieces, "pieces", {}, [])]),
    row("embeddings", "Embeddings", embeddings, notes[0]),
    ...s.run.layers.map((layer, l) => row("layer", `Layer ${l + 1}`, partsOfLayer(s, layer, l), notes[l + 1])),
  ];
  const result = outcome(explorer, s, s.run);
  if (result.logits === null) return rows;
  const vector = part("what it reads", "hidden", chosenVector(s, last), [readBy(s, hidden[last])]);
  const to = s.task ? "answer" : "guesses";
  const said = { ...part(result.title, to, {}, []), shares: likeliest(result, LIKELIEST) };
  return [...rows, row("head", s.task ? "Output layer" : "Masked-LM head", [vector, said])];
}

const part = (name, to, choice, pictures) => ({ name, to, choice, pictures, shares: [] });
const chosenVector = (s, layer) => ({ vector: { layer, row: s.watched } });

function partsOfLayer(s, layer, l) {
  const { num_attention_heads: A } = s.config;
  const { probabilities, output, active } = layer;
  const size = s.n * s.n;
  const heads = Array.from({ length: A }, (_, h) => probabilities.subarray(h * size, (h + 1) * size));
  const walk = (step) => ({ layer: l, query: s.watched, step: WALK.findIndex(({ name }) => name === step) });
  return [
    { ...part(`attention, ${A} head${A === 1 ? "" : "s"}`, "attention", { layer: l }, heads), isAttention: true },
    part("add & norm", "walk", walk("add & norm"), [output]),
    part("feed-forward", "walk", walk("feed-forward"), [active]),
    part("add & norm", "hidden", chosenVector(s, l + 1), [s.run.hidden[l + 1]]),
  ];
}

// Of the last layer the row that the head reads, or all rows
function readBy(s, hidden) {
  if (s.task && s.task.kind === "span") return hidden;
  const isOfText = s.task && s.task.kind !== "tag";
  return s.bert.row(hidden, isOfText ? s.bert.pooledRow(s.n) : s.watched);
}

function newRow() {
  const note = element("span", { className: "note" });
  return element("li", {}, element("p", {}, element("b"), note), element("div", { className: "parts" }));
}

function drawRow(item, { kind, name, note, parts }, s) {
  const [heading, box] = item.children;
  item.className = kind;
  setText(heading.firstChild, name);
  heading.lastChild.replaceChildren(...shares(note));
  const links = adjust(box, parts.length, () => {
    const parts = ["pictures", "unseen"].map((className) => element("span", { className }));
    return element("a", { tabIndex: -1 }, ...parts, element("bdi"));
  });
  parts.forEach((part, i) => drawPart(links[i], name, part, s));
}

function drawPart(link, row, { name, to, choice, pictures, shares: bars, isAttention = false }, s) {
  const [box, prefix, title] = link.children;
  Object.assign(link, { href: `#${to}`, choice, isAttention });
  setText(prefix, ` ${row}: `);
  setText(title, name);
  if (bars.length) return box.replaceChildren(...shares(bars));
  const places = adjust(box, pictures.length, () => element("i", {}, element("canvas")));
  pictures.forEach((values, i) => drawThumbnail(places[i], values, isAttention, s));
}

// A few numbers far from the others would leave a picture of all without colour, scaled by the largest.
const deviationOf = (values) => norm(values) / root(values.length);

// values: probabilities (n,n), or (n,…) of all pieces, or (H) of one; none of a layer that is off
function drawThumbnail(place, values, isAttention, s) {
  const canvas = place.firstChild;
  const isOfOne = values && values.length === s.config.hidden_size;
  place.className = !values || isOfOne ? "one" : "all"; // the watched piece is framed in a picture of all
  if (!values) canvas.width = 0;
  else if (isAttention) drawPixels(canvas, values, s.n, paletteOf(s.dark).amount, root);
  else drawPixels(canvas, values, isOfOne ? 1 : s.n, paletteOf(s.dark).sign, signedRoot(3 * deviationOf(values)));
}
