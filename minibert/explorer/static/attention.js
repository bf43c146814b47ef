"use strict";

// Attention: all heads at once, one head as a matrix and as lines, one query with all that its probabilities come from.

function showAttention(explorer) {
  showChosenHead(explorer);
  showHeads(explorer);
  showMatrix(explorer);
  showLines(explorer);
  showProduct(explorer);
  showOrigin(explorer);
}

// The place of a query's first key in arrays of (A, n, n)
const rowOf = (s, query) => (s.head * s.n + query) * s.n;

function showChosenHead(explorer) {
  chooser(explorer, byId("layer"), "layer", layersOf);
  chooser(explorer, byId("head"), "head", headsOf);
  explorer.view(
    (s) => [s.layer, s.head],
    (s) => {
      const name = `Layer ${s.layer + 1}, head ${s.head + 1}`;
      setText(byId("matrix-caption"), `${name}: a row for each query, a column for each key. Arrow keys move.`);
      label(byId("matrix"), `Attention of ${name.toLowerCase()}: queries in rows, keys in columns; the arrow keys move`);
    },
  );
}

// Side of one picture in the map of all heads, with its margin
function thumbnail(box, config) {
  return Math.min(96, Math.floor(box.clientWidth / config.num_attention_heads));
}

function showHeads(explorer) {
  const box = byId("heads");
  const [canvas, frame] = box.children;
  const choose = (layer, head) => {
    const { config } = explorer.scene;
    explorer.change({ layer: clamp(layer, config.num_hidden_layers), head: clamp(head, config.num_attention_heads) });
  };
  box.addEventListener("click", (event) => {
    const [x, y] = pointed(box, event);
    const side = thumbnail(box, explorer.scene.config);
    choose(Math.floor(y / side), Math.floor(x / side));
  });
  arrows(box, (dx, dy) => choose(explorer.state.layer + dy, explorer.state.head + dx));
  explorer.view(
    (s) => [s.run, s.dark, s.width],
    (s) => drawHeads(canvas, thumbnail(box, s.config), s),
  );
  explorer.view(
    (s) => [s.layer, s.head, s.config, s.width],
    (s) => {
      const side = thumbnail(box, s.config);
      lay(frame, s.head * side, s.layer * side, side, side);
      label(box, `Map of all heads; chosen: layer ${s.layer + 1}, head ${s.head + 1}`);
    },
  );
}

function drawHeads(canvas, side, s) {
  const { num_hidden_layers: L, num_attention_heads: A } = s.config;
  const context = fit(canvas, A * side, L * side);
  const { amount } = paletteOf(s.dark);
  for (let l = 0; l < L; l++) {
    for (let h = 0; h < A; h++) {
      const image = raster(s.run.layers[l].probabilities, h * s.n * s.n, s.n, s.n, amount, root);
      paint(context, image, h * side + 2, l * side + 2, side - 4, side - 4);
    }
  }
}

// Where the cells of the matrix lie: names are written beside them as long as they are as high as a line
function gridOf(box, n) {
  const side = Math.min(box.clientWidth, 540);
  const gutter = (side - 84) / n >= 8 ? 84 : 0;
  return { side, gutter, cell: (side - gutter) / n };
}

function showMatrix(explorer) {
  const box = byId("matrix");
  const [canvas, row, column, frame] = box.children;
  const look = (query, key) => {
    const { n } = explorer.scene;
    explorer.change({ query: clamp(query, n), key: clamp(key, n) });
  };
  const follow = (event) => {
    const [x, y] = pointed(box, event);
    const { gutter, cell } = gridOf(box, explorer.scene.n);
    look(Math.floor((y - gutter) / cell), Math.floor((x - gutter) / cell));
  };
  box.addEventListener("pointermove", follow);
  box.addEventListener("pointerdown", follow);
  arrows(box, (dx, dy) => look(explorer.state.query + dy, explorer.state.key + dx));
  explorer.view(
    (s) => [s.run, s.layer, s.head, s.pieces, s.dark, s.width],
    (s) => drawMatrix(canvas, gridOf(box, s.n), s),
  );
  explorer.view(
    (s) => [s.run, s.layer, s.head, s.query, s.key, s.pieces, s.width],
    (s) => {
      const { side, gutter, cell } = gridOf(box, s.n);
      lay(row, 0, gutter + s.query * cell, side, cell);
      lay(column, gutter + s.key * cell, 0, cell, side);
      lay(frame, gutter + s.key * cell, gutter + s.query * cell, cell, cell);
      const { scores, probabilities } = s.run.layers[s.layer];
      const place = rowOf(s, s.query) + s.key;
      setText(byId("at-query"), placed(s.pieces, s.query));
      setText(byId("at-key"), placed(s.pieces, s.key));
      setText(byId("at-score"), decimal(scores[place]));
      setText(byId("at-probability"), percent(probabilities[place], 2));
    },
  );
}

function drawMatrix(canvas, { side, gutter, cell }, s) {
  const context = fit(canvas, side, side);
  const { amount, ink } = paletteOf(s.dark);
  const image = raster(s.run.layers[s.layer].probabilities, rowOf(s, 0), s.n, s.n, amount, root);
  paint(context, image, gutter, gutter, side - gutter, side - gutter);
  if (!gutter) return;
  context.fillStyle = ink;
  context.font = `${Math.min(13, Math.floor(cell))}px system-ui, sans-serif`;
  context.textBaseline = "middle";
  s.pieces.forEach((piece, i) => {
    const middle = gutter + (i + 0.5) * cell;
    context.textAlign = "right";
    context.fillText(short(piece, 14), gutter - 6, middle, gutter - 8);
    context.save();
    context.translate(middle, gutter - 6);
    context.rotate(-Math.PI / 2);
    context.textAlign = "left";
    context.fillText(short(piece, 14), 0, 0, gutter - 8);
    context.restore();
  });
}

const LINE = 24; // height of a piece in the columns beside the lines, as explorer.css has it
const FAINTEST = 0.05; // probability

function showLines(explorer) {
  const [all, ofQuery] = byId("lines").querySelectorAll("canvas");
  for (const [id, name] of [["queries", "query"], ["keys", "key"]]) {
    const list = byId(id);
    list.addEventListener("pointermove", (event) => {
      const item = event.target.closest("li");
      if (item) explorer.change({ [name]: [...list.children].indexOf(item) });
    });
    explorer.view(
      (s) => [s.pieces],
      (s) => {
        const items = adjust(list, s.n, () => element("li", {}, element("bdi")));
        s.pieces.forEach((piece, i) => setText(items[i].firstChild, `${i} ${short(piece, 12)}`));
      },
    );
    explorer.view(
      (s) => [s[name], s.pieces],
      (s) => [...list.children].forEach((item, i) => item.classList.toggle("chosen", i === s[name])),
    );
  }
  explorer.view(
    (s) => [s.run, s.layer, s.head, s.dark, s.width],
    (s) => {
      const context = linesOn(all, s);
      context.globalAlpha = 0.35;
      for (let query = 0; query < s.n; query++) drawLines(context, s, query, FAINTEST);
    },
  );
  explorer.view(
    (s) => [s.run, s.layer, s.head, s.query, s.key, s.dark, s.width],
    (s) => drawLines(linesOn(ofQuery, s), s, s.query, 0.002, s.key),
  );
  explorer.view(
    (s) => [s.query],
    (s) => reveal(byId("lines").parentElement, s.query * LINE, LINE),
  );
}

function linesOn(canvas, s) {
  const context = fit(canvas, canvas.parentElement.clientWidth, s.n * LINE);
  context.lineCap = "round";
  return context;
}

// From a query to its keys, as wide as the probability; the line to `chosen` in the colour of what is pointed at
function drawLines(context, s, query, least, chosen = null) {
  const { probabilities } = s.run.layers[s.layer];
  const width = context.canvas.parentElement.clientWidth;
  const { amount, sign } = paletteOf(s.dark);
  for (let key = 0; key < s.n; key++) {
    const p = probabilities[rowOf(s, query) + key];
    if (p < least && key !== chosen) continue;
    context.lineWidth = key === chosen ? Math.max(1.5, 8 * p) : 8 * p;
    context.strokeStyle = (key === chosen ? cssColour(sign, 0.12) : cssColour(amount, 0.66)).colour;
    context.beginPath();
    context.moveTo(4, (query + 0.5) * LINE);
    context.bezierCurveTo(width / 2, (query + 0.5) * LINE, width / 2, (key + 0.5) * LINE, width - 4, (key + 0.5) * LINE);
    context.stroke();
  }
}

// x (n,H) -> (D), what the chosen head has of a row
function partOf(s, x, row) {
  const D = s.config.hidden_size / s.config.num_attention_heads;
  const first = row * s.config.hidden_size + s.head * D;
  return x.subarray(first, first + D);
}

// (D): the chosen query times a key, number by number
function productOf(s, key) {
  const { q, k } = s.run.layers[s.layer];
  const other = partOf(s, k, key);
  return partOf(s, q, s.query).map((x, d) => x * other[d]);
}

// A query, a key, and their product number by number, whose sum gives the score
function showProduct(explorer) {
  const strips = byId("product").querySelectorAll("canvas");
  explorer.view(
    (s) => [s.run, s.layer, s.head, s.query, s.key, s.dark],
    (s) => {
      const { q, k, scores } = s.run.layers[s.layer];
      const product = productOf(s, s.key);
      const { sign } = paletteOf(s.dark);
      [partOf(s, q, s.query), partOf(s, k, s.key), product].forEach((values, i) => {
        drawStrip(strips[i], values, sizeOf(values), sign);
      });
      const D = product.length;
      const sum = decimal(product.reduce((a, b) => a + b, 0));
      const score = decimal(scores[rowOf(s, s.query) + s.key]);
      const names = `${placed(s.pieces, s.query)} and ${placed(s.pieces, s.key)}`;
      setText(byId("product-sum"), `${names}: the ${D} products sum to ${sum}; divided by √${D}, the score: ${score}.`);
    },
  );
}

const SEEN = 15; // rows of the table that are in sight at most, as explorer.css has them

function showOrigin(explorer) {
  const body = byId("origin-rows");
  const box = body.closest(".scroll");
  body.addEventListener("pointermove", (event) => {
    const row = event.target.closest("tr");
    if (row) explorer.change({ key: row.sectionRowIndex });
  });
  let written = 0; // where the box was scrolled to when its rows were
  box.addEventListener("scroll", () => {
    if (box.scrollTop !== written) explorer.change({ scrolled: {} });
  });
  explorer.view(
    (s) => [s.key, s.pieces],
    (s) => {
      const rows = adjust(body, s.n, newOrigin);
      [...rows].forEach((row, i) => row.classList.toggle("chosen", i === s.key));
      reveal(box, rows[s.key].offsetTop, rows[s.key].offsetHeight);
    },
  );
  const rest = rested(() => drawOrigin(body.rows, explorer.scene, 0, explorer.scene.n));
  explorer.view(
    (s) => [s.run, s.layer, s.head, s.query, s.pieces, s.dark, s.scrolled],
    (s) => {
      written = box.scrollTop;
      const first = Math.floor(Math.max(0, written) / body.rows[0].getBoundingClientRect().height);
      drawOrigin(body.rows, s, first, Math.min(first + SEEN, s.n));
      if (s.n > SEEN) rest();
    },
  );
}

function newOrigin() {
  const cells = ["number", "number", "number share"].map((className) => element("td", { className }));
  const name = element("th", { scope: "row" }, element("bdi"));
  return element("tr", {}, name, ...cells, element("td", {}, element("canvas", { className: "strip" })));
}

// Writes the rows from `first` to before `end`, and the totals below.
function drawOrigin(rows, s, first, end) {
  const { config, n } = s;
  const D = config.hidden_size / config.num_attention_heads;
  const { scores, probabilities } = s.run.layers[s.layer];
  const start = rowOf(s, s.query);
  const ofQuery = scores.subarray(start, start + n);
  const highest = ofQuery.reduce((a, b) => Math.max(a, b), -Infinity);
  const powers = ofQuery.map((score) => Math.exp(score - highest) || 0); // of a head without keys, all is removed
  const { parts, mixture, most } = mixtureOf(s);
  const { sign } = paletteOf(s.dark);
  for (let key = first; key < end; key++) {
    const [name, dot, power, share, strip] = rows[key].cells;
    const p = probabilities[start + key];
    setText(name.firstChild, placed(s.pieces, key));
    setText(dot, decimal(ofQuery[key]));
    setText(power, decimal(powers[key]));
    setText(share, percent(p, 2));
    share.style.setProperty("--share", percent(p, 2));
    drawStrip(strip.firstChild, parts[key], most, sign);
  }
  setText(byId("exp-sum"), `sum ${decimal(powers.reduce((a, b) => a + b, 0))}`);
  setText(byId("dimensions"), String(D));
  setText(byId("strongest"), decimal(most));
  drawStrip(byId("mixture").firstChild, mixture, most, sign);
}

// Of the chosen query and head: parts [n] of (D) = p v, their sum mixture (D), and the largest size of all
function mixtureOf(s) {
  const { probabilities, v } = s.run.layers[s.layer];
  const parts = s.pieces.map((_, key) => {
    const p = probabilities[rowOf(s, s.query) + key];
    return partOf(s, v, key).map((x) => p * x);
  });
  const mixture = parts.reduce(add);
  return { parts, mixture, most: Math.max(...parts.map(sizeOf), sizeOf(mixture)) };
}
