"use strict";

// The walk: one layer, one head, one piece, step by step. The steps' equations and sentences are in explorer.html.j2, in
// the same order; here are their numbers, of the run that all views show.

const MOST_ACTIVE = 6; // inner units

// Each step: its name, the heads of its columns, and rows(s): [{name, values, number}], values being drawn as a strip, or
// with `share` in their place as a bar
const WALK = [
  { name: "x", columns: ["vector", "its numbers", "mean ± deviation"], rows: inputRows },
  { name: "q, k, v", columns: ["vector", "its numbers", "length"], rows: projectionRows },
  { name: "scores", columns: ["key of", "query × key", "score"], rows: scoreRows },
  { name: "weights", columns: ["key of", "weight", ""], rows: weightRows },
  { name: "sum of values", columns: ["value of", "weight × value", "weight"], rows: mixtureRows },
  { name: "output projection", columns: ["of", "what it adds", "length"], rows: outputRows },
  { name: "add & norm", columns: ["vector", "its numbers", "mean ± deviation"], rows: attendedRows },
  { name: "feed-forward", columns: ["of", "what it adds", "activation"], rows: innerRows },
  { name: "output", columns: ["vector", "its numbers", "mean ± deviation"], rows: fedRows },
];

function showWalk(explorer) {
  chooser(explorer, byId("walk-layer"), "layer", layersOf);
  chooser(explorer, byId("walk-head"), "head", headsOf);
  chooser(explorer, byId("walk-piece"), "query", piecesOf);
  const [back, next] = [byId("walk-back"), byId("walk-next")];
  // Over the steps of all layers
  const go = (by) => {
    const { layer, step, config } = explorer.scene;
    const to = clamp(layer * WALK.length + step + by, config.num_hidden_layers * WALK.length);
    explorer.change({ layer: Math.floor(to / WALK.length), step: to % WALK.length });
  };
  back.addEventListener("click", () => go(-1));
  next.addEventListener("click", () => go(1));
  arrows(byId("walk-steps"), (dx) => go(dx));
  const track = adjust(byId("walk-track"), WALK.length, (i) => newStep(explorer, i));
  explorer.view(
    (s) => [s.step, s.layer, s.config],
    (s) => {
      const atFocus = byId("walk-track").contains(document.activeElement);
      [...track].forEach(({ firstChild: button }, i) => markStep(button, i === s.step));
      if (atFocus) track[s.step].firstChild.focus();
      [...byId("walk-texts").children].forEach((text, i) => (text.hidden = i !== s.step));
      // A button that has the focus would lose it if it were disabled.
      back.setAttribute("aria-disabled", String(!s.layer && !s.step));
      next.setAttribute("aria-disabled", String(s.layer === s.config.num_hidden_layers - 1 && s.step === WALK.length - 1));
    },
  );
  explorer.view(
    (s) => [s.bert, s.run, s.layer, s.head, s.query, s.step, s.pieces, s.dark],
    (s) => drawStep(explorer, s),
  );
}

function newStep(explorer, step) {
  const button = element("button", { type: "button" }, WALK[step].name);
  button.addEventListener("click", () => explorer.change({ step }));
  return element("li", {}, button);
}

function markStep(button, isCurrent) {
  button.tabIndex = isCurrent ? 0 : -1;
  if (isCurrent) button.setAttribute("aria-current", "step");
  else button.removeAttribute("aria-current");
}

function drawStep(explorer, s) {
  const { columns, rows } = WALK[s.step];
  const facts = factsOf(explorer, s);
  for (const node of byId("walk").querySelectorAll("[data-fact]")) setText(node, facts[node.dataset.fact]);
  const items = rows(s);
  const most = Math.max(0, ...items.map(({ values }) => (values ? sizeOf(values) : 0)));
  ["walk-of", "walk-what", "walk-unit"].forEach((id, i) => setText(byId(id), columns[i]));
  byId("walk-legend").style.visibility = most ? "visible" : "hidden";
  setText(byId("walk-most"), decimal(most));
  const lines = adjust(byId("walk-rows"), items.length, () => {
    const name = element("th", { scope: "row" }, element("bdi"));
    const strip = element("td", {}, element("canvas", { className: "strip" }));
    return element("tr", {}, name, strip, element("td", { className: "number" }));
  });
  items.forEach((item, i) => {
    lines[i].classList.toggle("chosen", Boolean(item.chosen));
    drawLine(lines[i].cells, item, most, paletteOf(s.dark).sign);
  });
}

function drawLine([name, picture, number], { name: text, values, share, number: written }, most, table) {
  setText(name.firstChild, text);
  setText(number, written);
  picture.className = share ? "share" : "";
  picture.style.setProperty("--share", share || "0%");
  picture.firstChild.hidden = Boolean(share);
  if (values) drawStrip(picture.firstChild, values, most, table);
}

// What the sentences of the steps name
function factsOf(explorer, s) {
  const { hidden_size: H, num_attention_heads: A, intermediate_size: F } = s.config;
  const guess = s.task ? null : guessOf(explorer, s, s.run.hidden[s.layer + 1], s.query);
  const isOff = [s.off.layers.has(s.layer) && "layer", s.off.heads.has(`${s.layer}.${s.head}`) && "head"].filter(Boolean);
  return {
    piece: placed(s.pieces, s.query),
    layer: String(s.layer + 1),
    head: String(s.head + 1),
    H: String(H),
    D: String(H / A),
    F: F.toLocaleString("en"),
    guess: guess ? `Here the masked-LM head would guess ${likeliest(guess, 2).map(({ text }) => text).join(", ")}.` : "",
    off: isOff.length ? `This ${isOff[0]} is switched off, so that nothing of it is added.` : "",
  };
}

const lengthRow = (name, values) => ({ name, values, number: decimal(norm(values), 3) });
const spreadRow = (s, name, values) => {
  const [mean, inverse] = moments(values, 0, values.length, s.config.layer_norm_eps);
  return { name, values, number: `${decimal(mean, 3)} ± ${decimal(1 / inverse, 3)}` };
};
// Of (n,…) the row of the piece
const here = (s, x) => s.bert.row(x, s.query);

function inputRows(s) {
  const x = spreadRow(s, "x", here(s, s.run.hidden[s.layer]));
  if (s.layer) return [x];
  const parts = ["word", "position", "segment"].map((name, i) => spreadRow(s, name, here(s, s.run.parts[i])));
  return [...parts, spreadRow(s, "sum", here(s, s.run.sum)), x];
}

function projectionRows(s) {
  const layer = s.run.layers[s.layer];
  return ["q", "k", "v"].map((name) => lengthRow(name, partOf(s, layer[name], s.query)));
}

function scoreRows(s) {
  const { scores } = s.run.layers[s.layer];
  return s.pieces.map((_, key) => {
    return { name: placed(s.pieces, key), values: productOf(s, key), number: decimal(scores[rowOf(s, s.query) + key]) };
  });
}

function weightRows(s) {
  const { probabilities } = s.run.layers[s.layer];
  return s.pieces.map((_, key) => {
    const p = percent(probabilities[rowOf(s, s.query) + key], 2);
    return { name: placed(s.pieces, key), share: p, number: p };
  });
}

function mixtureRows(s) {
  const { parts, mixture } = mixtureOf(s);
  const rows = weightRows(s).map(({ name, number }, key) => ({ name, values: parts[key], number }));
  return [...rows, { name: "y", values: mixture, number: "" }];
}

function outputRows(s) {
  const { context } = s.run.layers[s.layer];
  const heads = s.bert.headOutputs(here(s, context), s.layer);
  const rows = heads.map((values, h) => lengthRow(`head ${h + 1}`, values));
  rows[s.head].chosen = true;
  const bias = s.bert.tensors.get(`${LAYER}${s.layer}.attention.output.dense.bias`);
  return [...rows, lengthRow("bias", bias), lengthRow("z", [...heads, bias].reduce(add))];
}

function attendedRows(s) {
  const { attended, output } = s.run.layers[s.layer];
  const [x, sum] = [here(s, s.run.hidden[s.layer]), here(s, attended)];
  const rows = [["x", x], ["z", subtract(sum, x)], ["x + z", sum], ["a", here(s, output)]];
  return rows.map(([name, values]) => spreadRow(s, name, values));
}

function innerRows(s) {
  const { active, output, fed } = s.run.layers[s.layer];
  if (!active) return [];
  const F = s.config.intermediate_size;
  const units = active.subarray(s.query * F, (s.query + 1) * F);
  const rows = largest(units.map(Math.abs), MOST_ACTIVE).map((unit) => {
    return { name: `unit ${unit}`, values: s.bert.unitOutput(units, s.layer, unit), number: decimal(units[unit], 3) };
  });
  const f = subtract(here(s, fed), here(s, output));
  const bias = s.bert.tensors.get(`${LAYER}${s.layer}.output.dense.bias`);
  const others = rows.reduce((rest, { values }) => subtract(rest, values), subtract(f, bias));
  const sums = [["all others", others], ["bias", bias], ["f", f]];
  return [...rows, ...sums.map(([name, values]) => ({ name, values, number: "" }))];
}

function fedRows(s) {
  const { output, fed } = s.run.layers[s.layer];
  const h = spreadRow(s, "h", here(s, s.run.hidden[s.layer + 1]));
  if (!fed) return [h];
  const [a, sum] = [here(s, output), here(s, fed)];
  const rows = [["a", a], ["f", subtract(sum, a)], ["a + f", sum]];
  return [...rows.map(([name, values]) => spreadRow(s, name, values)), h];
}
