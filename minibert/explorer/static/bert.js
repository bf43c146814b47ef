"use strict";
// BERT's forward pass (Devlin et al. 2019, section 3), as minibert/core/bert.py has it, for one sequence.
//
// Letters: n pieces, H hidden size, A heads, D = H/A, V vocabulary, L layers. Matrices are row after row in a
// Float32Array, and weights (outputs, inputs): every inner loop runs along memory. Sums are in float64.

const LAYER = "bert.encoder.layer.";
const EMBEDDINGS = "bert.embeddings.";
const HEAD = "cls.predictions.";

class Bert {
  // checkpoint: one of the page's
  constructor(checkpoint) {
    this.config = checkpoint.config;
    this.task = checkpoint.task;
    this.tensors = new Map();
    for (const [name, tensor] of Object.entries(checkpoint.tensors)) this.tensors.set(name, decodeTensor(tensor));
    this.gelu = this.config.gelu === "erf" ? geluErf : geluTanh;
    this.lengths = null; // of the word embeddings, once they are asked for
    this.lenses = new WeakMap(); // what `lens` returned, by the hidden states and then by the row
  }

  // ids types (n) -> parts [3] and sum (n,H), hidden [L+1] of (n,H), layers [L] of what `attend` and `feedForward`
  // return; all that the backward pass and the views need is kept
  forward(ids, types, off = {}) {
    const { layers: skipped = new Set(), heads = new Set(), words: removed = new Set() } = off;
    const parts = this.embed(ids, types);
    const sum = parts.reduce(add);
    const hidden = [this.norm(sum, `${EMBEDDINGS}LayerNorm`)];
    const layers = [];
    for (let l = 0; l < this.config.num_hidden_layers; l++) {
      const kept = (h) => !heads.has(`${l}.${h}`);
      const attention = this.attend(hidden[l], l, kept, removed);
      const { inner, active, fed } = skipped.has(l) ? {} : this.feedForward(attention.output, l);
      layers.push({ ...attention, inner, active, fed });
      hidden.push(fed ? this.norm(fed, `${LAYER}${l}.output.LayerNorm`) : hidden[l].slice());
    }
    return { n: ids.length, parts, sum, hidden, layers, heads };
  }

  // ids types (n) -> [3] of (n,H): word, position, segment, whose sum a LayerNorm follows
  embed(ids, types) {
    const last = this.config.type_vocab_size - 1; // a model may know no pairs
    return [
      this.rows("word", ids),
      this.rows("position", ids.map((_, i) => i)),
      this.rows("token_type", types.map((type) => Math.min(type, last))),
    ];
  }

  // of a table of embeddings these rows (n) -> (n,H)
  rows(table, places) {
    const weight = this.tensors.get(`${EMBEDDINGS}${table}_embeddings.weight`);
    const x = new Float32Array(places.length * this.config.hidden_size);
    places.forEach((place, i) => this.row(x, i).set(this.row(weight, place)));
    return x;
  }

  // x (n,H) -> attended (n,H): x + W context + b; output (n,H): LayerNorm(attended); q k v context (n,H); scores
  // probabilities (A,n,n)
  attend(x, l, kept, removed) {
    const name = `${LAYER}${l}.attention.`;
    const [q, k, v] = ["query", "key", "value"].map((part) => this.linear(x, `${name}self.${part}`));
    const scores = this.scores(q, k, removed);
    const probabilities = softmaxRows(scores, x.length / this.config.hidden_size);
    const context = this.mix(probabilities, v, kept);
    const attended = add(x, this.linear(context, `${name}output.dense`));
    const output = this.norm(attended, `${name}output.LayerNorm`);
    return { q, k, v, scores, probabilities, context, attended, output };
  }

  // q k (n,H) -> (A,n,n): q·k / sqrt(D); -Infinity for a removed key, and for a later one in a causal model
  scores(q, k, removed) {
    const { hidden_size: H, num_attention_heads: A, causal } = this.config;
    const n = q.length / H;
    const D = H / A;
    const scores = new Float32Array(A * n * n).fill(-Infinity);
    const isKept = Array.from({ length: n }, (_, key) => !removed.has(key));
    for (let h = 0; h < A; h++) {
      for (let i = 0; i < n; i++) {
        for (let j = 0; j < (causal ? i + 1 : n); j++) {
          let sum = 0;
          for (let c = h * D; c < (h + 1) * D; c++) sum += q[i * H + c] * k[j * H + c];
          if (isKept[j]) scores[(h * n + i) * n + j] = sum / Math.sqrt(D);
        }
      }
    }
    return scores;
  }

  // probabilities (A,n,n)  v (n,H) -> (n,H): of each head its mixture of values; zeros of one switched off
  mix(probabilities, v, kept) {
    const { hidden_size: H, num_attention_heads: A } = this.config;
    const n = v.length / H;
    const D = H / A;
    const context = new Float32Array(n * H);
    for (let h = 0; h < A; h++) {
      if (!kept(h)) continue;
      for (let i = 0; i < n; i++) {
        for (let j = 0; j < n; j++) {
          const p = probabilities[(h * n + i) * n + j];
          for (let c = h * D; c < (h + 1) * D; c++) context[i * H + c] += p * v[j * H + c];
        }
      }
    }
    return context;
  }

  // context (H), a row of a layer's -> [A] of (H): what each head adds; with the bias their sum is W context + b
  headOutputs(context, l) {
    const { hidden_size: H, num_attention_heads: A } = this.config;
    const weight = this.tensors.get(`${LAYER}${l}.attention.output.dense.weight`);
    return Array.from({ length: A }, (_, head) => {
      const alone = context.map((y, c) => (Math.floor((c * A) / H) === head ? y : 0));
      return linear(alone, weight, new Float32Array(H));
    });
  }

  // x (n,H) -> inner (n,I): W1 x + b; active (n,I): gelu(inner); fed (n,H): x + W2 active + b, which a LayerNorm follows
  feedForward(x, l) {
    const inner = this.linear(x, `${LAYER}${l}.intermediate.dense`);
    const active = inner.map(this.gelu);
    return { inner, active, fed: add(x, this.linear(active, `${LAYER}${l}.output.dense`)) };
  }

  // active (I), a row of a layer's -> (H): what one of the inner units adds
  unitOutput(active, l, unit) {
    const weight = this.tensors.get(`${LAYER}${l}.output.dense.weight`);
    const I = active.length;
    return Float32Array.from({ length: this.config.hidden_size }, (_, c) => active[unit] * weight[c * I + unit]);
  }

  // states of (n,H), of any layers -> of each (V), the masked-LM logits of one row, in one product; null without the head
  lens(states, row) {
    if (!this.tensors.has(`${HEAD}bias`)) return null;
    const known = (hidden) => this.lenses.get(hidden) || this.lenses.set(hidden, new Map()).get(hidden);
    const open = states.filter((hidden) => !known(hidden).has(row));
    if (open.length) {
      const logits = this.guesses(open.map((hidden) => this.row(hidden, row)));
      open.forEach((hidden, i) => known(hidden).set(row, logits[i]));
    }
    return states.map((hidden) => known(hidden).get(row));
  }

  // vectors of (H) -> of each (V), the logits of the masked-LM head
  guesses(vectors) {
    const H = this.config.hidden_size;
    const rows = new Float32Array(vectors.length * H);
    vectors.forEach((vector, i) => rows.set(vector, i * H));
    const x = this.norm(this.linear(rows, `${HEAD}transform.dense`).map(this.gelu), `${HEAD}transform.LayerNorm`);
    const bias = this.tensors.get(`${HEAD}bias`);
    const logits = linear(x, this.tensors.get(`${EMBEDDINGS}word_embeddings.weight`), bias);
    return vectors.map((_, i) => logits.subarray(i * bias.length, (i + 1) * bias.length));
  }

  // hidden (n,H) -> (2) logits of IsNext and NotNext; null without the head
  next(hidden) {
    const [pooler, head] = ["bert.pooler.dense", "cls.seq_relationship"];
    const isTrained = [pooler, head].every((name) => this.tensors.has(`${name}.weight`));
    return isTrained ? this.linear(this.pooled(hidden, 0), head) : null;
  }

  // hidden (n,H) -> {kind, logits}: classes (K), a number (1), tags (n,K), starts and ends (n,2); or null
  answer(hidden) {
    if (!this.task) return null;
    const { kind } = this.task;
    if (kind === "span") return { kind, logits: this.linear(hidden, "qa_outputs") };
    if (kind === "tag") return { kind, logits: this.linear(hidden, "classifier") };
    const n = hidden.length / this.config.hidden_size;
    return { kind, logits: this.linear(this.pooled(hidden, this.pooledRow(n)), "classifier") };
  }

  // [CLS], or in a causal model the last of n pieces, which alone has seen all
  pooledRow(n) {
    return this.config.causal ? n - 1 : 0;
  }

  // vector (H) -> the pieces whose embeddings have the largest cosines with it
  nearest(vector, count) {
    const H = this.config.hidden_size;
    const words = this.tensors.get(`${EMBEDDINGS}word_embeddings.weight`);
    const length = (_, id) => norm(this.row(words, id));
    this.lengths = this.lengths || Float32Array.from({ length: words.length / H }, length);
    const own = norm(vector);
    const products = linear(vector, words, new Float32Array(this.lengths.length));
    const cosines = products.map((product, id) => product / (own * this.lengths[id] || 1));
    return largest(cosines, count).map((id) => ({ id, cosine: cosines[id] }));
  }

  // hidden (n,H) -> (H): tanh(W x + b) of one row
  pooled(hidden, row) {
    return this.linear(this.row(hidden, row), "bert.pooler.dense").map(Math.tanh);
  }

  row(x, i) {
    return x.subarray(i * this.config.hidden_size, (i + 1) * this.config.hidden_size);
  }

  linear(x, name) {
    return linear(x, this.tensors.get(`${name}.weight`), this.tensors.get(`${name}.bias`));
  }

  norm(x, name) {
    const [gamma, beta] = ["weight", "bias"].map((part) => this.tensors.get(`${name}.${part}`));
    return layerNorm(x, gamma, beta, this.config.layer_norm_eps);
  }
}

// x (n,I)  weight (O,I)  bias (O) -> (n,O): x weight^T + bias, two rows by four outputs at a time: what is read
// once is used several times. Where rows or outputs run out, the last one is computed again.
function linear(x, weight, bias) {
  const O = bias.length;
  const I = weight.length / O;
  const n = x.length / I;
  const y = new Float32Array(n * O);
  const rows = Array.from({ length: n }, (_, i) => x.subarray(i * I, (i + 1) * I));
  for (let o = 0; o < O; o += 4) {
    const [o1, o2, o3] = [o + 1, o + 2, o + 3].map((output) => Math.min(output, O - 1));
    const [u0, u1, u2, u3] = [o, o1, o2, o3].map((output) => weight.subarray(output * I, (output + 1) * I));
    for (let i = 0; i < n; i += 2) {
      const j = Math.min(i + 1, n - 1);
      const [p, q] = [rows[i], rows[j]];
      let a0 = bias[o], a1 = bias[o1], a2 = bias[o2], a3 = bias[o3]; // of row i
      let b0 = a0, b1 = a1, b2 = a2, b3 = a3; // of row j
      for (let c = 0; c < I; c++) {
        const a = p[c], b = q[c];
        const w0 = u0[c], w1 = u1[c], w2 = u2[c], w3 = u3[c];
        a0 += a * w0;
        a1 += a * w1;
        a2 += a * w2;
        a3 += a * w3;
        b0 += b * w0;
        b1 += b * w1;
        b2 += b * w2;
        b3 += b * w3;
      }
      y[i * O + o] = a0;
      y[i * O + o1] = a1;
      y[i * O + o2] = a2;
      y[i * O + o3] = a3;
      y[j * O + o] = b0;
      y[j * O + o1] = b1;
      y[j * O + o2] = b2;
      y[j * O + o3] = b3;
    }
  }
  return y;
}

// x y (...) -> (...)
function add(x, y) {
  return x.map((value, i) => value + y[i]);
}

function subtract(x, y) {
  return x.map((value, i) => value - y[i]);
}

// x (n,H)  gamma beta (H) -> (n,H): gamma (x - mean) / sqrt(variance + eps) + beta (Ba et al. 2016)
function layerNorm(x, gamma, beta, eps) {
  const H = gamma.length;
  const y = new Float32Array(x.length);
  for (let begin = 0; begin < x.length; begin += H) {
    const [mean, inverse] = moments(x, begin, H, eps);
    for (let c = 0; c < H; c++) y[begin + c] = (x[begin + c] - mean) * inverse * gamma[c] + beta[c];
  }
  return y;
}

// x (n,H) -> of the row from `begin` its mean and 1 / sqrt(variance + eps)
function moments(x, begin, H, eps) {
  let mean = 0;
  for (let c = 0; c < H; c++) mean += x[begin + c] / H;
  let variance = 0;
  for (let c = 0; c < H; c++) variance += (x[begin + c] - mean) ** 2 / H;
  return [mean, 1 / Math.sqrt(variance + eps)];
}

// logits (K) -> (K)
function softmax(logits) {
  return softmaxRows(logits, logits.length);
}

// scores (rows,n) -> (rows,n): exp(s) / sum of exp(s) over each row; zeros where all are -Infinity
function softmaxRows(scores, n) {
  const probabilities = new Float32Array(scores.length);
  for (let begin = 0; begin < scores.length; begin += n) {
    let most = -Infinity;
    for (let j = begin; j < begin + n; j++) most = Math.max(most, scores[j]);
    let sum = 0;
    for (let j = begin; most > -Infinity && j < begin + n; j++) sum += probabilities[j] = Math.exp(scores[j] - most);
    for (let j = begin; sum > 0 && j < begin + n; j++) probabilities[j] /= sum;
  }
  return probabilities;
}

// J. A. C. Weideman, "Computation of the complex error function", SIAM J. Numer. Anal. 31 (1994): for x >= 0
//   erfc(x) = exp(-x^2) (2 p(Z) / (l + x)^2 + 1 / (sqrt(pi) (l + x))),   Z = (l - x) / (l + x),
// the coefficients of p being a Fourier transform. 24 terms reach beyond float32.
const TERMS = 24;
const SCALE = Math.sqrt(TERMS / Math.SQRT2);
const COEFFICIENTS = Float64Array.from({ length: TERMS }, (_, power) => {
  let sum = 0;
  for (let k = 1 - 2 * TERMS; k < 2 * TERMS; k++) {
    const angle = (k * Math.PI) / (2 * TERMS);
    const t = SCALE * Math.tan(angle / 2);
    sum += Math.exp(-t * t) * (SCALE * SCALE + t * t) * Math.cos((power + 1) * angle);
  }
  return sum / (4 * TERMS);
});

function erfc(x) {
  if (x < 0) return 2 - erfc(-x);
  const inverse = 1 / (SCALE + x);
  const z = (SCALE - x) * inverse;
  let p = 0;
  for (let power = TERMS - 1; power >= 0; power--) p = p * z + COEFFICIENTS[power];
  return Math.exp(-x * x) * inverse * (2 * p * inverse + 1 / Math.sqrt(Math.PI));
}

// x Phi(x), Phi the normal distribution function (Hendrycks & Gimpel 2016)
function geluErf(x) {
  return 0.5 * x * erfc(-x * Math.SQRT1_2);
}

// The approximation of BERT's later releases.
function geluTanh(x) {
  return 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3)));
}

// x (n) -> its Euclidean length
function norm(x) {
  return Math.sqrt(x.reduce((sum, value) => sum + value * value, 0));
}

// values (K) -> the places of the `count` largest, descending; of equal ones the first
function largest(values, count) {
  const places = [];
  for (let i = 0; i < values.length; i++) {
    if (places.length === count && !(values[i] > values[places[count - 1]])) continue;
    let at = Math.min(places.length, count - 1);
    for (; at > 0 && values[i] > values[places[at - 1]]; at--) places[at] = places[at - 1];
    places[at] = i;
  }
  return places;
}
