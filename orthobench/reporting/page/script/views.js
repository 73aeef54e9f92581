// The pages of the report, of which one is shown at a time.

export const views = [...document.querySelectorAll(".view")];
const startId = ["overview", "studies"].find((id) => document.getElementById(id)) ?? (views.find((view) => !view.hidden)?.id || "missing");
export const home = () => document.getElementById(startId);

/**
 * @param {string} name
 * @returns {HTMLElement | undefined}
 */
export const viewOf = (name) => views.find(({ id }) => id === name);

/**
 * Show one view alone. Its name is in the body, because a rule of CSS that asks which view is hidden (:has) lets the browser
 * style the whole page again after every change of it.
 * @param {HTMLElement} view
 */
export function showOnly(view) {
  for (const other of views) other.hidden = other !== view;
  document.body.dataset.view = view.id;
}

export function shownView() {
  return views.find((view) => !view.hidden);
}
