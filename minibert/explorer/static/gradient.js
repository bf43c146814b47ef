"use strict";

// The gradient of what the model says over the pieces it has read. Small models have it in the frame of the keystroke,
// others once typing pauses.

const CHEAP = 6e6; // multiplications that a keystroke may wait for

// The position that what the model says is about, null where it is about the whole text
const asked = (s) => (s.task && s.task.kind !== "tag" ? null : s.watched);

// Whether a model has a head, and so says anything
const speaks = (s) => Boolean(s.task || s.bert.tensors.has(`${HEAD}bias`));

// Multiplications of a forward pass; a backward pass takes as long
function effort({ config, n }) {
  const { num_hidden_layers: L, hidden_size: H, intermediate_size: I, vocab_size: V } = config;
  return n * L * H * (4 * H + 2 * I + 2 * n) + V * H;
}

// What the gradient is of: the log-probability of the likeliest in an outcome, the value where that is a number, of a
// span the log-probabilities of begin and end, summed. {name, value, dlogits}; without dlogits, the name says why
function derivative(s, { title, values, name, chance, logits }) {
  const kind = s.task ? s.task.kind : "lens";
  if (kind === "span") return ofSpan(s, logits);
  const [best] = largest(values, 1);
  const dlogits = new Float64Array(logits.length);
  if (!chance) dlogits[best] = 1;
  else if (kind === "multilabel") dlogits[best] = sigmoid(-logits[best]);
  else dlogits.set(logSoftmaxBackward(values, best), kind === "tag" ? s.watched * values.length : 0);
  if (!chance) return { name: `${title}: value`, value: values[best], dlogits };
  return { name: `${title}: log-probability of “${name(best)}”`, value: Math.log(values[best]), dlogits };
}

function ofSpan(s, logits) {
  const { first, last, chance, begins, ends } = bestSpan(s, logits);
  if (first < 0) return { name: "Write the text that has the answer as text B." };
  const dlogits = new Float64Array(logits.length);
  logSoftmaxBackward(begins, first).forEach((d, i) => (dlogits[2 * i] = d));
  logSoftmaxBackward(ends, last).forEach((d, i) => (dlogits[2 * i + 1] = d));
  const name = `Answer: log-probability that it goes from “${placed(s.pieces, first)}” to “${placed(s.pieces, last)}”`;
  return { name, value: Math.log(chance), dlogits };
}

// {name, value, products, norms}: of each piece gradient × word embedding and the norm of the gradient; or a name alone.
// Gradient × the whole sum of embeddings would be zero: the LayerNorm behind it takes out its length.
function gradientOf(explorer, s) {
  const { name, value, dlogits } = derivative(s, outcome(explorer, s, s.run));
  if (!dlogits) return { name };
  const dx = explorer.backward(s.bert, s.run, dlogits, s.task ? null : s.watched);
  const H = s.config.hidden_size;
  const words = s.bert.tensors.get(`${EMBEDDINGS}word_embeddings.weight`);
  const products = new Float64Array(s.n);
  for (let i = 0; i < s.n; i++) {
    for (let c = 0; c < H; c++) products[i] += dx[i * H + c] * words[s.ids[i] * H + c];
  }
  return { name, value, products, norms: normsOf(dx, H) };
}

function showGradient(explorer) {
  const list = byId("gradient-words");
  const settle = roving(list);
  const known = new WeakMap(); // by the run, then by the position asked about
  const find = (s) => known.get(s.run)?.get(asked(s));
  const compute = (s) => {
    if (find(s) || !speaks(s)) return;
    if (!known.has(s.run)) known.set(s.run, new Map());
    known.get(s.run).set(asked(s), gradientOf(explorer, s));
  };
  const rest = rested(() => {
    compute(explorer.scene);
    explorer.change({});
  });
  explorer.view(
    (s) => [s.run, asked(s)],
    (s) => {
      if (effort(s) <= CHEAP) compute(s);
      else if (speaks(s) && !find(s)) rest();
    },
  );
  const choose = (event) => {
    const option = event.target.closest("button");
    if (option) explorer.change({ word: [...list.children].indexOf(option) });
  };
  for (const name of ["pointermove", "pointerdown", "focusin"]) list.addEventListener(name, choose);
  explorer.view(
    (s) => [s.bert, find(s), s.pieces, s.dark],
    (s) => {
      byId("gradient-body").hidden = !speaks(s);
      byId("no-gradient").hidden = speaks(s);
      drawGradient(list, find(s) || { name: "Computed as soon as you pause" }, s);
      settle();
    },
  );
  explorer.view(
    (s) => [find(s), s.word, s.pieces],
    (s) => {
      [...list.children].forEach((option, i) => option.setAttribute("aria-selected", String(i === s.word)));
      const { products, norms } = find(s) || {};
      setText(byId("gradient-piece"), placed(s.pieces, s.word));
      setText(byId("gradient-product"), products ? sized(products[s.word], products) : "");
      setText(byId("gradient-norm"), norms ? sized(norms[s.word], norms) : "");
    },
  );
}

function drawGradient(list, { name, value, products, norms }, s) {
  const known = Boolean(products);
  setText(byId("gradient-name"), known ? `${name}, ${decimal(value, 3)}` : name);
  const most = known ? sizeOf(products) : 0;
  setText(byId("gradient-most"), known ? sized(most, [most]) : "");
  const options = adjust(list, s.n, () => {
    const option = element("button", { type: "button", className: "switch", tabIndex: -1 });
    option.setAttribute("role", "option");
    option.append(element("bdi"), element("span", { className: "change" }));
    return option;
  });
  s.pieces.forEach((piece, i) => {
    const [title, number] = options[i].children;
    const shade = known ? cssColour(paletteOf(s.dark).sign, signed(most)(products[i])) : { colour: "", text: "" };
    const product = known ? sized(products[i], products) : "–";
    const figures = known ? `; gradient × embedding ${product}, norm ${sized(norms[i], norms)}` : "";
    setText(title, short(piece, 16));
    setText(number, product);
    options[i].title = placed(s.pieces, i) + figures;
    options[i].style.background = shade.colour;
    options[i].style.color = number.style.color = shade.text;
  });
}

// A number with as many digits as show three of the largest of its kind
function sized(x, kind) {
  const size = sizeOf(kind);
  const text = size < 1e-4 ? x.toExponential(1) : x.toFixed(clamp(2 - Math.floor(Math.log10(size)), 7));
  if (!Number(text)) return "0";
  return (x > 0 && kind.some((one) => one < 0) ? "+" : "") + minus(text).replace("e-", "e−");
}
