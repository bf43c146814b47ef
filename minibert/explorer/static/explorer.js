"use strict";

// Starts the page.

function showText(explorer) {
  for (const side of ["a", "b"]) {
    const box = byId(`text-${side}`);
    box.value = explorer.state[side];
    box.addEventListener("input", () => explorer.change({ [side]: box.value }));
  }
  explorer.view(
    (s) => [s.checkpoint],
    (s) => {
      const { num_hidden_layers: L, num_attention_heads: A, hidden_size: H } = s.config;
      const { tensors, error } = explorer.data.checkpoints[s.checkpoint];
      const kinds = [...new Set(Object.values(tensors).map(({ kind }) => (kind === "i8" ? "int8" : "float16")))];
      const rounding = `changed by ${percent(error, 2)} (root mean square)`;
      const vocabulary = explorer.data.vocabulary.length.toLocaleString("en");
      const [layers, heads] = [[L, "layer"], [A, "head"]].map(([n, what]) => `${n} ${what}${n === 1 ? "" : "s"}`);
      setText(byId("facts"), `A BERT of ${layers} with ${heads} each, ${H} hidden; ${vocabulary} pieces.`);
      setText(byId("rounding"), `Weights are stored in ${kinds.sort().join(" and ")}, ${rounding}.`);
    },
  );
}

// Sentences that one click puts into the page
function showExamples(explorer) {
  const box = byId("examples");
  const { examples } = explorer.data;
  box.hidden = !examples.length;
  if (examples.length) box.append("Try");
  for (const text of examples) {
    const button = element("button", { type: "button" }, text);
    button.addEventListener("click", () => {
      byId("text-a").value = text;
      byId("text-b").value = "";
      explorer.change({ a: text, b: "", hidden: new Set() });
    });
    box.append(button);
  }
}

// The link to the section that is being read stands out.
function showWhereOneIs() {
  const links = new Map([...document.querySelectorAll("nav a")].map((link) => [link.hash.slice(1), link]));
  const mark = (entries) => {
    const seen = entries.find((entry) => entry.isIntersecting);
    if (!seen) return;
    for (const [id, link] of links) {
      if (id === seen.target.id) link.setAttribute("aria-current", "location");
      else link.removeAttribute("aria-current");
    }
  };
  const observer = new IntersectionObserver(mark, { rootMargin: "-25% 0px -74% 0px" });
  for (const id of links.keys()) observer.observe(byId(id));
}

const SAID = 3; // guesses or answers
const TO_ASK = "Write [MASK] in the text, or click a piece below: the model guesses what stands there.";

// What the model says, right below the text: it is what one looks for first
function showSaid(explorer) {
  explorer.view(
    (s) => [s.bert, s.run, s.watched, s.pieces],
    (s) => drawSaid(byId("said"), saidOf(explorer, s)),
  );
}

// {title, rows}: "Guess at 5 [MASK]" and {text: "her 81.2%", share: "81.20%"}, or how to ask for one; "" without a head
function saidOf(explorer, s) {
  const result = outcome(explorer, s, s.run);
  if (result.logits === null) return { title: "", rows: [] };
  if (!s.task && s.ids[s.watched] !== explorer.maskId) return { title: TO_ASK, rows: [] };
  return { title: `${result.title}: `, rows: likeliest(result, SAID) };
}

// The first of an outcome: [{text: "her 81.2%", share: "81.20%"}]
function likeliest({ values, name, chance }, count) {
  const write = chance ? percent : (x) => decimal(x, 3);
  return largest(values, count).map((place) => {
    const share = chance ? percent(values[place], 2) : "0%";
    return { text: `${name(place)} ${write(values[place])}`, share };
  });
}

function drawSaid(box, { title, rows }) {
  box.replaceChildren(title, ...shares(rows));
}

// A bar for each row; commas, which are not seen, keep them apart where they are read aloud.
function shares(rows) {
  const comma = () => element("span", { className: "unseen" }, ", ");
  const bars = rows.map(({ text, share }) => {
    const bar = element("span", { className: "share" }, element("bdi", {}, text));
    bar.style.setProperty("--share", share);
    return bar;
  });
  return bars.flatMap((bar, i) => (i ? [comma(), bar] : [bar]));
}

// The slider over training, where there are several checkpoints
function showTraining(explorer) {
  const { checkpoints } = explorer.data;
  const slider = byId("checkpoint");
  byId("training").hidden = checkpoints.length < 2;
  slider.max = checkpoints.length - 1;
  slider.addEventListener("input", () => explorer.change({ checkpoint: Number(slider.value) }));
  explorer.view(
    (s) => [s.checkpoint, s.dark, s.width],
    (s) => {
      const { name, step, loss } = checkpoints[s.checkpoint];
      const place = step === null ? short(name) : `step ${step.toLocaleString("en")}`;
      const text = loss === null ? place : `${place}, loss ${decimal(loss, 3)}`;
      slider.value = String(s.checkpoint);
      slider.setAttribute("aria-valuetext", text);
      setText(byId("checkpoint-at"), text);
      drawCurve(byId("curve"), checkpoints, s);
    },
  );
}

// The losses of the checkpoints, the chosen one marked
function drawCurve(box, checkpoints, s) {
  const [width, height] = [box.clientWidth, box.clientHeight];
  const losses = checkpoints.map(({ loss }) => loss);
  const known = losses.filter((loss) => loss !== null);
  label(box, known.length ? `Loss of the checkpoints: ${known.map((loss) => decimal(loss, 2)).join(", ")}` : "No losses");
  const context = fit(box.firstElementChild, width, height);
  const [low, high] = [Math.min(...known), Math.max(...known)];
  const at = (i) => [
    6 + (i / (losses.length - 1)) * (width - 12),
    6 + ((high - losses[i]) / (high - low || 1)) * (height - 12),
  ];
  const { ink, sign } = paletteOf(s.dark);
  const there = losses.map((_, i) => i).filter((i) => losses[i] !== null);
  context.strokeStyle = ink;
  context.beginPath();
  for (const i of there) context.lineTo(...at(i));
  context.stroke();
  for (const i of there) {
    context.fillStyle = i === s.checkpoint ? cssColour(sign, 0.12).colour : ink;
    context.beginPath();
    context.arc(...at(i), i === s.checkpoint ? 5 : 2.5, 0, 2 * Math.PI);
    context.fill();
  }
}

// What this browser lacks that the page needs
function lacking() {
  const context = typeof Float32Array === "function" && document.createElement("canvas").getContext("2d");
  return context && typeof requestAnimationFrame === "function" ? null : "typed arrays or canvas";
}

function start() {
  const missing = lacking();
  if (missing) throw new Error(`it lacks ${missing}`);
  const explorer = new Explorer(JSON.parse(byId("data").textContent));
  for (const show of [showText, showSaid, showFlow, showPieces, showWords, showGuesses, showAttention]) show(explorer);
  for (const show of [showWalk, showSwitches, showGradient, showHidden, showAnswer]) show(explorer);
  showTraining(explorer);
  showExamples(explorer);
  showWhereOneIs();
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const width = () => document.documentElement.clientWidth;
  dark.addEventListener("change", () => explorer.change({ dark: dark.matches }));
  addEventListener("resize", () => explorer.change({ width: width() }));
  explorer.change({ dark: dark.matches, width: width() });
  window.explorer = explorer;
}

start();
