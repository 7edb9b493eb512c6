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

function valueCell(name, row) {
  const cell = element("td", { text: show(name, TABLE.columns[name][row]) });
  if (TABLE.baseline !== null && row !== TABLE.baseline) cell.append(" ", element("small", { text: show(name, TABLE.columns[name][TABLE.baseline]) }));
  return cell;
}

function differenceCell(name, row) {
  const m = measureOf(name);
  const start = TABLE.baseline === null ? NaN : TABLE.columns[name][TABLE.baseline];
  const cell = element("td", { text: row === TABLE.baseline ? "–" : showDifference(name, TABLE.columns[name][row] - start) });
  const interval = (DATA.intervals[row] || {})[name];
  if (!interval) return cell;
  // What cannot be better than the baseline has an interval of its values, and no verdict.
  const [low, high] = m.judged ? interval.slice(1) : interval.slice(1).map((bound) => bound + start);
  const noise = m.judged && low <= 0 && high >= 0;
  if (noise) cell.append(" ", element("small", { text: "noise" }));
  const sign = (text, value) => (m.judged ? signed(text, value) : text);
  cell.append(element("br"), element("small", { text: `${sign(show(name, low, false), low)} to ${sign(show(name, high, false), high)}` }));
  if (m.judged && !noise) cell.className = (interval[0] > 0) === m.higher ? "good" : "bad";
  return cell;
}

function measureRows(row) {
  const held = "held_out_";
  const two = byId("panel-metrics").tHead.rows.length > 1;
  const rows = [];
  for (const name of Object.keys(TABLE.columns)) {
    if (measureOf(name).cost || (two && name.startsWith(held))) continue;
    const beside = two && held + name in TABLE.columns ? held + name : null;
    if ([name, beside].every((n) => n === null || Number.isNaN(TABLE.columns[n][row]))) continue;
    const line = element("tr", {}, element("th", { scope: "row", text: measureOf(name).label, title: measureOf(name).means || "" }), valueCell(name, row), differenceCell(name, row));
    if (two) line.append(...(beside ? [valueCell(beside, row), differenceCell(beside, row)] : [element("td"), element("td")]));
    rows.push(line);
  }
  return rows;
}

function costRows(row) {
  const rows = [];
  for (const name of Object.keys(TABLE.columns)) {
    const value = TABLE.columns[name][row];
    if (!measureOf(name).cost || Number.isNaN(value)) continue;
    const start = TABLE.baseline === null ? NaN : TABLE.columns[name][TABLE.baseline];
    rows.push(element("tr", {}, element("th", { scope: "row", text: measureOf(name).label, title: measureOf(name).means || "" }), element("td", { text: show(name, value) }),
      element("td", { text: show(name, start) }), element("td", { text: start > 0 ? Math.round((100 * value) / start) + " %" : "–" })));
  }
  return rows;
}

function titleOf(row) {
  const picked = DATA.picks.filter((pick) => pick.row === row).map((pick) => pick.name);
  const name = row === TABLE.baseline ? "Baseline" : row === TABLE.chosen ? DATA.shown : TABLE.front.has(row) ? "On the front" : "Selected configuration";
  return picked.length ? `${name}: ${picked.join(", ")}` : name;
}

function drawPanel(row) {
  if (row === null || row === undefined) return;
  const key = TABLE.keys[row];
  const chosen = row === TABLE.chosen;
  byId("panel-title").textContent = titleOf(row);
  byId("panel-words").textContent = TABLE.words[row] || "";
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
  byId("panel-metrics").tBodies[0].replaceChildren(...measureRows(row));
  byId("panel-costs").tBodies[0].replaceChildren(...costRows(row));
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
