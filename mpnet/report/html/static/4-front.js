// The front: axes, points and intervals as SVG, the cloud of all other configurations on a canvas behind them, which needs no
// graphics processor. Until this runs the page shows the same figure as it was written.
"use strict";

const FRONT = { view: null, cloud: [], marks: [], place: null };
const NEAR_MARK = 14, NEAR_CLOUD = 8; // pixels
const NAME_SIZE = 12, NAME_WEIGHT = 600; // of marks
const SVG_NAMESPACE = "http://www.w3.org/2000/svg";

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim() || "#888";
}

function svgNode(tag, attributes, text) {
  const node = document.createElementNS(SVG_NAMESPACE, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== undefined) node.textContent = text;
  return node;
}

function axes() {
  return [byId("front-x").value, byId("front-y").value];
}

function isBetter(name, a, b) {
  return measureOf(name).higher ? a > b : a < b;
}

// Rows that no other row beats in these two, by rising x.
function undominated(rows, xName, yName) {
  const x = TABLE.columns[xName], y = TABLE.columns[yName];
  const sorted = [...rows].sort((a, b) => (x[a] === x[b] ? (isBetter(yName, y[a], y[b]) ? -1 : 1) : isBetter(xName, x[a], x[b]) ? -1 : 1));
  const found = [];
  for (const row of sorted) {
    const last = found[found.length - 1];
    if (last === undefined || isBetter(yName, y[row], y[last]) || (x[row] === x[last] && y[row] === y[last])) found.push(row);
  }
  return found.sort((a, b) => x[a] - x[b]);
}

// As stored for the stored pair of axes, which may be of more than two objectives; for another pair it is found again.
function currentFront(xName, yName) {
  const x = TABLE.columns[xName], y = TABLE.columns[yName];
  const known = (row) => Number.isFinite(x[row]) && Number.isFinite(y[row]);
  if (xName === DATA.table.cost && yName === DATA.table.objective && TABLE.front.size) {
    return [...TABLE.front].filter(known).sort((a, b) => x[a] - x[b]);
  }
  const rows = [];
  for (let row = 0; row < TABLE.keys.length; row++) if (known(row)) rows.push(row);
  return undominated(rows, xName, yName);
}

function ticks(low, high, about) {
  const rough = (high - low) / about;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((f) => f * power).find((s) => s >= rough);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i <= Math.floor(high / step + 1e-9); i++) found.push(i * step);
  return found;
}

// Of a logarithmic axis, which goes from 10 ** low to 10 ** high: 1, 2 and 5 times powers of ten, or as of another where it shows
// less than two of them.
function logTicks(low, high, about) {
  const found = [];
  for (let power = Math.floor(low); power <= high; power++) for (const step of [1, 2, 5]) found.push(step * 10 ** power);
  const shown = found.filter((value) => value >= 10 ** low && value <= 10 ** high);
  return shown.length < 2 ? ticks(10 ** low, 10 ** high, about) : shown.length > 2 * about ? shown.filter((value) => Number.isInteger(Math.log10(value))) : shown;
}

function tickText(value) {
  for (const [factor, unit] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (Math.abs(value) >= factor) return Number((value / factor).toPrecision(6)) + unit;
  }
  return String(Number(value.toPrecision(6)));
}

function bounds(row, name) {
  const interval = (DATA.intervals[row] || {})[name];
  if (!interval || TABLE.baseline === null) return null;
  const start = TABLE.columns[name][TABLE.baseline];
  return [start + interval[1], start + interval[2]];
}

function span(values) {
  let low = Infinity, high = -Infinity;
  for (const value of values) if (Number.isFinite(value)) { low = Math.min(low, value); high = Math.max(high, value); }
  if (low > high) return [0, 1];
  const room = (high - low) * 0.06 || Math.abs(high) * 0.05 || 1;
  return [low - room, high + room];
}

// What stands out: name and row; picks of one row share a mark.
function named() {
  const found = [];
  if (TABLE.baseline !== null) found.push({ name: "baseline", row: TABLE.baseline, shape: "diamond" });
  for (const { name, row } of DATA.picks) {
    const same = found.find((mark) => mark.row === row && mark.shape === "star");
    if (same) same.name += ", " + name;
    else found.push({ name, row, shape: "star" });
  }
  if (TABLE.chosen !== null && TABLE.chosen !== TABLE.baseline && !found.some((mark) => mark.row === TABLE.chosen)) found.push({ name: DATA.mark, row: TABLE.chosen, shape: "star" });
  return found;
}

const SHAPES = {
  diamond: (x, y) => `M${x} ${y - 8}l8 8l-8 8l-8 -8z`,
  star: (x, y) => "M" + Array.from({ length: 10 }, (_, i) => {
    const radius = i % 2 ? 4 : 9, angle = Math.PI * (i / 5 - 0.5);
    return `${(x + radius * Math.cos(angle)).toFixed(2)} ${(y + radius * Math.sin(angle)).toFixed(2)}`;
  }).join("L") + "z",
};

function textWidth(text) {
  const pen = document.createElement("canvas").getContext("2d");
  if (!pen) return 0.6 * NAME_SIZE * text.length;
  pen.font = `${NAME_WEIGHT} ${NAME_SIZE}px ${getComputedStyle(document.body).fontFamily}`;
  return pen.measureText(text).width;
}

// [x, y, anchor] of the name of each mark [x, y, width of the name]: aside of it, below or above, lines further away where it
// would cover a mark or another name, or leave the frame; clear of the front's points [x, y] as well where there is such a place.
function namePlaces(marks, points, frame) {
  const around = (places, room) => places.map(([x, y]) => [x - room, y - room, x + room, y + room]);
  const taken = around(marks, 9), dots = around(points, 5);
  const over = ([a, b, c, d]) => ([left, top, right, bottom]) => a < right && left < c && b < bottom && top < d;
  const free = (box) => box[0] >= frame.left && box[1] >= frame.top && box[2] <= frame.right && box[3] <= frame.bottom && !taken.some(over(box));
  return marks.map(([x, y, wide]) => {
    const near = x > (frame.left + frame.right) / 2 ? -1 : 1, places = [];
    for (let line = 0; line < frame.bottom; line += 15) {
      for (const side of [near, -near]) for (const down of [20 + line, -11 - line]) places.push([x + 11 * side, y + down, side]);
    }
    const boxes = places.map(([a, b, side]) => [a - (side < 0 ? wide : 0) - 3, b - 11, a + (side > 0 ? wide : 0) + 3, b + 4]);
    const clear = boxes.findIndex((box) => free(box) && !dots.some(over(box)));
    const best = clear >= 0 ? clear : Math.max(0, boxes.findIndex(free));
    taken.push(boxes[best]);
    const [left, base, side] = places[best];
    return [left, base, side < 0 ? "end" : "start"];
  });
}

function drawAxes(svg, frame, view, xName, yName) {
  const { left, right, top, bottom } = frame;
  const text = (x, y, words, anchor, extra) => svg.append(svgNode("text", { x, y, "text-anchor": anchor, "font-size": 11, fill: "var(--text)", ...extra }, words));
  for (const value of ticks(...view.y, 6)) {
    const y = frame.y(value).toFixed(1);
    svg.append(svgNode("path", { d: `M${left} ${y}H${right}`, stroke: "var(--line)" }));
    text(left - 6, Number(y) + 4, tickText(value), "end");
  }
  for (const value of (frame.log ? logTicks : ticks)(...view.x, Math.max(5, (right - left) / 100))) {
    const x = frame.x(frame.along(value)).toFixed(1);
    svg.append(svgNode("path", { d: `M${x} ${bottom}v4`, stroke: "var(--muted)" }));
    text(x, bottom + 17, tickText(value), "middle");
  }
  svg.append(svgNode("path", { d: `M${left} ${top}V${bottom}H${right}`, stroke: "var(--muted)", fill: "none" }));
  const title = (name) => measureOf(name).label + (measureOf(name).unit && measureOf(name).unit !== "%" ? ` (${measureOf(name).unit})` : "");
  text((left + right) / 2, bottom + 36, title(xName), "middle", { "font-size": 12 });
  text(13, (top + bottom) / 2, title(yName), "middle", { "font-size": 12, transform: `rotate(-90 13 ${(top + bottom) / 2})` });
}

function drawFront() {
  const node = byId("plot-front");
  if (!node || node.clientWidth < 100) return; // hidden, as on paper
  const [xName, yName] = axes();
  const x = TABLE.columns[xName], y = TABLE.columns[yName];
  const front = currentFront(xName, yName), onFront = new Set(front);
  const marks = named().filter(({ row }) => Number.isFinite(x[row]) && Number.isFinite(y[row]));
  FRONT.cloud = [];
  if (byId("front-range").value === "all") {
    for (let row = 0; row < TABLE.keys.length; row++) if (!onFront.has(row) && Number.isFinite(x[row]) && Number.isFinite(y[row])) FRONT.cloud.push(row);
  }
  const shown = [...front, ...marks.map((mark) => mark.row)];
  const values = [...shown, ...FRONT.cloud].map((row) => x[row]);
  const least = values.reduce((a, b) => Math.min(a, b), Infinity), most = values.reduce((a, b) => Math.max(a, b), -Infinity);
  const log = least > 0 && most >= 10 * least; // what spans a decade would crowd at one end
  const along = (value) => (log ? Math.log10(value) : value);
  const view = FRONT.view || {
    x: span(values.map(along)),
    y: span([...[...shown, ...FRONT.cloud].map((row) => y[row]), ...front.flatMap((row) => bounds(row, yName) || [])]),
  };
  const width = node.clientWidth, height = node.clientHeight;
  const frame = { left: 58, right: width - 14, top: 12, bottom: height - 46, log, along };
  frame.x = (value) => frame.left + ((value - view.x[0]) / (view.x[1] - view.x[0])) * (frame.right - frame.left);
  frame.y = (value) => frame.bottom - ((value - view.y[0]) / (view.y[1] - view.y[0])) * (frame.bottom - frame.top);
  const inside = (row) => along(x[row]) >= view.x[0] && along(x[row]) <= view.x[1] && y[row] >= view.y[0] && y[row] <= view.y[1];
  FRONT.marks = shown.filter(inside);
  FRONT.cloud = FRONT.cloud.filter(inside);
  FRONT.place = (row) => [frame.x(along(x[row])), frame.y(y[row])];
  FRONT.frame = frame;
  FRONT.shownView = view;

  const svg = svgNode("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": `${measureOf(yName).label} against ${measureOf(xName).label}` });
  drawAxes(svg, frame, view, xName, yName);
  const clip = svgNode("clipPath", { id: "front-clip" });
  clip.append(svgNode("rect", { x: frame.left - 10, y: frame.top - 10, width: frame.right - frame.left + 20, height: frame.bottom - frame.top + 20 }));
  const points = svgNode("g", { "clip-path": "url(#front-clip)", id: "front-points" });
  svg.append(clip, points);
  const line = undominated(front, xName, yName);
  const across = measureOf(xName).higher;
  const steps = line.map((row, i) => {
    const [px, py] = FRONT.place(row).map((v) => v.toFixed(1));
    return i === 0 ? `M${px} ${py}` : across ? `V${py}H${px}` : `H${px}V${py}`;
  }).join("");
  if (line.length > 1) points.append(svgNode("path", { d: steps, stroke: "var(--accent)", "stroke-width": 1.5, fill: "none" }));
  for (const row of front) {
    const [px, py] = FRONT.place(row).map((v) => v.toFixed(1));
    const ends = bounds(row, yName);
    if (ends) {
      const [low, high] = ends.map((value) => frame.y(value).toFixed(1));
      points.append(svgNode("path", { d: `M${px} ${low}V${high}m-3 0h6M${px - 3} ${low}h6`, stroke: "var(--accent)", fill: "none", class: "whisker" }));
    }
    points.append(svgNode("circle", { cx: px, cy: py, r: 4, fill: "var(--accent)", class: "point", "data-row": row }));
  }
  for (const mark of marks) {
    points.append(svgNode("path", { d: SHAPES[mark.shape](...FRONT.place(mark.row)), fill: mark.shape === "star" ? "var(--chosen)" : "var(--baseline)", class: "mark", "data-row": mark.row }));
  }
  const shownMarks = marks.filter((mark) => inside(mark.row));
  namePlaces(shownMarks.map((mark) => [...FRONT.place(mark.row), textWidth(mark.name)]), front.map(FRONT.place), frame).forEach(([x, y, anchor], i) => {
    points.append(svgNode("text", { x, y, "text-anchor": anchor, "font-size": NAME_SIZE, "font-weight": NAME_WEIGHT, fill: "var(--text)", stroke: "var(--card)", "stroke-width": 3, "paint-order": "stroke" }, shownMarks[i].name));
  });
  points.append(svgNode("circle", { r: 11, fill: "none", stroke: "var(--chosen)", "stroke-width": 2.5, id: "front-selected" }));
  const canvas = element("canvas", { "aria-hidden": "true" });
  node.replaceChildren(canvas, svg, element("div", { class: "tip", hidden: "" }));
  drawCloud(canvas, width, height);
  moveSelected(RENDER.selected);
  byId("front-whole").hidden = FRONT.view === null;
  const pictures = measureOf(yName).pictures;
  byId("front-means").textContent = `${measureOf(yName).label}${pictures ? ` (on ${pictures})` : ""}: ${measureOf(yName).means || ""} ${measureOf(xName).label}: ${measureOf(xName).means || ""}`;
}

function drawCloud(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  const pen = canvas.getContext("2d");
  if (!pen) return;
  pen.scale(ratio, ratio);
  pen.fillStyle = colour("muted");
  pen.globalAlpha = 0.45;
  for (const row of FRONT.cloud) {
    const [px, py] = FRONT.place(row);
    pen.fillRect(px - 2, py - 2, 4, 4);
  }
}

function moveSelected(row) {
  const ring = byId("front-selected");
  if (!ring || row === null) return;
  const [px, py] = FRONT.place(row);
  const there = Number.isFinite(px) && Number.isFinite(py);
  ring.setAttribute("visibility", there ? "visible" : "hidden");
  if (!there) return;
  ring.setAttribute("cx", px);
  ring.setAttribute("cy", py);
}

function rowAt(px, py) {
  const nearest = (rows, limit) => {
    let best = null, least = limit ** 2;
    for (const row of rows) {
      const [x, y] = FRONT.place(row);
      const away = (x - px) ** 2 + (y - py) ** 2;
      if (away < least) { best = row; least = away; }
    }
    return best;
  };
  const mark = nearest(FRONT.marks, NEAR_MARK);
  return mark === null ? nearest(FRONT.cloud, NEAR_CLOUD) : mark;
}

function pointAt(event) {
  const box = byId("plot-front").getBoundingClientRect();
  return [event.clientX - box.left, event.clientY - box.top];
}

function showTip(row) {
  const node = byId("plot-front"), tip = node.querySelector(".tip");
  tip.hidden = row === null;
  node.style.cursor = row === null ? "crosshair" : "pointer";
  if (row === null) return;
  const lines = [element("b", { text: TABLE.short[row] })];
  if (TABLE.words[row]) lines.unshift(element("span", { text: TABLE.words[row] }));
  for (const name of DATA.hover) {
    const value = TABLE.columns[name][row];
    if (!Number.isNaN(value)) lines.push(element("span", { text: `${measureOf(name).label} ${show(name, value)}` }));
  }
  tip.replaceChildren(...lines);
  const [x, y] = FRONT.place(row);
  tip.style.left = Math.max(0, Math.min(x + 14, node.clientWidth - tip.offsetWidth - 4)) + "px";
  tip.style.top = Math.max(0, Math.min(y + 14, node.clientHeight - tip.offsetHeight - 4)) + "px";
}

// A rectangle dragged with a mouse is enlarged; fingers scroll the page.
function zoomTo(from, to) {
  const { frame, shownView: view } = FRONT;
  const back = (value, low, high, [a, b]) => a + ((value - low) / (high - low)) * (b - a);
  const xs = [from[0], to[0]].map((v) => back(Math.min(Math.max(v, frame.left), frame.right), frame.left, frame.right, view.x)).sort((a, b) => a - b);
  const ys = [from[1], to[1]].map((v) => back(Math.min(Math.max(v, frame.top), frame.bottom), frame.bottom, frame.top, view.y)).sort((a, b) => a - b);
  if (xs[0] < xs[1] && ys[0] < ys[1]) FRONT.view = { x: xs, y: ys };
  drawFront();
}

function wirePointer(node) {
  let from = null, box = null;
  node.addEventListener("pointerdown", (event) => { if (event.pointerType === "mouse" && event.button === 0) from = pointAt(event); });
  node.addEventListener("pointermove", (event) => {
    const at = pointAt(event);
    if (!from || Math.hypot(at[0] - from[0], at[1] - from[1]) < 8) return showTip(rowAt(...at));
    if (!box) { node.setPointerCapture(event.pointerId); box = element("div", { class: "zoom" }); node.append(box); }
    showTip(null);
    Object.assign(box.style, { left: Math.min(from[0], at[0]) + "px", top: Math.min(from[1], at[1]) + "px", width: Math.abs(at[0] - from[0]) + "px", height: Math.abs(at[1] - from[1]) + "px" });
  });
  node.addEventListener("pointerup", (event) => {
    if (box) zoomTo(from, pointAt(event));
    else {
      const row = rowAt(...pointAt(event));
      if (row !== null) select(row);
      if (event.pointerType !== "mouse") showTip(row);
    }
    from = box = null;
  });
  node.addEventListener("pointerleave", () => { if (!box) { from = null; showTip(null); } });
  node.addEventListener("dblclick", () => wholeView());
}

function wholeView() {
  FRONT.view = null;
  drawFront();
}

function startFront() {
  const node = byId("plot-front");
  if (!node) return;
  for (const id of ["front-x", "front-y", "front-range"]) byId(id).addEventListener("change", wholeView);
  byId("front-whole").addEventListener("click", wholeView);
  wirePointer(node);
  const keys = byId("front-keys");
  keys.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step || event.target !== keys) return;
    event.preventDefault();
    const front = currentFront(...axes());
    const here = front.indexOf(RENDER.selected);
    select(front[here < 0 ? 0 : Math.min(front.length - 1, Math.max(0, here + step))]);
  });
  RENDER.listeners.push(moveSelected);
  drawFront();
  let width = node.clientWidth;
  new ResizeObserver(() => { if (node.clientWidth !== width) { width = node.clientWidth; drawFront(); } }).observe(node);
}

// A figure as a file of its own: colours as they are now, the cloud as circles.
function saveSvg(name) {
  const svg = byId("plot-" + name).querySelector("svg").cloneNode(true);
  svg.setAttribute("xmlns", SVG_NAMESPACE);
  svg.setAttribute("font-family", getComputedStyle(document.body).fontFamily);
  if (name === "front") {
    const cloud = svgNode("g", { fill: "var(--muted)", "fill-opacity": 0.45 });
    for (const row of FRONT.cloud) {
      const [cx, cy] = FRONT.place(row).map((v) => v.toFixed(1));
      cloud.append(svgNode("circle", { cx, cy, r: 2 }));
    }
    svg.prepend(cloud);
  }
  const text = new XMLSerializer().serializeToString(svg).replace(/var\(--([\w-]+)\)/g, (_, role) => colour(role));
  save(name + ".svg", text + "\n", "image/svg+xml");
}
