"use strict";

// The page shows a function of its state. Changes of the state are gathered until the next frame; then what follows
// from it is computed, each part only where its arguments changed, and each view whose inputs changed is drawn.

const LONGEST = 128; // pieces that the page computes with
const NOTHING_OFF = Object.freeze({ layers: new Set(), heads: new Set(), words: new Set() });

// f, remembering its last result for as long as its arguments stay the same
function memo(f) {
  let before = null;
  let result;
  return (...given) => {
    if (before === null || given.some((one, i) => one !== before[i])) {
      result = f(...given);
      before = given;
    }
    return result;
  };
}

const PAUSE = 400; // milliseconds without a change

// f, to be called once a pause has passed without another call
function rested(f) {
  let timer = null;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(f, PAUSE);
  };
}

// A copy of a set with `one` put in, or taken out where it was in
function toggled(set, one) {
  const copy = new Set(set);
  if (!copy.delete(one)) copy.add(one);
  return copy;
}

const isSame = (a, b) => a.length === b.length && a.every((one, i) => one === b[i]);

// Where positions of the ids `before` lie in the ids `after`: those in front of what differs, and those behind it
function carrier(before, after) {
  const shorter = Math.min(before.length, after.length);
  let front = 0;
  while (front < shorter && before[front] === after[front]) front++;
  let back = 0;
  while (back < shorter - front && before[before.length - 1 - back] === after[after.length - 1 - back]) back++;
  return (position) => {
    if (position < front) return position;
    return position >= before.length - back ? position + after.length - before.length : null;
  };
}

class Explorer {
  constructor(data) {
    this.data = data;
    this.counts = { forwards: 0, backwards: 0, redraws: 0 };
    this.views = [];
    this.frame = null;
    this.scene = null;
    this.models = new Map(); // by the checkpoint's number, as they are first shown
    this.tokenizer = new Tokenizer(data);
    this.maskId = data.vocabulary.indexOf("[MASK]");
    const [a, b] = data.text;
    this.state = {
      a,
      b: b || "",
      checkpoint: data.checkpoints.length - 1,
      hidden: new Set(), // positions shown to the model as [MASK]
      watched: null, // the position whose guess is shown
      layer: 0,
      head: 0,
      query: 0,
      key: 0,
      step: 0, // of the walk through a head
      off: NOTHING_OFF,
      picture: "values",
      vector: { layer: 0, row: 0 },
      word: 0, // whose gradient is told
      effects: null, // what each switch changes, where that was asked for
      scrolled: null, // another object whenever the table of one query was scrolled
      dark: false,
      width: 0,
    };
    const limit = Math.min(LONGEST, data.checkpoints[0].config.max_position_embeddings);
    this.encode = memo((a, b) => this.tokenizer.encode(a, b || null, limit));
    this.masked = memo((encoding, hidden) => encoding.ids.map((id, i) => (hidden.has(i) ? this.maskId : id)));
    this.named = memo((ids) => ids.map((id) => data.vocabulary[id]));
    this.whole = memo((bert, ids, types) => this.forward(bert, ids, types, NOTHING_OFF));
    this.switched = memo((bert, ids, types, off) => this.forward(bert, ids, types, off));
    this.settled = rested(() => document.body.classList.remove("busy"));
  }

  // Every forward pass of the page goes through here.
  forward(bert, ids, types, off) {
    this.counts.forwards++;
    return bert.forward(ids, types, off);
  }

  // And every backward pass through here.
  backward(bert, run, dlogits, row) {
    this.counts.backwards++;
    return new Backward(bert, run).embeddings(dlogits, row);
  }

  model(checkpoint) {
    if (!this.models.has(checkpoint)) this.models.set(checkpoint, new Bert(this.data.checkpoints[checkpoint]));
    return this.models.get(checkpoint);
  }

  // Draw with `draw(scene)` whenever one of `inputs(scene)` is another than when it was last drawn.
  view(inputs, draw) {
    this.views.push({ inputs, draw, drawn: null });
  }

  change(values) {
    if (this.scene !== null && Object.entries(values).some(([name, value]) => value !== this.state[name])) {
      document.body.classList.add("busy");
      this.settled();
    }
    Object.assign(this.state, values);
    if (this.frame === null) this.frame = requestAnimationFrame(() => this.refresh());
  }

  refresh() {
    this.frame = null;
    this.scene = this.compute();
    for (const view of this.views) {
      const inputs = view.inputs(this.scene);
      if (view.drawn !== null && isSame(inputs, view.drawn)) continue;
      view.drawn = inputs;
      view.draw(this.scene);
      this.counts.redraws++;
    }
  }

  // All that is drawn: the state, and what follows from it.
  compute() {
    const { state, scene } = this;
    const encoding = this.encode(state.a, state.b);
    if (scene === null) this.begin(encoding);
    else if (scene.encoding !== encoding) this.carry(scene.encoding, encoding);
    const kept = (name, now) => (scene !== null && isSame(scene[name], now) ? scene[name] : now);
    const ids = kept("ids", this.masked(encoding, state.hidden));
    const types = kept("types", encoding.types);
    const bert = this.model(state.checkpoint);
    const whole = this.whole(bert, ids, types);
    const isWhole = state.off === NOTHING_OFF;
    const run = isWhole ? whole : this.switched(bert, ids, types, state.off);
    const pieces = this.named(ids);
    const { config, task } = this.data.checkpoints[state.checkpoint];
    return { ...state, encoding, ids, types, bert, config, task, whole, isWhole, run, pieces, n: ids.length };
  }

  // Where one looks first: at the first [MASK], or at the first piece.
  begin(encoding) {
    const { num_hidden_layers: layer } = this.data.checkpoints[0].config;
    const watched = this.firstMask(encoding) ?? Math.min(1, encoding.ids.length - 1);
    const vector = { layer, row: watched };
    Object.assign(this.state, { watched, query: watched, key: watched, word: watched, vector });
  }

  // After typing, positions mean the same pieces as before, where these are still there.
  carry(before, encoding) {
    const { state } = this;
    const moved = carrier(before.ids, encoding.ids);
    const near = (position) => moved(position) ?? Math.min(position, encoding.ids.length - 1);
    const all = (positions) => new Set([...positions].map(moved).filter((position) => position !== null));
    if (state.hidden.size) state.hidden = all(state.hidden);
    if (state.off.words.size) state.off = simplest({ ...state.off, words: all(state.off.words) });
    state.query = near(state.query);
    state.key = near(state.key);
    state.word = near(state.word);
    state.vector = { ...state.vector, row: near(state.vector.row) };
    const watched = near(state.watched);
    state.watched = this.isMask(encoding, watched) ? watched : this.firstMask(encoding) ?? watched;
  }

  isMask(encoding, position) {
    return encoding.ids[position] === this.maskId || this.state.hidden.has(position);
  }

  firstMask(encoding) {
    return [...encoding.ids.keys()].find((position) => this.isMask(encoding, position));
  }

  // Hide a piece as [MASK], or bring it back; [CLS], [SEP] and a [MASK] that was typed stay as they are.
  hide(position) {
    const { encoding } = this.scene;
    const fixed = encoding.spans[position] === null || encoding.ids[position] === this.maskId || this.maskId < 0;
    this.change({ watched: position, ...(fixed ? {} : { hidden: toggled(this.state.hidden, position) }) });
  }

  // kind "layers", "heads", "words"; key a number, or "layer.head"
  toggle(kind, key) {
    const { off } = this.state;
    this.change({ off: simplest({ ...off, [kind]: toggled(off[kind], key) }) });
  }
}

// The switches, as the one object that stands for none where none is off
function simplest(off) {
  return off.layers.size + off.heads.size + off.words.size ? off : NOTHING_OFF;
}
