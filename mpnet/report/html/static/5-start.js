// Colours, filters, folded sections, then everything else in the order in which a reader meets it.
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
  // SVG follows by itself; what is on the canvas does not.
  if (FRONT.place) drawFront();
}

function startFilters() {
  const bar = byId("change-filters");
  if (!bar) return;
  const things = [...document.querySelectorAll("#crops > li, #table-changes tbody tr")];
  const rows = things.filter((thing) => thing.tagName === "TR");
  const filter = () => {
    const wanted = [...bar.querySelectorAll("select")].map((select) => [select.dataset.filter, select.value]).filter(([, value]) => value);
    for (const thing of things) thing.hidden = wanted.some(([name, value]) => thing.dataset[name] !== value);
    byId("changes-said").textContent = wanted.length ? `${rows.filter((row) => !row.hidden).length} of ${rows.length}` : "";
  };
  bar.addEventListener("change", filter);
}

// What is wider or higher than its frame says so, in a line below it, for as long as it is.
function startHints() {
  const seen = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      const shown = target.clientWidth > 0, wide = shown && target.scrollWidth > target.clientWidth + 4;
      const high = shown && target.scrollHeight > target.clientHeight + 4, rows = target.querySelectorAll("tbody tr").length;
      const text = [high ? `Scroll down in the table to see all ${rows} rows ↓` : "", wide ? "Scroll sideways to see the rest →" : ""].filter(Boolean).join(" · ");
      const next = target.nextElementSibling, hint = next && next.classList.contains("wider") ? next : null;
      if (hint && hint.textContent === text) continue;
      if (hint) hint.remove();
      if (text) target.after(element("p", { text, class: "hint wider" }));
    }
  });
  for (const node of document.querySelectorAll(".scroll, .chart")) seen.observe(node);
}

// What a link leads to must not stay folded.
function unfold() {
  const target = location.hash.length > 1 ? byId(decodeURIComponent(location.hash.slice(1))) : null;
  const folded = target && target.querySelector(":scope > details");
  if (folded) folded.open = true;
}

byId("theme").addEventListener("click", () => {
  theme = THEMES[(THEMES.indexOf(theme) + 1) % 3];
  applyTheme();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", applyTheme);
applyTheme();
for (const table of document.querySelectorAll("table.sortable")) makeSortable(table);
startPanel();
startFront();
startConfigurations();
startFilters();
startHints();
addEventListener("hashchange", unfold);
unfold();
document.body.addEventListener("click", (event) => {
  const link = event.target.closest("a[href^='#']");
  if (link && link.hash === location.hash) unfold();
  const chosen = event.target.closest("[data-key], button[data-row]");
  if (chosen) {
    select(chosen.dataset.row === undefined ? TABLE.keys.indexOf(chosen.dataset.key) : Number(chosen.dataset.row));
    byId("panel").scrollIntoView({ block: "nearest" });
  }
  const button = event.target.closest("[data-format]");
  if (!button) return;
  const name = button.closest("[data-figure]").dataset.figure;
  if (button.dataset.format === "svg") saveSvg(name);
  else saveFigure(name, button.dataset.format);
});
document.documentElement.dataset.ready = String(Math.round(performance.now()));
