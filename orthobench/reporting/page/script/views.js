// The pages of the report, of which one is shown at a time.

export const views = [...document.querySelectorAll(".view")];
const startId = ["view-overview", "view-studies"].find((id) => document.getElementById(id)) ?? (views.find((view) => !view.hidden)?.id || "view-missing");
export const home = () => document.getElementById(startId);

export function shownView() {
  return views.find((view) => !view.hidden);
}
