"use strict";

// Plays the animations of the course: a button, a slider and the arrow keys choose a frame of a picture.
{
  // The value at a frame of [[frame, value], ...]: the last one that was set
  const valueAt = (changes, frame) => changes.findLast(([from]) => from <= frame)[1];

  const start = (figure) => {
    const { seconds, captions, shapes } = JSON.parse(figure.querySelector("script").textContent);
    const [button, slider] = figure.querySelectorAll("button, input");
    const caption = figure.querySelector(".caption");
    const moving = [...figure.querySelectorAll("[data-moves]")];
    const points = moving.map((shape) => (shape.getAttribute("points") || "").split(" "));
    const calm = matchMedia("(prefers-reduced-motion: reduce)");
    const last = captions.length - 1;
    let frame = last;
    let timer = null;

    const show = (wanted) => {
      frame = Math.max(0, Math.min(last, wanted));
      shapes.forEach((attributes, i) => {
        for (const [name, changes] of Object.entries(attributes)) {
          const value = valueAt(changes, frame);
          if (name === "text") moving[i].textContent = value;
          // Of a line, how many of its points are drawn
          else if (name === "count") moving[i].setAttribute("points", points[i].slice(0, value).join(" "));
          else moving[i].setAttribute(name, value);
        }
      });
      slider.value = String(frame);
      slider.setAttribute("aria-valuetext", captions[frame]);
      caption.textContent = captions[frame];
    };

    const pause = () => {
      clearTimeout(timer);
      timer = null;
      button.textContent = calm.matches ? "Next" : "Play";
    };

    const step = () => {
      show(frame + 1);
      if (frame < last) timer = setTimeout(step, 1000 * seconds);
      else pause();
    };

    // From the last frame it starts again; with reduced motion, each press is one frame.
    const press = () => {
      if (timer !== null) return pause();
      show(frame === last ? 0 : frame + (calm.matches ? 1 : 0));
      if (calm.matches || frame === last) return;
      button.textContent = "Pause";
      timer = setTimeout(step, 1000 * seconds);
    };

    const choose = (wanted) => {
      pause();
      show(wanted);
    };

    button.addEventListener("click", press);
    slider.addEventListener("input", () => choose(Number(slider.value)));
    figure.addEventListener("keydown", (event) => {
      if (event.altKey || event.ctrlKey || event.metaKey) return;
      const steps = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };
      if (!(event.key in steps)) return;
      event.preventDefault();
      event.stopPropagation(); // notebooks have arrow keys of their own
      choose(frame + steps[event.key]);
    });
    calm.addEventListener("change", pause);
    choose(last);
    figure.querySelector(".controls").hidden = false;
    figure.dataset.ready = "";
  };

  for (const figure of document.querySelectorAll("figure.minibert-animation:not([data-ready])")) start(figure);
}
