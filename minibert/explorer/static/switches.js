"use strict";

// Heads, layers and words switched off, and what that changes: in the answer of a fine-tuned model, in the guess at the
// watched position, or, of a model with neither, in the last vector there.

const EFFECTS = 6; // rows
const TURN = 30; // milliseconds of trying switches before the page may draw and listen

// What a run says, as numbers with names: {title, values, name(i), chance: are they probabilities, logits}; these
// are null where there is no head
function outcome(explorer, s, run) {
  const last = run.hidden[run.hidden.length - 1];
  const here = placed(s.pieces, s.watched);
  if (s.task) {
    const { kind, logits } = s.bert.answer(last);
    return { ...outcomeOfTask(s.task, { kind, logits }, s), chance: kind !== "regress" && kind !== "choice", logits };
  }
  const guess = guessOf(explorer, s, last, s.watched);
  if (guess) return guess;
  const title = `Last vector of ${here}: cosine with the whole model’s`;
  const values = [cosine(rowVector(s.whole.hidden, s, s.watched), rowVector(run.hidden, s, s.watched))];
  return { title, values, name: () => "cosine", chance: false, logits: null };
}

// hidden (n, H), of any layer -> an outcome: what the masked-LM head guesses from a row; null without the head
function guessOf(explorer, s, hidden, row) {
  const guesses = s.bert.lens([hidden], row);
  if (!guesses) return null;
  const [logits] = guesses;
  const name = (id) => short(explorer.data.vocabulary[id]);
  return { title: `Guess at ${placed(s.pieces, row)}`, values: softmax(logits), name, chance: true, logits };
}

// hidden [L+1] of (n, H) -> (H), of the last layer
function rowVector(hidden, s, row) {
  const H = s.config.hidden_size;
  return hidden[hidden.length - 1].subarray(row * H, row * H + H);
}

function cosine(a, b) {
  let [ab, aa, bb] = [0, 0, 0];
  a.forEach((x, i) => {
    ab += x * b[i];
    aa += x * x;
    bb += b[i] * b[i];
  });
  return ab / (Math.sqrt(aa * bb) || 1);
}

function showSwitches(explorer) {
  const board = byId("switch-heads");
  const words = byId("switch-words");
  const settle = [roving(board), roving(words)];
  for (const parent of [board, words]) {
    parent.addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (button) explorer.toggle(button.kind, button.key);
    });
  }
  byId("all-on").addEventListener("click", () => explorer.change({ off: NOTHING_OFF }));
  byId("map").addEventListener("click", () => tryAll(explorer));
  explorer.view(
    (s) => [s.config, s.off, effectsOf(s), s.dark],
    (s) => {
      drawHeadSwitches(board, s);
      settle[0]();
    },
  );
  explorer.view(
    (s) => [s.pieces, s.off, effectsOf(s), s.dark],
    (s) => {
      const buttons = adjust(words, s.n, (i) => newSwitch("words", i));
      s.pieces.forEach((piece, i) => drawSwitch(buttons[i], s, placed(s.pieces, i), short(piece, 16)));
      settle[1]();
    },
  );
  explorer.view(
    (s) => [effectsOf(s), s.pieces],
    (s) => {
      const effects = effectsOf(s);
      const done = effects && effects.done < effects.total ? `${effects.done} of ${effects.total} forward passes` : "";
      setText(byId("map-state"), done);
      setText(byId("map-legend"), effects ? effects.legend : "");
    },
  );
  explorer.view(
    (s) => [s.bert, s.whole, s.run, s.watched, s.pieces],
    (s) => {
      const before = outcome(explorer, s, s.whole);
      drawEffect(s, before, s.isWhole ? before : outcome(explorer, s, s.run));
    },
  );
}

// The map of all switches, as long as it is that of what is shown
function effectsOf(s) {
  const { effects } = s;
  return effects && effects.whole === s.whole && effects.watched === s.watched ? effects : null;
}

function newSwitch(kind, key) {
  const button = element("button", { type: "button", className: "switch", kind, key, tabIndex: -1 });
  button.setAttribute("role", "switch");
  button.append(element("bdi"), element("span", { className: "change" }));
  return button;
}

// A row of heads for each layer, the layer itself in front
function drawHeadSwitches(board, s) {
  const { num_hidden_layers: L, num_attention_heads: A } = s.config;
  board.style.setProperty("--heads", A);
  const buttons = adjust(board, L * (A + 1), (i) => {
    const [l, h] = [Math.floor(i / (A + 1)), (i % (A + 1)) - 1];
    return h < 0 ? newSwitch("layers", l) : newSwitch("heads", `${l}.${h}`);
  });
  for (let i = 0; i < buttons.length; i++) {
    const [l, h] = [Math.floor(i / (A + 1)) + 1, i % (A + 1)];
    drawSwitch(buttons[i], s, h ? `layer ${l}, head ${h}` : `layer ${l}`, h ? String(h) : `layer ${l}`);
  }
}

function drawSwitch(button, s, name, text) {
  const isOff = s.off[button.kind].has(button.key);
  const effects = effectsOf(s);
  const change = effects && effects.changes.get(`${button.kind} ${button.key}`);
  const known = change !== null && change !== undefined;
  const [title, number] = button.children;
  setText(title, text);
  setText(number, known ? effects.write(change) : isOff ? "off" : "on");
  label(button, known ? `${name}; alone off: ${effects.write(change)}` : name);
  button.setAttribute("aria-checked", String(!isOff));
  const shade = known ? cssColour(paletteOf(s.dark).sign, signed(effects.most)(change)) : { colour: "", text: "" };
  button.style.background = shade.colour;
  button.style.color = number.style.color = shade.text;
}

// before, after: outcomes of the whole model and of the switched one
function drawEffect(s, before, after) {
  setText(byId("effect-title"), before.title);
  const either = before.values.map((value, i) => Math.max(value, after.values[i]));
  const places = largest(either, EFFECTS);
  const rows = adjust(byId("effect-rows"), places.length, () => {
    const cells = ["number share", "number share", "number"].map((className) => element("td", { className }));
    return element("tr", {}, element("th", { scope: "row" }, element("bdi")), ...cells);
  });
  const write = before.chance ? percent : (x) => decimal(x, 3);
  [...rows].forEach((row, i) => {
    const [name, whole, switched, change] = row.cells;
    const place = places[i];
    setText(name.firstChild, before.name(place));
    drawShare(whole, before, place, write);
    drawShare(switched, s.isWhole ? null : after, place, write);
    const d = after.values[place] - before.values[place];
    setText(change, s.isWhole ? "" : before.chance ? points(d) : decimal(d, 3));
    change.className = d > 0.0005 ? "number rises" : d < -0.0005 ? "number falls" : "number";
  });
}

function drawShare(cell, from, place, write) {
  setText(cell, from ? write(from.values[place]) : "");
  cell.style.setProperty("--share", from && from.chance ? percent(from.values[place]) : "0%");
}

// Every switch: [kind, key, what is off with it alone]
function allSwitches({ config, n }) {
  const off = (kind, key) => [kind, key, { ...NOTHING_OFF, [kind]: new Set([key]) }];
  const every = [];
  for (let l = 0; l < config.num_hidden_layers; l++) {
    every.push(off("layers", l));
    for (let h = 0; h < config.num_attention_heads; h++) every.push(off("heads", `${l}.${h}`));
  }
  for (let i = 0; i < n; i++) every.push(off("words", i));
  return every;
}

// One forward pass for each switch, in turns, until all are done or something else is shown.
async function tryAll(explorer) {
  const own = (tryAll.latest = {});
  const { whole, watched } = explorer.scene;
  const before = outcome(explorer, explorer.scene, whole);
  const [best] = largest(before.values, 1);
  const every = allSwitches(explorer.scene);
  const changes = new Map();
  const write = before.chance ? (d) => points(d, Math.abs(d) < 0.1 ? 1 : 0) : (d) => decimal(d, 2);
  const unit = before.chance ? ", in percentage points" : "";
  const legend = `${before.title}: change of “${before.name(best)}”${unit}; orange falls, blue rises.`;
  const total = every.length;
  let [done, most, began] = [0, 0, performance.now()];
  const publish = () => explorer.change({ effects: { whole, watched, changes, done, most, write, legend, total } });
  publish();
  for (const [kind, key, off] of every) {
    const s = explorer.scene;
    if (tryAll.latest !== own || s.whole !== whole || s.watched !== watched) return;
    const after = outcome(explorer, s, explorer.forward(s.bert, s.ids, s.types, off));
    const change = after.values[best] - before.values[best];
    changes.set(`${kind} ${key}`, change);
    most = Math.max(most, Math.abs(change));
    done++;
    if (performance.now() - began < TURN) continue;
    publish();
    await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
    began = performance.now();
  }
  publish();
}
