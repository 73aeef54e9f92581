"use strict";
// Draws every figure in the page's own colours, and again when the reader's system turns light or dark.
(() => {
  const figures = JSON.parse(document.getElementById("data").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");

  function inPageColours(layout) {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    const axis = { gridcolor: colour("--line"), linecolor: colour("--line"), zeroline: false, showline: true };
    return {
      ...layout,
      paper_bgcolor: colour("--ground"),
      plot_bgcolor: colour("--ground"),
      font: { color: colour("--ink"), family: "system-ui, sans-serif", size: 13 },
      hoverlabel: { bgcolor: colour("--card"), font: { color: colour("--ink") } },
      xaxis: { ...layout.xaxis, ...axis },
      yaxis: { ...layout.yaxis, ...axis },
    };
  }

  function draw() {
    for (const place of document.querySelectorAll(".plot")) {
      const figure = figures[place.dataset.condition][place.dataset.figure];
      Plotly.react(place, figure.data, inPageColours(figure.layout), { responsive: true, displaylogo: false, displayModeBar: false });
    }
  }

  draw();
  dark.addEventListener("change", draw);
})();
