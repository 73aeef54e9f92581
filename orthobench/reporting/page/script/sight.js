// Figures almost in view are drawn, and figures two screens away are purged, so that they need no layout.

import { theme } from "./colours.js";
import { draw, loadAhead, purge } from "./figures.js";
import { plotsIn } from "./traces.js";

const REST = 100; // milliseconds without scrolling before a figure is drawn: drawing one takes longer than a frame

/** @type {Set<Plot>} */
const waiting = new Set();

let lastScroll = -REST;
let isDrawing = false;

const sight = new IntersectionObserver(
  (entries) => {
    for (const { target: element, isIntersecting } of entries) {
      const target = /** @type {Plot} */ (element);
      if (isIntersecting && !target.drawn) waiting.add(target);
      else waiting.delete(target);
    }
    drawWaiting();
  },
  { rootMargin: "600px" },
);

// Draw the figures that are almost in view, one after another, while nothing scrolls.
async function drawWaiting() {
  if (isDrawing) return;
  isDrawing = true;
  while (waiting.size) {
    const rest = lastScroll + REST - performance.now();
    if (rest > 0) {
      await new Promise((resume) => setTimeout(resume, rest));
      continue;
    }
    const [container] = waiting;
    waiting.delete(container);
    try {
      await draw(container);
    } catch (error) {
      console.error(error);
    }
    await new Promise((resume) => setTimeout(resume));
  }
  isDrawing = false;
}

window.addEventListener("scroll", () => { lastScroll = performance.now(); }, { passive: true });

const distance = new IntersectionObserver(
  (entries) => { for (const entry of entries) if (!entry.isIntersecting && !theme.printing) purge(/** @type {Plot} */ (entry.target)); },
  { rootMargin: "3000px" },
);

/** @param {HTMLElement} root */
export function watch(root) {
  for (const container of plotsIn(root)) {
    for (const observer of [sight, distance]) {
      observer.unobserve(container);
      observer.observe(container);
    }
  }
  loadAhead(root);
}
