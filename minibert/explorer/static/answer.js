"use strict";

// What a fine-tuned model answers; of a pre-trained one, whether text B follows text A.

const LEADS = {
  classify: "The model was fine-tuned to choose one of these classes, from the last vector of [CLS].",
  multilabel: "The model was fine-tuned to say of each of these labels whether it holds.",
  regress: "The model was fine-tuned to give a number, from the last vector of [CLS].",
  choice: "The model was fine-tuned to score a choice; the highest of several is its answer.",
  tag: "The model was fine-tuned to give each word one of these labels; beside it, how sure it is.",
  span: "Text A is the question. The model was fine-tuned to find in text B where the answer begins and ends.",
  next: "Pre-training also asked: does text B follow text A in its source, or was it taken from elsewhere?",
};
const SPAN = 30; // pieces of the longest answer
const HUES = [210, 32, 265, 180, 50, 320, 95, 0]; // of tags, by their kind

const sigmoid = (x) => 1 / (1 + Math.exp(-x));

// logits of the fine-tuned head -> {title, values, name(i)}, as `outcome` has it
function outcomeOfTask(task, { kind, logits }, s) {
  const name = (i) => short(String((task.labels || [])[i] ?? i));
  if (kind === "classify") return { title: "Answer", values: softmax(logits), name };
  if (kind === "multilabel") return { title: "Answer", values: logits.map(sigmoid), name };
  if (kind === "tag") {
    const K = task.labels.length;
    const ofPiece = logits.subarray(s.watched * K, s.watched * K + K);
    return { title: `Tag of ${placed(s.pieces, s.watched)}`, values: softmax(ofPiece), name };
  }
  if (kind === "span") {
    const begins = softmax(logits.filter((_, i) => i % 2 === 0));
    return { title: "Answer begins at", values: begins, name: (i) => placed(s.pieces, i) };
  }
  return { title: "Answer", values: logits, name: () => "value" };
}

function showAnswer(explorer) {
  explorer.view(
    (s) => [s.bert, s.run, s.task, s.encoding, s.dark],
    (s) => {
      const last = s.run.hidden[s.run.hidden.length - 1];
      const next = s.task ? null : s.bert.next(last);
      const without = !s.task && !next;
      byId("answer").hidden = byId("to-answer").hidden = without;
      if (without) return;
      const kind = s.task ? s.task.kind : "next";
      setText(byId("answer-lead"), LEADS[kind]);
      byId("answer-body").classList.toggle("tall", kind === "tag" || kind === "span");
      byId("answer-body").replaceChildren(...(s.task ? answerOf(s, s.bert.answer(last)) : nextOf(s, next)));
    },
  );
}

// -> elements
function answerOf(s, { kind, logits }) {
  if (kind === "tag") return tagged(s, logits);
  if (kind === "span") return spanned(s, logits);
  const { values, name } = outcomeOfTask(s.task, { kind, logits }, s);
  if (kind === "classify" || kind === "multilabel") return [bars([...values].map((value, i) => [name(i), value]))];
  return [element("p", { className: "value" }, decimal(values[0], 3))];
}

// logits [2]: 0 B follows, 1 it doesn't
function nextOf(s, logits) {
  if (!s.types.some(Boolean)) return [element("p", { className: "faint" }, "Write a text B to ask.")];
  const [follows, not] = softmax(logits);
  return [bars([["B follows A", follows], ["B is from elsewhere", not]])];
}

// pairs of a name and a probability -> a table
function bars(pairs) {
  const rows = pairs.map(([name, chance]) => {
    const cell = element("td", { className: "number share" }, percent(chance));
    cell.style.setProperty("--share", percent(chance, 2));
    return element("tr", {}, element("th", { scope: "row" }, element("bdi", {}, name)), cell);
  });
  return element("table", { className: "effect bars" }, element("tbody", {}, ...rows));
}

// The text of a side, with marked(begin, end) around some parts: [{begin, end, node(text)}], ascending, apart
function marked(text, parts) {
  const nodes = [];
  let at = 0;
  for (const { begin, end, node } of parts) {
    nodes.push(visibleLines(text.slice(at, begin)), node(visibleLines(text.slice(begin, end))));
    at = end;
  }
  return element("p", { className: "marked", dir: "auto" }, ...nodes, visibleLines(text.slice(at)));
}

// logits (n, 2) -> the likeliest span of text B: first and last position, its probability, and those of all begins and
// ends
function bestSpan(s, logits) {
  const begins = softmax(logits.filter((_, i) => i % 2 === 0));
  const ends = softmax(logits.filter((_, i) => i % 2 === 1));
  const open = [...s.encoding.spans.keys()].filter((i) => s.types[i] === 1 && s.encoding.spans[i]);
  let best = { first: -1, last: -1, chance: -1 };
  for (const first of open) {
    for (const last of open) {
      const chance = begins[first] * ends[last];
      if (last >= first && last - first < SPAN && chance > best.chance) best = { first, last, chance };
    }
  }
  return { ...best, begins, ends };
}

function spanned(s, logits) {
  const { first, last, chance } = bestSpan(s, logits);
  if (first < 0) return [element("p", { className: "faint" }, "Write the text that has the answer as text B.")];
  const [begin, end] = [s.encoding.spans[first][0], s.encoding.spans[last][1]];
  const node = (text) => element("mark", { title: percent(chance) }, text);
  const note = element("p", { className: "faint" }, `Probability ${percent(chance)}; the marked part is the answer.`);
  return [marked(s.b, [{ begin, end, node }]), note];
}

// logits (n, K): a word has the label of its first piece
function tagged(s, logits) {
  const { labels } = s.task;
  const kinds = [...new Set(labels.map(kindOf))].filter((kind) => kind !== "O");
  const parts = [[], []];
  for (const { pieces, begin, end, side } of s.encoding.words) {
    if (!pieces.length) continue;
    const chances = softmax(logits.subarray(pieces[0] * labels.length, (pieces[0] + 1) * labels.length));
    const [best] = largest(chances, 1);
    const kind = kindOf(labels[best]);
    if (kind === "O") continue;
    const small = element("small", {}, ` ${short(labels[best], 12)} ${percent(chances[best], 0)}`);
    const node = (text) => {
      const mark = element("mark", {}, element("bdi", {}, text), small);
      mark.style.setProperty("--hue", HUES[kinds.indexOf(kind) % HUES.length]);
      return mark;
    };
    parts[side].push({ begin, end, node });
  }
  return [marked(s.a, parts[0]), ...(s.b ? [marked(s.b, parts[1])] : [])];
}

// B-PER and I-PER are one kind
const kindOf = (label) => label.replace(/^[BI]-/, "");
