// Colours, then everything else in the order in which a reader meets it.
"use strict";

const THEMES = ["auto", "light", "dark"];
let theme = "auto";

function applyTheme() {
  const dark = theme === "dark" || (theme === "auto" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  const button = byId("theme");
  button.textContent = { auto: "◐", light: "☀", dark: "☾" }[theme];
  button.title = "Colours: " + theme;
  button.setAttribute("aria-label", `Colours: ${theme}. Change to ${THEMES[(THEMES.indexOf(theme) + 1) % 3]}`);
  for (const name of PLOTS.drawn.keys()) redraw(name);
}

byId("theme").addEventListener("click", () => {
  theme = THEMES[(THEMES.indexOf(theme) + 1) % 3];
  applyTheme();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", applyTheme);
applyTheme();
for (const table of document.querySelectorAll("table.sortable")) makeSortable(table);
startPanel();
startConfigurations();
startPlots();
document.body.addEventListener("click", (event) => {
  const button = event.target.closest("[data-format]");
  if (!button) return;
  const name = button.closest("[data-figure]").dataset.figure;
  if (button.dataset.format === "svg") saveSvg(name);
  else saveFigure(name, button.dataset.format);
});
