"use strict";
// The backward pass, by hand: the gradient of one number that the model says with respect to the sum of embeddings.
// bert.js from its end to its beginning, with the formulas of minibert/ops. The weights need no gradient here.
//
// Letters as in bert.js. Where y is a function of x, dy and dx are the derivatives of that number by y and by x.

class Backward {
  // run: what bert.forward returned
  constructor(bert, run) {
    this.bert = bert;
    this.run = run;
    this.last = run.hidden[run.hidden.length - 1];
  }

  // dlogits of bert.lens at a row of the last layer, else of bert.answer -> (n,H), of the sum of embeddings
  embeddings(dlogits, row = null) {
    let dx = row === null ? this.answer(dlogits) : this.lens(dlogits, row);
    for (let l = this.run.layers.length - 1; l >= 0; l--) {
      if (this.run.layers[l].fed) dx = this.attend(this.feedForward(dx, l), l); // else the layer is off
    }
    return this.norm(dx, this.run.sum, `${EMBEDDINGS}LayerNorm`);
  }

  // dlogits (V) -> (n,H): logits = E LayerNorm(gelu(W x + b)) + b of one row, E the word embeddings
  lens(dlogits, row) {
    const { bert } = this;
    const name = `${HEAD}transform.`;
    const inner = bert.linear(bert.row(this.last, row), `${name}dense`);
    const dnormal = linearBackward(dlogits, bert.tensors.get(`${EMBEDDINGS}word_embeddings.weight`), dlogits.length);
    const dactive = this.norm(dnormal, inner.map(bert.gelu), `${name}LayerNorm`);
    return this.atRow(this.linear(this.gelu(dactive, inner), `${name}dense`), row);
  }

  // dlogits (n,K) or (K) -> (n,H): logits = W x + b of every row, or W tanh(P x + p) + b of the row that is pooled
  answer(dlogits) {
    const { kind } = this.bert.task;
    if (kind === "span" || kind === "tag") return this.linear(dlogits, kind === "span" ? "qa_outputs" : "classifier");
    const row = this.bert.pooledRow(this.run.n);
    const pooled = this.bert.pooled(this.last, row);
    const dinner = this.linear(dlogits, "classifier").map((d, c) => d * (1 - pooled[c] ** 2));
    return this.atRow(this.linear(dinner, "bert.pooler.dense"), row);
  }

  // dy (n,H) -> dx (n,H):  y = LayerNorm(x + W2 gelu(W1 x)), x going both ways
  feedForward(dy, l) {
    const { inner, fed } = this.run.layers[l];
    const dfed = this.norm(dy, fed, `${LAYER}${l}.output.LayerNorm`);
    const dinner = this.gelu(this.linear(dfed, `${LAYER}${l}.output.dense`), inner);
    return add(dfed, this.linear(dinner, `${LAYER}${l}.intermediate.dense`));
  }

  // dy (n,H) -> dx (n,H):  y = LayerNorm(x + W context), x going four ways
  attend(dy, l) {
    const name = `${LAYER}${l}.attention.`;
    const dattended = this.norm(dy, this.run.layers[l].attended, `${name}output.LayerNorm`);
    const [dq, dk, dv] = this.mix(this.linear(dattended, `${name}output.dense`), l);
    const parts = [[dq, "query"], [dk, "key"], [dv, "value"]];
    return parts.reduce((dx, [d, part]) => add(dx, this.linear(d, `${name}self.${part}`)), dattended);
  }

  // With s = q k^T / sqrt(D), p = softmax(s) and y = p v, of each head that is on:
  //   dv = p^T dy,  dp = dy v^T,  ds = p (dp - sum_j dp_j p_j),  dq = ds k / sqrt(D),  dk = ds^T q / sqrt(D)
  // Of a key that is removed, or later in a causal model, p is zero, hence all of these.
  // dy (n,H) -> dq dk dv (n,H)
  mix(dy, l) {
    const { hidden_size: H, num_attention_heads: A } = this.bert.config;
    const { q, k, v, probabilities } = this.run.layers[l];
    const n = dy.length / H;
    const D = H / A;
    const [dq, dk, dv] = [0, 1, 2].map(() => new Float64Array(n * H));
    const dp = new Float64Array(n);
    for (let h = 0; h < A; h++) {
      if (this.run.heads.has(`${l}.${h}`)) continue;
      for (let i = 0; i < n; i++) {
        const p = probabilities.subarray((h * n + i) * n, (h * n + i + 1) * n);
        let mean = 0;
        for (let j = 0; j < n; j++) {
          dp[j] = 0;
          for (let c = h * D; p[j] && c < (h + 1) * D; c++) dp[j] += dy[i * H + c] * v[j * H + c];
          mean += dp[j] * p[j];
        }
        for (let j = 0; j < n; j++) {
          const ds = (p[j] * (dp[j] - mean)) / Math.sqrt(D);
          for (let c = h * D; p[j] && c < (h + 1) * D; c++) {
            dq[i * H + c] += ds * k[j * H + c];
            dk[j * H + c] += ds * q[i * H + c];
            dv[j * H + c] += p[j] * dy[i * H + c];
          }
        }
      }
    }
    return [dq, dk, dv];
  }

  // dy (H) of one row -> (n,H), zero elsewhere
  atRow(dy, row) {
    const dx = new Float64Array(this.last.length);
    dx.set(dy, row * dy.length);
    return dx;
  }

  // dy x (...) -> dx (...):  y = gelu(x)
  gelu(dy, x) {
    const slope = this.bert.config.gelu === "erf" ? geluErfSlope : geluTanhSlope;
    return dy.map((d, i) => d * slope(x[i]));
  }

  linear(dy, name) {
    return linearBackward(dy, this.bert.tensors.get(`${name}.weight`), this.bert.tensors.get(`${name}.bias`).length);
  }

  norm(dy, x, name) {
    return layerNormBackward(dy, x, this.bert.tensors.get(`${name}.weight`), this.bert.config.layer_norm_eps);
  }
}

// dy (n,O)  weight (O,I) -> dx (n,I):  y = x weight^T + bias, hence dx = dy weight, two rows by four outputs at a time
function linearBackward(dy, weight, O) {
  const I = weight.length / O;
  const n = dy.length / O;
  const dx = new Float64Array(n * I);
  const d = (i, o) => (i < n && o < O ? dy[i * O + o] : 0);
  for (let i = 0; i < n; i += 2) {
    const a = dx.subarray(i * I, (i + 1) * I); // row i
    const b = i + 1 < n ? dx.subarray((i + 1) * I, (i + 2) * I) : a; // row i + 1, or nothing added to row i
    for (let o = 0; o < O; o += 4) {
      const a0 = d(i, o), a1 = d(i, o + 1), a2 = d(i, o + 2), a3 = d(i, o + 3);
      const b0 = d(i + 1, o), b1 = d(i + 1, o + 1), b2 = d(i + 1, o + 2), b3 = d(i + 1, o + 3);
      if (!(a0 || a1 || a2 || a3 || b0 || b1 || b2 || b3)) continue; // most rows of the last layer are not read
      const [w0, w1, w2, w3] = [o, o + 1, o + 2, o + 3].map((output) => Math.min(output, O - 1) * I);
      for (let c = 0; c < I; c++) {
        const x0 = weight[w0 + c], x1 = weight[w1 + c], x2 = weight[w2 + c], x3 = weight[w3 + c];
        a[c] += a0 * x0 + a1 * x1 + a2 * x2 + a3 * x3;
        b[c] += b0 * x0 + b1 * x1 + b2 * x2 + b3 * x3;
      }
    }
  }
  return dx;
}

// n = (x - mean) r with r = 1 / sqrt(variance + eps), and g = dy gamma the gradient of n. Mean and variance both depend
// on x: the first takes out the mean of g, the second the part of g along n:
//   dx = r (g - mean(g) - n mean(g n))
// dy x (n,H)  gamma (H) -> dx (n,H)
function layerNormBackward(dy, x, gamma, eps) {
  const H = gamma.length;
  const dx = new Float64Array(x.length);
  for (let begin = 0; begin < x.length; begin += H) {
    const [mean, inverse] = moments(x, begin, H, eps);
    let [level, along] = [0, 0]; // mean(g) and mean(g n)
    for (let c = 0; c < H; c++) {
      const g = dy[begin + c] * gamma[c];
      level += g / H;
      along += (g * (x[begin + c] - mean) * inverse) / H;
    }
    for (let c = 0; c < H; c++) {
      const normal = (x[begin + c] - mean) * inverse;
      dx[begin + c] = inverse * (dy[begin + c] * gamma[c] - level - normal * along);
    }
  }
  return dx;
}

// p (K), the softmax of logits -> (K): of log p[best], 1 - p there and -p elsewhere; 1 - p as the sum of the others,
// which is exact where the model is sure
function logSoftmaxBackward(p, best) {
  const dlogits = Float64Array.from(p, (value) => -value);
  dlogits[best] = 0;
  dlogits[best] = -dlogits.reduce((sum, value) => sum + value, 0);
  return dlogits;
}

// y = x c(x), c the distribution function, hence y' = c + x c'. By the error function c' = exp(-x^2/2) / sqrt(2 pi),
function geluErfSlope(x) {
  return 0.5 * erfc(-x * Math.SQRT1_2) + (x * Math.exp(-0.5 * x * x)) / Math.sqrt(2 * Math.PI);
}

// by tanh c' = 2 c (1 - c) u' with u = sqrt(2/pi) (x + 0.044715 x^3), as (1 - tanh^2) / 2 = 2 c (1 - c).
function geluTanhSlope(x) {
  const c = 0.5 + 0.5 * Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3));
  return c + x * 2 * c * (1 - c) * Math.sqrt(2 / Math.PI) * (1 + 3 * 0.044715 * x * x);
}
