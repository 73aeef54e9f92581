// Starts the page.

import { startAsk } from "./ask.js";
import { dark, theme } from "./colours.js";
import { unpackIndex } from "./data.js";
import { element, withAttributes } from "./elements.js";
import { redraw } from "./figures.js";
import { isLive } from "./kept.js";
import { showHead, startAsking } from "./live.js";
import { startMatrix } from "./matrix.js";
import { startMeasured } from "./measured.js";
import { startMenus } from "./menus.js";
import { afterPrint, beforePrint } from "./print.js";
import { focusOn, rememberPlace, show, showAtOnce } from "./routes.js";
import { startRuns } from "./table.js";
import { home, showOnly } from "./views.js";

async function start() {
  history.scrollRestoration = "manual";
  startMenus();
  startMatrix();
  startMeasured();
  startRuns();
  window.addEventListener("hashchange", () => show());
  window.addEventListener("scroll", rememberPlace, { passive: true });
  window.addEventListener("beforeprint", beforePrint);
  window.addEventListener("afterprint", afterPrint);
  dark.addEventListener("change", redraw);
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault();
    focusOn(document.getElementById("main"));
    document.getElementById("main").scrollIntoView();
  });
  if (typeof DecompressionStream === "undefined") return tooOld();
  showAtOnce();
  theme.palette = (await unpackIndex()).palette;
  await startAsk();
  if (isLive) await showHead();
  await show(true);
  if (isLive) startAsking();
  document.documentElement.dataset.ready = "";
}

function tooOld() {
  document.getElementById("main").prepend(withAttributes(element("p", "This browser cannot unpack the report's figures: use Chrome 80, Firefox 113, Safari 16.4 or later."), { class: "banner" }));
  showOnly(home());
}

start();
