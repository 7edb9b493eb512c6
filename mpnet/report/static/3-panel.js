// The panel of the selected configuration, and its .cfg.
"use strict";

function cfgText(key) {
  return DATA.cfg.parts.map(([part, position]) => (position === null ? part : part[key[position]])).join("");
}

// A file that was not UTF-8 is given back byte by byte.
function cfgBytes(text) {
  return DATA.cfg.encoding === "utf-8" ? text : Uint8Array.from(text, (c) => c.charCodeAt(0));
}

function cfgName(key) {
  const stem = DATA.cfg.file.replace(/\.cfg$/, "").replace(/[^\w.-]+/g, "_");
  return `${stem}-${key.replace(/[^\w]+/g, "_")}.cfg`;
}

function differenceCell(name, row) {
  const value = TABLE.columns[name][row];
  const start = TABLE.baseline === null ? NaN : TABLE.columns[name][TABLE.baseline];
  const difference = value - start;
  const cell = element("td", { text: row === TABLE.baseline ? "–" : showDifference(name, difference) });
  const interval = (DATA.intervals[row] || {})[name];
  if (interval) {
    const noise = interval[1] <= 0 && interval[2] >= 0;
    if (noise) cell.append(" ", element("small", { text: "noise" }));
    const bounds = `${show(name, interval[1], false)} to ${signed(show(name, interval[2], false), interval[2])}`;
    cell.append(element("br"), element("small", { text: bounds }));
    if (!noise) cell.className = (interval[0] > 0) === measureOf(name).higher ? "good" : "bad";
  }
  return cell;
}

function drawPanel(row) {
  if (row === null || row === undefined) return;
  const key = TABLE.keys[row];
  const chosen = row === TABLE.chosen;
  byId("panel-title").textContent = row === TABLE.baseline ? "Baseline" : chosen ? "Chosen configuration" : TABLE.front.has(row) ? "On the front" : "Selected configuration";
  byId("panel-key").textContent = key;
  const base = TABLE.baseline === null ? "" : TABLE.keys[TABLE.baseline];
  const chips = [];
  for (const layer of DATA.layers) {
    if (layer.position === null || layer.position >= key.length) continue;
    const node = chip(key[layer.position]);
    node.title = `${layer.name}: ${(DATA.precisions[key[layer.position]] || {}).name || key[layer.position]}`;
    chips.push(node);
  }
  byId("panel-layers").replaceChildren(...chips);
  byId("panel-layers").setAttribute("aria-label", "Precision per layer: " + key + (base ? ", baseline " + base : ""));
  const rows = [];
  for (const name of Object.keys(TABLE.columns)) {
    const value = TABLE.columns[name][row];
    if (Number.isNaN(value)) continue;
    const start = TABLE.baseline === null ? NaN : TABLE.columns[name][TABLE.baseline];
    rows.push(element("tr", {}, element("th", { scope: "row", text: measureOf(name).label }),
      element("td", { text: show(name, value) }), element("td", { text: show(name, start) }), differenceCell(name, row)));
  }
  byId("panel-metrics").tBodies[0].replaceChildren(...rows);
  const back = byId("back");
  back.hidden = chosen || TABLE.chosen === null;
  for (const cell of document.querySelectorAll("[data-position]")) {
    const place = cell.dataset.position;
    cell.replaceChildren(...(place === "" || Number(place) >= key.length ? [] : [chip(key[Number(place)])]));
  }
  byId("said").textContent = "";
}

async function copyCfg() {
  const text = cfgText(TABLE.keys[RENDER.selected]);
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Pages opened from a file may lack the clipboard interface; a selected text area still copies.
    const area = element("textarea", { "aria-hidden": "true" });
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  byId("said").textContent = "copied";
}

function startPanel() {
  RENDER.listeners.push(drawPanel);
  drawPanel(RENDER.selected);
  byId("back").addEventListener("click", () => select(TABLE.chosen));
  if (!DATA.cfg) return;
  byId("copy-cfg").addEventListener("click", copyCfg);
  byId("save-cfg").addEventListener("click", () => {
    const key = TABLE.keys[RENDER.selected];
    save(cfgName(key), cfgBytes(cfgText(key)), "text/plain");
    byId("said").textContent = "saved";
  });
}
