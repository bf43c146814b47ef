// Pictures answer to a mouse, a finger and the arrow keys, by what stands at a place. All else they show without this.
"use strict";
for (const picture of document.querySelectorAll("svg[role=img]")) {
  const places = placesOf(picture);
  if (places.length) answer(picture, places);
}
// A table wider than the window scrolls by the arrow keys, too.
for (const box of document.querySelectorAll(".wide")) {
  if (box.scrollWidth <= box.clientWidth) continue;
  box.tabIndex = 0;
  box.setAttribute("role", "group");
  box.setAttribute("aria-label", "Wide content; arrow keys scroll it");
}

function placesOf(picture) {
  const lines = [...picture.querySelectorAll("path[data-name]")];
  return lines.length ? placesOnCurves(lines) : placesOfDots(picture);
}

// Every position at which a curve has a point, from left to right; of hidden curves none.
function placesOnCurves(lines) {
  const curves = new Map();
  for (const { classList, dataset, attributes } of lines.filter((line) => getComputedStyle(line).display !== "none")) {
    const curve = curves.get(dataset.name) || { name: dataset.name, kind: classList.value, points: [] };
    const [positions, values] = [dataset.positions.split(" "), dataset.values.split(" ")];
    attributes.d.value.slice(1).split("L").forEach((point, number) => {
      const [x, y] = point.split(" ").map(Number);
      curve.points.push({ x, y, position: positions[number], value: values[number] });
    });
    curves.set(dataset.name, curve);
  }
  const points = [...curves.values()].flatMap((curve) => curve.points).sort((one, other) => one.x - other.x);
  const distinct = points.filter((point, number) => !number || point.x > points[number - 1].x);
  return distinct.map(({ x, position }) => ({ x, y: 0, position, curves }));
}

// Of a picture with nothing but dots these, row by row.
function placesOfDots(picture) {
  const dots = [...picture.querySelectorAll("circle:has(title)")].map((dot) => ({
    x: dot.cx.baseVal.value, y: dot.cy.baseVal.value, kind: dot.classList.value, title: dot.textContent,
  }));
  return dots.sort((one, other) => one.y - other.y || one.x - other.x);
}

// What to say at a place: a heading, and for each curve that reaches it the nearest point.
function toldAt(place, axis) {
  if (place.title) return [place.title, [{ ...place, words: "" }]];
  const told = [];
  for (const { name, kind, points } of place.curves.values()) {
    if (place.x < points[0].x || place.x > points[points.length - 1].x) continue;
    // The last of several that are as near, such as the final loss at the step of the last evaluation.
    const point = points.reduce((best, one) => (Math.abs(one.x - place.x) <= Math.abs(best.x - place.x) ? one : best));
    const elsewhere = point.x === place.x ? "" : ` (${axis} ${point.position})`;
    told.push({ ...point, kind, words: `${name}: ${point.value}${elsewhere}` });
  }
  return [`${axis} ${place.position}`, told];
}

function answer(picture, places) {
  const { width, height } = picture.viewBox.baseVal;
  const marks = drawn("g", { class: "marks" }, picture);
  const readout = document.createElement("output");
  picture.after(readout);
  readout.className = "readout";
  let at = places.length - 1;
  for (const title of picture.querySelectorAll("circle title")) title.remove(); // which a browser shows as well
  picture.tabIndex = 0;
  picture.setAttribute("aria-label", `${picture.getAttribute("aria-label").replace(/\.$/, "")}. Arrow keys tell the values.`);

  function drawn(name, attributes, parent) {
    const one = parent.appendChild(document.createElementNS(picture.namespaceURI, name));
    for (const [key, value] of Object.entries(attributes)) one.setAttribute(key, value);
    return one;
  }

  function line(words, kind) {
    const one = readout.appendChild(document.createElement("div"));
    if (kind) {
      const key = drawn("svg", { class: "key", viewBox: "0 0 24 10", "aria-hidden": "true" }, one);
      drawn("path", { class: kind, d: "M0 5H24" }, key);
    }
    one.append(words); // as text
  }

  function show(number) {
    if (!places.length) return;
    at = Math.max(0, Math.min(places.length - 1, number));
    const [heading, told] = toldAt(places[at], picture.dataset.axis);
    hide();
    line(heading);
    if (!places[at].title) drawn("path", { class: "guide", d: `M${places[at].x} 0V${JSON.parse(picture.dataset.plot).bottom}` }, marks);
    for (const { x, y, kind, words } of told) {
      drawn("circle", { class: kind, cx: x, cy: y, r: 6 }, marks);
      if (words) line(words, kind);
    }
    const share = places[at].x / width;
    readout.style.left = share < 0.5 ? `calc(${100 * share}% + 0.75rem)` : "";
    readout.style.right = share < 0.5 ? "" : `calc(${100 - 100 * share}% + 0.75rem)`;
    readout.style.maxWidth = `calc(${100 * Math.max(share, 1 - share)}% - 2.25rem)`; // with its own padding
    readout.style.top = `${(places[at].y / height) * picture.clientHeight}px`;
  }

  function hide() {
    marks.replaceChildren();
    readout.replaceChildren();
  }

  function point(event) {
    if (!places.length) return;
    const box = picture.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * width;
    const y = ((event.clientY - box.top) / box.height) * height;
    const far = places.map((place) => Math.hypot(place.x - x, place.title ? place.y - y : 0));
    const nearest = far.indexOf(Math.min(...far));
    places[nearest].title && far[nearest] > 30 ? hide() : show(nearest);
  }

  // Boxes of a page hide curves and show them again.
  document.addEventListener("change", () => {
    hide();
    places = placesOf(picture);
    at = places.length - 1;
  });
  const up = places[0].title ? -1 : 1; // dots are in order from top to bottom
  const moves = { ArrowLeft: -1, ArrowDown: -up, ArrowRight: 1, ArrowUp: up, Home: -Infinity, End: Infinity };
  const pages = { PageDown: -up, PageUp: up }; // of a tenth of the places
  picture.addEventListener("pointermove", point);
  picture.addEventListener("pointerdown", point);
  picture.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && hide());
  picture.addEventListener("blur", hide);
  picture.addEventListener("focus", () => picture.matches(":focus-visible") && show(at));
  picture.addEventListener("keydown", (event) => {
    if (event.key === "Escape") hide();
    const move = moves[event.key] || Math.ceil(places.length / 10) * pages[event.key];
    if (!move || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    show(at + move);
  });
}
