"use strict";

// Hidden states over the layers, as a picture of norms or values, and the pieces nearest to one vector.

const NEAREST = 8;
const ROW = 20; // height of a layer in the picture

function showHidden(explorer) {
  const select = byId("vector-piece");
  const turn = (values) => explorer.change({ vector: { ...explorer.state.vector, ...values } });
  select.addEventListener("change", () => turn({ row: select.selectedIndex }));
  for (const radio of document.querySelectorAll("input[name=picture]")) {
    radio.addEventListener("change", () => explorer.change({ picture: radio.value }));
  }
  explorer.view(
    (s) => [s.pieces, s.vector.row],
    (s) => choices(select, piecesOf(s), s.vector.row),
  );
  showStates(explorer, turn);
  explorer.view(
    (s) => [s.run, s.bert, s.vector, s.pieces],
    (s) => {
      const { layer, row } = s.vector;
      setText(byId("nearest-title"), `Nearest to ${placed(s.pieces, row)} ${afterLayer(layer)}`);
      const H = s.config.hidden_size;
      const found = s.bert.nearest(s.run.hidden[layer].subarray(row * H, row * H + H), NEAREST);
      const rows = adjust(byId("nearest-rows"), NEAREST, () => {
        return element("tr", {}, element("th", { scope: "row" }, element("bdi")), element("td", { className: "number share" }));
      });
      [...rows].forEach((one, i) => drawNeighbour(one.cells, found[i], explorer.data.vocabulary));
    },
  );
}

const afterLayer = (layer) => (layer ? `after layer ${layer}` : "after the embeddings");

function drawNeighbour([name, value], found, vocabulary) {
  setText(name.firstChild, found ? short(vocabulary[found.id]) : "");
  setText(value, found ? decimal(found.cosine, 3) : "");
  value.style.setProperty("--share", found ? percent(Math.max(0, found.cosine)) : "0%");
}

// The numbers of the picture: rows (L+1), from the embeddings down to the last layer, of so many columns
const statesOf = memo((run, config, picture, row) => {
  const H = config.hidden_size;
  const rows = run.hidden.map((hidden) => {
    return picture === "norms" ? normsOf(hidden, H) : hidden.subarray(row * H, row * H + H);
  });
  const columns = rows[0].length;
  const values = new Float32Array(rows.length * columns);
  rows.forEach((one, l) => values.set(one, l * columns));
  const [low, high] = [values.reduce((a, b) => Math.min(a, b)), values.reduce((a, b) => Math.max(a, b))];
  return { values, columns, low, high, most: Math.max(-low, high) };
});

// hidden (n, H) -> (n)
function normsOf(hidden, H) {
  return Float32Array.from({ length: hidden.length / H }, (_, i) => {
    return Math.sqrt(hidden.subarray(i * H, i * H + H).reduce((sum, x) => sum + x * x, 0));
  });
}

const statesShown = (s) => statesOf(s.run, s.config, s.picture, s.picture === "norms" ? null : s.vector.row);

function showStates(explorer, turn) {
  const box = byId("states");
  const [canvas, frame] = box.children;
  const placeOf = (event) => {
    const [x, y] = pointed(box, event);
    const { columns } = statesShown(explorer.scene);
    const layer = clamp(Math.floor(y / ROW), explorer.scene.run.hidden.length);
    return { layer, column: clamp(Math.floor((x / box.clientWidth) * columns), columns) };
  };
  box.addEventListener("pointermove", (event) => tell(explorer.scene, placeOf(event)));
  box.addEventListener("click", (event) => {
    const { layer, column } = placeOf(event);
    turn(explorer.state.picture === "norms" ? { layer, row: column } : { layer });
  });
  arrows(box, (dx, dy) => {
    const { layer, row } = explorer.state.vector;
    turn({ layer: clamp(layer + dy, explorer.scene.run.hidden.length), row: clamp(row + dx, explorer.scene.n) });
  });
  const picture = (s) => [s.run, s.picture, s.picture === "norms" || s.vector.row, s.dark, s.width];
  explorer.view(picture, (s) => drawStates(canvas, box.clientWidth, s));
  explorer.view(
    (s) => [...picture(s), s.vector, s.pieces],
    (s) => {
      const cell = box.clientWidth / s.n;
      const { layer, row } = s.vector;
      if (s.picture === "norms") lay(frame, row * cell, layer * ROW, cell, ROW);
      else lay(frame, 0, layer * ROW, box.clientWidth, ROW);
      tell(s, { layer, column: s.picture === "norms" ? row : null });
      const what = s.picture === "norms" ? "norms of all pieces" : `values of ${placed(s.pieces, row)}`;
      label(box, `Hidden states, ${what}; a row for each layer. Chosen: ${afterLayer(layer)}`);
      setText(byId("states-caption"), `From the embeddings, above, to the last layer, below: the ${what}.`);
    },
  );
}

function drawStates(canvas, width, s) {
  const { values, columns, low, high, most } = statesShown(s);
  const rows = values.length / columns;
  const { amount, sign } = paletteOf(s.dark);
  const within = (x) => (x - low) / (high - low || 1);
  const [table, scale] = s.picture === "norms" ? [amount, within] : [sign, signed(most)];
  const image = raster(values, 0, rows, columns, table, scale);
  paint(fit(canvas, width, rows * ROW), image, 0, 0, width, rows * ROW);
}

// What lies at a place of the picture, in words
function tell(s, { layer, column }) {
  const { values, columns, low, high } = statesShown(s);
  const scale = `all are from ${decimal(low, 2)} to ${decimal(high, 2)}`;
  if (column === null) return setText(byId("states-at"), `${afterLayer(layer)}; ${columns} values, ${scale}`);
  const name = s.picture === "norms" ? `norm of ${placed(s.pieces, column)}` : `dimension ${column}`;
  const value = decimal(values[layer * columns + column]);
  return setText(byId("states-at"), `${afterLayer(layer)}, ${name}: ${value}; ${scale}`);
}
