// Shows one page at a time, with its title, focus and scroll position, and prints it in light colours, uncut.

const views = [...document.querySelectorAll(".view")];
const startId = ["view-overview", "view-studies"].find((id) => document.getElementById(id)) ?? (views.find((view) => !view.hidden)?.id || "view-missing");
const home = () => document.getElementById(startId);
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

// Return the view with this name, filled in if the script builds it; null if there is none.
async function find(name, state) {
  if (name === "") return { view: home() };
  const [, kind, key] = /^(run|search)-(.+)$/s.exec(name) ?? [];
  if (kind) return (await FILLED[kind](key)) ? { view: document.getElementById("view-" + kind) } : null;
  if (name === "compare") return (await fillCompare(state)) ? { view: document.getElementById("view-compare") } : null;
  if (["run", "search", "missing"].includes(name)) return null;
  const view = document.getElementById("view-" + name);
  if (name === "runs" && view) await showRuns(state);
  if (name === "measured" && view) showMeasured(state);
  if (view) return { view };
  const [, field, chosen] = /^(task|model)-(.+)$/s.exec(name) ?? [];
  if (field && measuredForm && [...measuredForm.elements[field].options].some(({ value, text }) => (value || text) === chosen)) {
    showMeasured({ [field]: chosen });
    return { view: document.getElementById("view-measured") };
  }
  const part = document.getElementById(name);
  const around = part?.closest(".view");
  if (around?.id === "view-measured") showMeasured({ task: document.getElementById("task-list") ? part.closest(".filtered")?.dataset.task : "" });
  return around ? { view: around, part } : null;
}

let turn = 0;
let scrolling; // the timer that saves the scroll position

async function show(isFirst = false) {
  const own = ++turn;
  clearTimeout(scrolling);
  const wanted = route();
  const place = (wanted && (await find(wanted.name, wanted.state))) ?? missing(wanted);
  if (own !== turn) return; // the address has changed meanwhile
  const { view, part } = place;
  for (const other of views) other.hidden = other !== view;
  for (const link of document.querySelectorAll("nav a")) {
    const leads = "#view-" + link.hash.slice(1) === "#" + view.id || (["view-run", "view-compare", "view-search"].includes(view.id) && link.hash === "#runs");
    if (leads) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  for (const menu of document.querySelectorAll("nav .menu")) {
    const current = menu.querySelector("a[aria-current]");
    if (current) menu.querySelector("summary").setAttribute("aria-current", "true");
    else menu.querySelector("summary").removeAttribute("aria-current");
  }
  closeMenus();
  const heading = view.querySelector("h2");
  document.title = [heading?.textContent, "orthobench"].filter(Boolean).join(" – ");
  if (view.id === "view-runs") renderRows(true);
  watch(view);
  const y = history.state?.y;
  if (y !== undefined) window.scrollTo(0, y);
  else if (part) part.scrollIntoView();
  else window.scrollTo(0, 0);
  if (part?.matches("details")) part.open = true;
  if (!isFirst) focusOn(part ?? heading ?? view);
}

// Close the open menus except those that hold a node.
function closeMenus(node = null) {
  for (const menu of document.querySelectorAll(".menu[open]")) if (!menu.contains(node)) menu.open = false;
}

// A menu covers what is below it, so it closes when the reader leaves it: by Escape, by Tab, or by a click elsewhere.
function startMenus() {
  document.addEventListener("keydown", ({ key, target }) => {
    const menu = key === "Escape" && target.closest?.(".menu[open]");
    if (menu) menu.querySelector("summary").focus();
    if (key === "Escape") closeMenus();
  });
  document.addEventListener("focusin", ({ target }) => closeMenus(target));
  document.addEventListener("pointerdown", ({ target }) => closeMenus(target));
}

function missing(wanted) {
  const view = document.getElementById("view-missing");
  const name = wanted ? element("code", wanted.name) : element("code", location.hash);
  const text = wanted ? element("p", null, "The report has no page or part ", name, ".") : element("p", null, "The address ", name, " cannot be read.");
  const start = home();
  view.replaceChildren(element("h2", "No such page"), text, element("p", null, link("#" + start.id.replace("view-", ""), "To the start"), ...(runForm ? [" · ", link("#runs", "all runs")] : [])));
  return { view };
}

function focusOn(target) {
  if (!target.hasAttribute("tabindex")) target.tabIndex = -1;
  target.focus({ preventScroll: true });
}

// The scroll position is stored with the history entry, for going back
function rememberPlace() {
  clearTimeout(scrolling);
  scrolling = setTimeout(() => history.replaceState({ ...history.state, y: window.scrollY }, ""), 100);
}

// Printing: every figure is drawn, in light colours

function beforePrint() {
  if ("alone" in document.documentElement.dataset) return;
  printing = true;
  const view = views.find((other) => !other.hidden);
  if (!view) return;
  for (const details of view.querySelectorAll("details:is(.paper-claims, .claims-of-all, .board)")) {
    if (!details.open) details.dataset.closed = "";
    details.open = true;
  }
  if (view.id === "view-runs") renderAllRows();
  if (!window.Plotly) return;
  for (const container of view.querySelectorAll(".plot")) if (container.offsetParent) drawForPrint(container);
}

// Draw a figure whose data is loaded. A page is not as wide as the window, so the picture is made scalable.
function drawForPrint(container) {
  if (!container.base && !container.figure) return;
  if (!container.base) prepare(container, container.figure);
  container.isForPrint = !container.drawn;
  drawNow(container);
  for (const svg of container.querySelectorAll(".main-svg")) svg.setAttribute("viewBox", `0 0 ${svg.getAttribute("width")} ${svg.getAttribute("height")}`);
}

function afterPrint() {
  if ("alone" in document.documentElement.dataset) return;
  printing = false;
  for (const details of document.querySelectorAll("details[data-closed]")) {
    details.open = false;
    delete details.dataset.closed;
  }
  for (const container of document.querySelectorAll(".plot")) {
    if (container.isForPrint) purge(container);
    container.isForPrint = false;
    for (const svg of container.querySelectorAll(".main-svg")) svg.removeAttribute("viewBox");
  }
  if (runBox && allRuns) {
    headRuns();
    renderRows(true);
  }
  redraw();
}

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
  ({ palette } = await unpack("index"));
  await show(true);
  document.documentElement.dataset.ready = "";
}

function tooOld() {
  document.getElementById("main").prepend(withAttributes(element("p", "This browser cannot unpack the report's figures: use Chrome 80, Firefox 113, Safari 16.4 or later."), { class: "banner" }));
  for (const view of views) view.hidden = view !== home();
}

start();
