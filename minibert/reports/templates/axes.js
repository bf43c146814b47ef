// Boxes hide curves: the axes then fit those that are left, as `picture` in pictures.py fits them to all curves.
for (const picture of document.querySelectorAll("svg[data-plot]")) {
  document.addEventListener("change", axesOf(picture), { capture: true }); // before the pointer looks for places
}

// A function that fits the axes of a picture to the curves that are seen.
function axesOf(picture) {
  const plot = JSON.parse(picture.dataset.plot);
  const { left, right, top, bottom } = plot;
  const [low, high] = [plot.values[0], plot.values[plot.values.length - 1]];
  const curves = [...picture.querySelectorAll("path[data-name], circle")].map((element) => {
    const points = coordinatesOf(element).map(([x, y]) => ({
      position: ((x - left) / (right - left)) * plot.last,
      value: high - ((y - top) / (bottom - top)) * (high - low),
    }));
    return { element, points };
  });

  return () => {
    const seen = curves.filter(({ element }) => getComputedStyle(element).display !== "none");
    if (!seen.length) return;
    const { values, last } = seen.length < curves.length ? fitted(seen.flatMap(({ points }) => points)) : plot;
    const [lowest, highest] = [values[0], values[values.length - 1]];
    // A tick may be past the last point by what the rounding of coordinates takes from it.
    const positions = ticks(0, last).filter((position) => position <= 1.001 * last);
    const isDrawn = (position) => picture.dataset.axis !== "step" || Number.isInteger(position);
    const x = (position) => left + (position / last) * (right - left);
    const y = (value) => top + ((highest - value) / (highest - lowest)) * (bottom - top);
    for (const { element, points } of seen) move(element, points.map(({ position, value }) => [x(position), y(value)]));
    write(picture.querySelector(".heights"), values.map((value) => [plot.scale * value, 0, y(value)]));
    write(picture.querySelector(".places"), positions.filter(isDrawn).map((position) => [position, x(position), 0]));
  };
}

function coordinatesOf(element) {
  if (element.matches("circle")) return [[element.cx.baseVal.value, element.cy.baseVal.value]];
  return element.getAttribute("d").slice(1).split("L").map((point) => point.split(" ").map(Number));
}

function move(element, points) {
  const written = points.map((point) => point.map((number) => number.toFixed(3)));
  if (element.matches("circle")) ["cx", "cy"].forEach((name, axis) => element.setAttribute(name, written[0][axis]));
  else element.setAttribute("d", `M${written.map((point) => point.join(" ")).join("L")}`);
}

// Write the numbers at an axis: each is a copy of the first one, in its own place.
function write(axis, numbers) {
  const copies = numbers.map(([number, x, y]) => {
    const copy = axis.firstElementChild.cloneNode(true);
    copy.setAttribute("transform", `translate(${x.toFixed(1)} ${y.toFixed(1)})`);
    copy.querySelector("text").textContent = inWords(number);
    return copy;
  });
  axis.replaceChildren(...copies);
}

function inWords(number) {
  if (Math.abs(number) >= 1e6) return `${inWords(number / 1e6)}M`;
  return number.toLocaleString("en-US", { maximumSignificantDigits: 6 });
}

// What the axes of some points have: the numbers at the vertical one, and where the horizontal one ends.
function fitted(points) {
  const values = points.map(({ value }) => value);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const margin = low === high ? Math.max(0.1 * Math.abs(high), 1e-3) : 0;
  return { values: ticks(low - margin, high + margin), last: Math.max(...points.map(({ position }) => position)) };
}

// About five round numbers, as from `ticks` in pictures.py; the ends are known to a hundredth of a step.
function ticks(low, high) {
  const rough = (high - low) / 5;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((multiple) => multiple * power).find((size) => size >= 0.999 * rough);
  const [first, last] = [Math.floor(low / step + 0.01), Math.ceil(high / step - 0.01)];
  return Array.from({ length: last - first + 1 }, (_, number) => Number(((first + number) * step).toPrecision(12)));
}
