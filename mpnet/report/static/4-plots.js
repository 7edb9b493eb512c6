// Plots: drawn by Plotly when they come near the screen, redrawn when the colours change.
"use strict";

// whole: the front's plot also shows the configurations that are not on the front.
const PLOTS = { drawn: new Map(), ready: null, whole: false };
// Up to here SVG marks are as quick as WebGL and do not need a graphics context.
const SVG_POINTS = 5000;

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim() || "#888";
}

// Plotly reads a subset of HTML in its texts; names from files are shown as they are.
function plain(text) {
  return String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replace(/[\r\n]+/g, " ");
}

function shortened(text, length = 22) {
  const all = plain(text);
  return text.length > length ? plain(text.slice(0, length - 1)) + "…" : all;
}

function layout(title, x, y, extra) {
  const axis = { gridcolor: colour("line"), zerolinecolor: colour("muted"), linecolor: colour("muted"), automargin: true, exponentformat: "SI" };
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", autosize: true,
    font: { color: colour("text"), family: getComputedStyle(document.body).fontFamily, size: 12 },
    margin: { l: 56, r: 12, t: 12, b: 48 }, hovermode: "closest", dragmode: "pan",
    hoverlabel: { bgcolor: colour("card"), bordercolor: colour("muted"), font: { color: colour("text") } },
    legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0, font: { color: colour("text") } },
    xaxis: { ...axis, title: { text: plain(x) } }, yaxis: { ...axis, title: { text: plain(y) } }, ...extra,
  };
}

const CONFIG = { displaylogo: false, responsive: true, scrollZoom: false, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"], doubleClick: "reset" };

// ---- the front

function frontRows(x, y) {
  // The front as stored holds for the stored pair of axes; for another pair it is found again.
  const known = [];
  for (let row = 0; row < TABLE.keys.length; row++) if (Number.isFinite(x[row]) && Number.isFinite(y[row])) known.push(row);
  return known;
}

function betterFirst(name) {
  return measureOf(name).higher ? -1 : 1;
}

function currentFront(xName, yName) {
  const x = TABLE.columns[xName], y = TABLE.columns[yName];
  const rows = frontRows(x, y);
  const sx = betterFirst(xName), sy = betterFirst(yName);
  rows.sort((a, b) => sx * (x[a] - x[b]) || sy * (y[a] - y[b]));
  const front = [];
  let best = Infinity;
  for (const row of rows) {
    const last = front[front.length - 1];
    if (sy * y[row] < best) {
      front.push(row);
      best = sy * y[row];
    } else if (last !== undefined && y[row] === y[last] && x[row] === x[last]) front.push(row);
  }
  return front;
}

function hoverText(row) {
  const parts = [`<b>${plain(TABLE.keys[row])}</b>`];
  for (const name of DATA.hover) {
    const value = TABLE.columns[name][row];
    if (!Number.isNaN(value)) parts.push(`${plain(measureOf(name).label)} ${plain(show(name, value))}`);
  }
  return parts.join("<br>");
}

function axisTitle(name) {
  const m = measureOf(name);
  return m.label + (m.unit && m.unit !== "%" ? ` (${m.unit})` : "");
}

function frontTraces() {
  const xName = byId("front-x").value, yName = byId("front-y").value;
  const x = TABLE.columns[xName], y = TABLE.columns[yName];
  const front = currentFront(xName, yName);
  const onFront = new Set(front);
  const rest = PLOTS.whole ? frontRows(x, y).filter((row) => !onFront.has(row)) : [];
  const pick = (rows, values) => Float64Array.from(rows, (row) => values[row]);
  const trace = (name, rows, extra) => ({
    name, x: pick(rows, x), y: pick(rows, y), customdata: rows, text: rows.map(hoverText), hovertemplate: "%{text}<extra></extra>", ...extra,
  });
  const traces = [trace("measured", rest, {
    type: rest.length > SVG_POINTS ? "scattergl" : "scatter", mode: "markers",
    marker: { size: 5, color: colour("muted"), opacity: 0.45 },
  })];
  const whiskers = front.map((row) => (DATA.intervals[row] || {})[yName]);
  const start = TABLE.baseline === null ? NaN : y[TABLE.baseline];
  traces.push(trace("front", front, {
    type: "scatter", mode: "lines+markers", line: { color: colour("accent"), width: 1.5, shape: sxShape(xName) }, marker: { size: 8, color: colour("accent") },
    error_y: whiskers.some(Boolean) ? {
      type: "data", symmetric: false, thickness: 1, width: 3, color: colour("accent"),
      array: whiskers.map((w, i) => (w ? start + w[2] - y[front[i]] : 0)), arrayminus: whiskers.map((w, i) => (w ? y[front[i]] - start - w[1] : 0)),
    } : undefined,
  }));
  if (TABLE.baseline !== null) {
    traces.push(trace("baseline", [TABLE.baseline], { type: "scatter", mode: "markers", marker: { size: 13, symbol: "diamond", color: colour("baseline") } }));
  }
  if (TABLE.chosen !== null) {
    traces.push(trace("chosen", [TABLE.chosen], { type: "scatter", mode: "markers", marker: { size: 13, symbol: "star", color: colour("chosen") } }));
  }
  traces.push(trace("selected", RENDER.selected === null ? [] : [RENDER.selected], {
    type: "scatter", mode: "markers", hoverinfo: "skip", hovertemplate: undefined, marker: { size: 20, symbol: "circle-open", color: colour("chosen"), line: { width: 2.5 } },
  }));
  return traces;
}

function sxShape(xName) {
  return betterFirst(xName) > 0 ? "hv" : "vh";
}

function drawFront(node) {
  const done = Plotly.react(node, frontTraces(), layout("", axisTitle(byId("front-x").value), axisTitle(byId("front-y").value)), CONFIG);
  if (!node.dataset.wired) {
    node.dataset.wired = "1";
    node.on("plotly_click", (event) => {
      const point = event.points.find((p) => p.customdata !== undefined);
      if (point) select(Number(point.customdata));
    });
  }
  return done;
}

function moveSelected(row) {
  const node = PLOTS.drawn.has("front") ? byId("plot-front") : null;
  if (!node) return;
  const x = TABLE.columns[byId("front-x").value], y = TABLE.columns[byId("front-y").value];
  Plotly.restyle(node, { x: [[x[row]]], y: [[y[row]]], customdata: [[row]] }, [node.data.length - 1]);
}

function startFront() {
  const keys = byId("front-keys");
  if (!keys) return;
  for (const id of ["front-x", "front-y"]) byId(id).addEventListener("change", () => redraw("front"));
  keys.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step || event.target !== keys) return;
    event.preventDefault();
    const front = currentFront(byId("front-x").value, byId("front-y").value);
    const x = TABLE.columns[byId("front-x").value];
    front.sort((a, b) => x[a] - x[b]);
    const here = front.indexOf(RENDER.selected);
    select(front[here < 0 ? 0 : Math.min(front.length - 1, Math.max(0, here + step))]);
  });
  RENDER.listeners.push(moveSelected);
}

// ---- all other figures

function barsTraces(figure) {
  return figure.series.map((s) => ({
    type: "bar", name: plain(s.name), x: s.x.map((_, i) => i), y: s.y, customdata: s.x.map(plain),
    hovertemplate: "%{customdata}<br>%{y}<extra>" + plain(s.name) + "</extra>", marker: { color: colour(s.colour) },
    error_y: s.low ? { type: "data", symmetric: false, array: s.high.map((v, i) => v - s.y[i]), arrayminus: s.low.map((v, i) => s.y[i] - v), color: colour("text"), thickness: 1, width: 2 } : undefined,
  }));
}

function drawBars(node, figure) {
  // Positions are numbers and names their tick texts, so that two layers of one name stay two bars.
  const names = figure.series[0].x;
  const axis = { tickvals: names.map((_, i) => i), ticktext: names.map((n) => shortened(n, 16)), tickangle: names.length > 6 ? -45 : 0, title: undefined, showgrid: false, zeroline: false };
  const plan = layout("", "", figure.y_label, { barmode: "group", bargap: 0.25 });
  plan.xaxis = { ...plan.xaxis, ...axis };
  if (figure.log_y) plan.yaxis.type = "log";
  return Plotly.react(node, barsTraces(figure), plan, CONFIG);
}

function drawHeat(node, figure) {
  const codes = Object.keys(DATA.precisions);
  const count = Math.max(codes.length, 2);
  const scale = [];
  codes.forEach((code, i) => {
    const c = colour(DATA.precisions[code].base + ("fhq".includes(code) ? "" : "-light"));
    scale.push([i / count, c], [(i + 1) / count, c]);
  });
  if (codes.length === 1) scale.push([0.5, scale[1][1]], [1, scale[1][1]]);
  const z = figure.cells.map((key) => figure.categories.map((_, place) => codes.indexOf(key[place])));
  const text = figure.cells.map((key) => figure.categories.map((_, place) => (DATA.precisions[key[place]] || {}).name || key[place]));
  const plan = layout("", "", figure.y_label, { margin: { l: 56, r: 12, t: 12, b: 60 } });
  plan.xaxis = { ...plan.xaxis, tickvals: figure.categories.map((_, i) => i), ticktext: figure.categories.map((n) => shortened(n, 16)), tickangle: -45, title: undefined, showgrid: false };
  plan.yaxis = { ...plan.yaxis, autorange: "reversed", showticklabels: false, showgrid: false, zeroline: false };
  const gap = figure.cells.length < 60 ? 1 : 0;
  const done = Plotly.react(node, [{
    type: "heatmap", z, text, customdata: figure.cells.map((key) => figure.categories.map(() => plain(key))), zmin: -0.5, zmax: count - 0.5, colorscale: scale, showscale: false,
    xgap: 1, ygap: gap, hovertemplate: "%{customdata}<br>%{text}<extra></extra>",
  }], plan, CONFIG);
  if (!node.dataset.wired) {
    node.dataset.wired = "1";
    node.on("plotly_click", (event) => {
      const row = TABLE.keys.indexOf(figure.cells[event.points[0].y]);
      if (row >= 0) select(row);
    });
  }
  return done;
}

function draw(name) {
  const node = byId("plot-" + name);
  const figure = DATA.figures[name];
  if (!PLOTS.drawn.has(name)) node.replaceChildren();
  PLOTS.drawn.set(name, true);
  if (name === "front") return drawFront(node);
  return figure.kind === "heat" ? drawHeat(node, figure) : drawBars(node, figure);
}

function redraw(name) {
  if (PLOTS.drawn.has(name)) draw(name);
}

function loadPlotly() {
  // The library is text until the page has been painted once: reading comes before plotting.
  if (PLOTS.ready) return;
  PLOTS.ready = true;
  const source = byId("plotly-source");
  const script = document.createElement("script");
  script.textContent = source.textContent;
  document.body.append(script);
  source.remove();
}

function startPlots() {
  const nodes = [...document.querySelectorAll(".plot")];
  for (const node of nodes) node.style.minHeight = node.style.height = node.dataset.height + "px";
  if (!nodes.length) return finished();
  startFront();
  const watcher = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      watcher.unobserve(entry.target);
      draw(entry.target.dataset.figure);
    }
  }, { rootMargin: "300px" });
  const later = async () => {
    loadPlotly();
    if (byId("plot-front")) {
      // What the reader decides on first; thousands of other points take as long again.
      await draw("front");
      performance.mark("front");
      await new Promise((resolve) => setTimeout(resolve, 0));
      PLOTS.whole = true;
      await draw("front");
    }
    finished();
    for (const node of nodes) if (node.id !== "plot-front") watcher.observe(node);
  };
  // The library is the last thing in the file: before the whole file is read, its text is cut off.
  const painted = () => requestAnimationFrame(() => setTimeout(later, 0));
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", painted);
  else painted();
}

function finished() {
  document.documentElement.dataset.ready = String(Math.round(performance.now()));
}

function saveSvg(name) {
  const node = byId("plot-" + name);
  if (PLOTS.drawn.has(name)) Plotly.downloadImage(node, { format: "svg", filename: name, width: node.clientWidth, height: node.clientHeight });
}
