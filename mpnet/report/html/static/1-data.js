// The page's data and its one piece of state: which configuration is selected.
"use strict";
const DATA = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);

// Columns come as base64 of little-endian float64: half the bytes of text, and ready to plot.
function decodeColumn(text) {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return new Float64Array(bytes.buffer);
}

const TABLE = {
  keys: DATA.table.keys,
  short: DATA.table.short || DATA.table.keys,
  words: DATA.table.words,
  columns: Object.fromEntries(Object.entries(DATA.table.columns).map(([name, text]) => [name, decodeColumn(text)])),
  front: new Set(DATA.table.front),
  baseline: DATA.table.baseline,
  chosen: DATA.table.chosen,
};
const RENDER = { selected: TABLE.chosen, listeners: [] };

function select(row) {
  if (row === null || row < 0 || row === RENDER.selected) return;
  RENDER.selected = row;
  for (const listener of RENDER.listeners) listener(row);
}

function measureOf(name) {
  return DATA.measures[name] || { label: name, unit: "", higher: true, cost: false, digits: 2 };
}

function signed(text, value) {
  return (value > 0 ? "+" : "") + text;
}

function fixed(value, digits) {
  const text = value.toFixed(digits);
  return Number(text) === 0 ? text.replace("-", "") : text.replace("-", "−");
}

function scaled(value, steps) {
  for (const [factor, unit] of steps) {
    if (Math.abs(value) >= factor) return Number((value / factor).toPrecision(3)).toString().replace("-", "−") + " " + unit;
  }
  return fixed(value, 0) + (steps === BYTES ? " B" : "");
}

const BYTES = [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "B"]];
const COUNTS = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];

function show(name, value, withUnit = true) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const m = measureOf(name);
  if (m.unit === "B") return scaled(value, BYTES);
  if (m.digits === 0 && !m.unit) return scaled(value, COUNTS);
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  return fixed(value, m.digits) + (withUnit && m.unit && m.unit !== "%" ? " " + m.unit : "");
}

function showDifference(name, value) {
  if (!Number.isFinite(value)) return "–";
  return signed(show(name, value), value);
}

function element(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === "class") node.className = value;
    else if (name === "text") node.textContent = value;
    else node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

function chip(code, extra) {
  const p = DATA.precisions[code];
  return element("span", { class: "chip " + (p ? p.base : "") + (extra || ""), text: code, title: p ? p.name : code });
}

// ---- files for the reader: made here, from what the page holds

function save(name, text, type) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = element("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

function csvCell(value) {
  let text = value === null || (typeof value === "number" && Number.isNaN(value)) ? "" : String(value);
  // A cell that begins like a formula must not become one in a spreadsheet.
  if (typeof value === "string" && /^[=+\-@\t\r]/.test(text)) text = "'" + text;
  return /[",\n\r]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text;
}

function columnsOf(name) {
  if (name !== "front") return DATA.figures[name];
  const front = TABLE.keys.map((_, row) => TABLE.front.has(row));
  const columns = { precision: TABLE.keys, front };
  for (const [column, values] of Object.entries(TABLE.columns)) {
    columns[column] = Array.from(values, (v) => (Number.isFinite(v) ? v : null));
  }
  return columns;
}

function saveFigure(name, format) {
  const columns = columnsOf(name);
  if (format === "json") return save(name + ".json", JSON.stringify(columns, null, 1) + "\n", "application/json");
  const names = Object.keys(columns);
  const lines = [names.map(csvCell).join(",")];
  const count = names.length ? columns[names[0]].length : 0;
  for (let row = 0; row < count; row++) lines.push(names.map((n) => csvCell(columns[n][row])).join(","));
  return save(name + ".csv", lines.join("\n") + "\n", "text/csv");
}
