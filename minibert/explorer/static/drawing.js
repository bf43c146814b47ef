"use strict";

// What all views draw with. Text of others enters the page as textContent alone.

const byId = (id) => document.getElementById(id);

// element("td", { className: "number" }, "12")
function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

// `count` children, made by make(i) where they are missing; those there stay, and with them what has the focus
function adjust(parent, count, make) {
  while (parent.children.length > count) parent.lastElementChild.remove();
  while (parent.children.length < count) parent.append(make(parent.children.length));
  return parent.children;
}

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

const label = (node, text) => node.setAttribute("aria-label", text);

// Characters that show nothing, or turn the direction of others, by their numbers; those that join emoji stay.
function visible(text) {
  return text.replace(/(?![\u200c\u200d])[\p{Cc}\p{Cf}\p{Cs}\p{Co}]/gu, (one) => {
    return `⟨U+${one.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`;
  });
}

// The same of a text of several lines: its line ends and tabs stay.
const visibleLines = (text) => text.split(/([\n\t])/).map((part, i) => (i % 2 ? part : visible(part))).join("");

function short(text, longest = 24) {
  const characters = [...visible(text.slice(0, 4 * longest))];
  const isShort = text.length <= 4 * longest && characters.length <= longest;
  return isShort ? characters.join("") : `${characters.slice(0, longest - 1).join("")}…`;
}

// "3 heaven": positions tell equal pieces apart
const placed = (pieces, position) => `${position} ${short(pieces[position])}`;

const minus = (digits) => digits.replace("-", "−");
const decimal = (x, digits = 4) => (Number.isFinite(x) ? minus(x.toFixed(digits)) : "removed");
const percent = (p, digits = 1) => `${(100 * p).toFixed(digits)}%`;
// A difference of probabilities, in points of a hundred
const points = (d, digits = 1) => (Math.abs(100 * d) < 0.5 * 10 ** -digits ? "0" : (d > 0 ? "+" : "") + decimal(100 * d, digits));

// Colours: one hue from light to dark for amounts, orange to blue for signs; told apart by whoever sees few colours.
const STOPS = {
  light: {
    amount: [[244, 247, 250], [120, 175, 215], [22, 95, 160], [6, 38, 84]],
    sign: [[166, 74, 0], [240, 160, 80], [246, 246, 246], [104, 170, 220], [8, 80, 150]],
  },
  dark: {
    amount: [[28, 33, 40], [30, 84, 136], [80, 160, 220], [214, 236, 255]],
    sign: [[255, 190, 120], [200, 110, 30], [32, 37, 44], [40, 110, 180], [140, 205, 255]],
  },
};

// stops of [r, g, b] -> 256 packed pixels
function ramp(stops) {
  const bytes = new Uint8ClampedArray(1024);
  for (let i = 0; i < 256; i++) {
    const place = (i / 255) * (stops.length - 1);
    const from = Math.min(Math.floor(place), stops.length - 2);
    for (let c = 0; c < 3; c++) bytes[4 * i + c] = stops[from][c] + (place - from) * (stops[from + 1][c] - stops[from][c]);
    bytes[4 * i + 3] = 255;
  }
  return new Uint32Array(bytes.buffer);
}

const paletteOf = memo((dark) => {
  const stops = dark ? STOPS.dark : STOPS.light;
  const ink = dark ? "#e4e8ec" : "#20262c";
  return { amount: ramp(stops.amount), sign: ramp(stops.sign), ink };
});

// A colour of a packed scale, at a place in [0, 1], as CSS, and that of text which can be read on it: black and white
// have the same contrast, 4.6, to what has a luminance of 0.18.
function cssColour(table, place) {
  const [r, g, b] = new Uint8Array(table.buffer, 4 * Math.round(255 * place));
  const luminance = 0.2126 * (r / 255) ** 2.2 + 0.7152 * (g / 255) ** 2.2 + 0.0722 * (b / 255) ** 2.2;
  return { colour: `rgb(${r} ${g} ${b})`, text: luminance > 0.18 ? "#000" : "#fff" };
}

const scratch = document.createElement("canvas");

// values (rows*columns) from `offset`, scaled to [0, 1] -> the scratch canvas with one pixel for each
function raster(values, offset, rows, columns, table, scale) {
  scratch.width = columns;
  scratch.height = rows;
  const context = scratch.getContext("2d");
  const image = context.createImageData(columns, rows);
  const pixels = new Uint32Array(image.data.buffer);
  for (let i = 0; i < pixels.length; i++) {
    pixels[i] = table[Math.max(0, Math.min(255, Math.round(255 * scale(values[offset + i]))))];
  }
  context.putImageData(image, 0, 0);
  return scratch;
}

const root = Math.sqrt;
const signed = (most) => (x) => 0.5 + (0.5 * x) / (most || 1);
// Small ones are seen beside large ones, too.
const signedRoot = (most) => (x) => 0.5 + 0.5 * Math.sign(x) * root(Math.abs(x) / (most || 1));

// values (n) -> the largest size of any
const sizeOf = (values) => values.reduce((most, x) => Math.max(most, Math.abs(x)), 0);

// One pixel for each number, in rows; the style sheet makes the canvas as large as its place.
function drawPixels(canvas, values, rows, table, scale) {
  const columns = values.length / rows;
  canvas.width = columns;
  canvas.height = rows;
  canvas.getContext("2d").drawImage(raster(values, 0, rows, columns, table, scale), 0, 0);
}

function drawStrip(canvas, values, most, table) {
  drawPixels(canvas, values, 1, table, signedRoot(most));
}

// Give a canvas a size in CSS pixels and return its context, scaled to the pixels of the screen.
function fit(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  return context;
}

function paint(context, image, x, y, width, height) {
  context.imageSmoothingEnabled = image.width > width || image.height > height;
  context.drawImage(image, x, y, width, height);
}

// Lay an absolutely positioned element over a part of a picture.
function lay(node, x, y, width, height) {
  Object.assign(node.style, { left: `${x}px`, top: `${y}px`, width: `${width}px`, height: `${height}px` });
}

// Where in an element a pointer is
function pointed(node, event) {
  const { left, top } = node.getBoundingClientRect();
  return [event.clientX - left, event.clientY - top];
}

// Scroll a box by whole rows until the one at `top` is seen; while a pointer is in it, it stays.
function reveal(box, top, height) {
  if (box.matches(":hover")) return;
  const below = top + 3 * height - box.clientHeight;
  if (top < box.scrollTop + height) box.scrollTop = top - height;
  else if (below > box.scrollTop) box.scrollTop = Math.ceil(below / height) * height;
}

const clamp = (x, count) => Math.max(0, Math.min(count - 1, x));

const STEPS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

// Arrow keys on a picture: move(dx, dy), infinitely far for Home and End.
function arrows(node, move) {
  const far = { Home: [-Infinity, 0], End: [Infinity, 0] };
  node.addEventListener("keydown", (event) => {
    const step = STEPS[event.key] || far[event.key];
    if (!step || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    move(...step);
  });
}

// One stop of the Tab key for many buttons or links; arrow keys lead from one to the next, up and down by rows.
function roving(parent) {
  const buttons = () => [...parent.querySelectorAll("button, a")];
  const select = (button) => {
    for (const one of buttons()) one.tabIndex = one === button ? 0 : -1;
  };
  parent.addEventListener("focusin", (event) => select(event.target.closest("button, a")));
  arrows(parent, (dx, dy) => {
    const all = buttons();
    const from = all.indexOf(document.activeElement);
    if (from < 0) return;
    const to = dy ? aboveOrBelow(all, all[from], dy) : all[clamp(from + dx, all.length)];
    to.focus();
  });
  return () => {
    const all = buttons();
    if (all.length && !all.some((one) => one.tabIndex === 0)) all[0].tabIndex = 0;
  };
}

// The nearest button of the next row
function aboveOrBelow(buttons, from, dy) {
  const here = from.getBoundingClientRect();
  let best = from;
  let least = Infinity;
  for (const one of buttons) {
    const there = one.getBoundingClientRect();
    const down = dy * (there.top - here.top);
    const distance = 100 * down + Math.abs(there.left - here.left);
    if (down > 1 && distance < least) [best, least] = [one, distance];
  }
  return best;
}

// Options of a <select>, and which is chosen
function choices(select, names, chosen) {
  const options = adjust(select, names.length, (i) => element("option", { value: String(i) }));
  names.forEach((name, i) => setText(options[i], name));
  select.selectedIndex = chosen;
}

// A <select> by which a part of the state is chosen, whose options are names(s)
function chooser(explorer, select, name, names) {
  select.addEventListener("change", () => explorer.change({ [name]: select.selectedIndex }));
  explorer.view(
    (s) => [s.config, s.pieces, s[name]],
    (s) => choices(select, names(s), s[name]),
  );
}

const layersOf = (s) => numbered(s.config.num_hidden_layers);
const headsOf = (s) => numbered(s.config.num_attention_heads);
const piecesOf = (s) => s.pieces.map((_, i) => placed(s.pieces, i));

const numbered = (count) => Array.from({ length: count }, (_, i) => String(i + 1));
