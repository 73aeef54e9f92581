// Shows the page of an address, with its title, focus and scroll position.

import { fillCompare } from "./compare.js";
import { element, link } from "./elements.js";
import { measuredForm } from "./filters.js";
import { showMeasured } from "./measured.js";
import { closeMenus } from "./menus.js";
import { fillMine } from "./mine.js";
import { fillRun } from "./run.js";
import { fillSearch } from "./searches.js";
import { watch } from "./sight.js";
import { renderRows, runForm, showRuns } from "./table.js";
import { home, showOnly, viewOf } from "./views.js";

/** @type {Record<string, (key: string) => Promise<boolean>>} */
const FILLED = { run: fillRun, search: fillSearch };

// Return the page's name and the part after the question mark; null for an address that cannot be read.
function route() {
  try {
    const [, name, query] = /^#?([^?]*)\??(.*)$/s.exec(location.hash);
    return { name: decodeURIComponent(name), state: Object.fromEntries(new URLSearchParams(query)) };
  } catch {
    return null;
  }
}

/**
 * Return the view with this name, filled in if the script builds it; null if there is none.
 * @param {string} name
 * @param {Record<string, string>} state
 * @returns {Promise<{view: HTMLElement, part?: HTMLElement} | null>}
 */
async function find(name, state) {
  if (name === "") return { view: home() };
  const [, kind, key] = /^(run|search)-(.+)$/s.exec(name) ?? [];
  if (kind) return (await FILLED[kind](key)) ? { view: viewOf(kind) } : null;
  if (name === "compare") return (await fillCompare(state)) ? { view: document.getElementById("compare") } : null;
  if (name === "mine") return (await fillMine(state)) ? { view: document.getElementById("mine") } : null;
  if (["run", "search", "missing"].includes(name)) return null;
  const view = viewOf(name);
  if (name === "runs" && view) await showRuns(state);
  if (name === "measured" && view) showMeasured(state);
  if (view) return { view };
  const [, field, chosen] = /^(task|model)-(.+)$/s.exec(name) ?? [];
  if (field && measuredForm && [...measuredForm.elements[field].options].some(({ value, text }) => (value || text) === chosen)) {
    showMeasured({ [field]: chosen });
    return { view: document.getElementById("measured") };
  }
  const part = document.getElementById(name);
  const around = part?.closest(".view");
  const section = /** @type {HTMLElement | null} */ (part?.closest("#measured .filtered"));
  if (section) {
    showMeasured({ task: document.getElementById("task-list") ? section.dataset.task : "" }, section.id, state.model);
    return { view: around, ...(section !== part && { part }) };
  }
  return around ? { view: around, part } : null;
}

/**
 * Hide all views but the one of the address, as far as that is known before the page's data are read: who prints or looks
 * at once should not find all of them.
 */
export function showAtOnce() {
  const { name, state } = route() ?? { name: "", state: {} };
  const [, kind] = /^(run|search|task|model)-/.exec(name) ?? [];
  const own = viewOf(kind === "task" || kind === "model" ? "measured" : kind ?? name);
  const shown = own ?? document.getElementById(name)?.closest(".view") ?? home();
  showOnly(shown);
  document.documentElement.dataset.started = "";
  if (shown?.id === "measured") find(name, state); // at once, because it needs no data
}

let turn = 0;

/** @type {number} */
let scrolling; // the timer that saves the scroll position

/** @param {boolean} [isFirst] */
export async function show(isFirst = false) {
  const own = ++turn;
  clearTimeout(scrolling);
  const wanted = route();
  const place = (wanted && (await find(wanted.name, wanted.state))) ?? missing(wanted);
  if (own !== turn) return; // the address has changed meanwhile
  const { view, part } = place;
  showOnly(view);
  /** @type {NodeListOf<HTMLAnchorElement>} */
  const links = document.querySelectorAll("nav a");
  for (const link of links) {
    const leads = link.hash === "#" + view.id || (["run", "compare", "search"].includes(view.id) && link.hash === "#runs");
    if (!leads) link.removeAttribute("aria-current");
    else {
      link.setAttribute("aria-current", "page");
      const nav = link.closest("nav");
      nav.scrollLeft = link.offsetLeft - nav.clientWidth / 2; // on a phone the links are in one line
    }
  }
  for (const menu of document.querySelectorAll("nav .menu")) {
    const current = menu.querySelector("a[aria-current]");
    if (current) menu.querySelector("summary").setAttribute("aria-current", "true");
    else menu.querySelector("summary").removeAttribute("aria-current");
  }
  closeMenus();
  const heading = view.querySelector("h2");
  document.title = [heading?.textContent, "orthobench"].filter(Boolean).join(" – ");
  if (view.id === "runs") renderRows(true);
  watch(view);
  const y = history.state?.y;
  if (y !== undefined) window.scrollTo(0, y);
  else if (part) part.scrollIntoView();
  else window.scrollTo(0, 0);
  if (part?.matches("details")) part.open = true;
  if (!isFirst) focusOn(part ?? heading ?? view);
}

/**
 * @param {{name: string} | null} wanted
 * @returns {{view: HTMLElement, part?: HTMLElement}}
 */
function missing(wanted) {
  const view = document.getElementById("missing");
  const name = wanted ? element("code", wanted.name) : element("code", location.hash);
  const text = wanted ? element("p", null, "The report has no page or part ", name, ".") : element("p", null, "The address ", name, " cannot be read.");
  const start = home();
  view.replaceChildren(element("h2", "No such page"), text, element("p", null, link("#" + start.id, "To the start"), ...(runForm ? [" · ", link("#runs", "all runs")] : [])));
  return { view };
}

/** @param {HTMLElement} target */
export function focusOn(target) {
  if (!target.hasAttribute("tabindex")) target.tabIndex = -1;
  target.focus({ preventScroll: true });
}

// The scroll position is stored with the history entry, for going back
export function rememberPlace() {
  clearTimeout(scrolling);
  scrolling = setTimeout(() => history.replaceState({ ...history.state, y: window.scrollY }, ""), 100);
}
