// Tables: every one sorts by its header buttons; the table of configurations is drawn page by page.
"use strict";

function sortValue(cell) {
  const text = cell.dataset.sort !== undefined ? cell.dataset.sort : cell.textContent.trim();
  const number = Number(text.replaceAll(",", "").replace("−", "-"));
  return text !== "" && !Number.isNaN(number) ? number : text;
}

// Numbers before words, empty cells last in both directions.
function compare(a, b, direction) {
  const emptyA = a === "" || a === "–" || a === "-" || a === null || Number.isNaN(a);
  const emptyB = b === "" || b === "–" || b === "-" || b === null || Number.isNaN(b);
  if (emptyA || emptyB) return emptyA - emptyB;
  if (typeof a === "number" && typeof b === "number") return direction * (a - b);
  if (typeof a === "number") return -1;
  if (typeof b === "number") return 1;
  return direction * a.localeCompare(b, undefined, { numeric: true });
}

function headerButton(header, sort) {
  const button = element("button", { type: "button", text: header.textContent });
  header.textContent = "";
  header.append(button);
  button.addEventListener("click", () => {
    const direction = header.getAttribute("aria-sort") === "ascending" ? -1 : 1;
    for (const other of header.parentElement.children) other.removeAttribute("aria-sort");
    header.setAttribute("aria-sort", direction > 0 ? "ascending" : "descending");
    sort(direction);
  });
}

function makeSortable(table) {
  const body = table.tBodies[0];
  [...table.tHead.rows[0].cells].forEach((header, column) => {
    headerButton(header, (direction) => {
      const rows = [...body.rows].map((row, place) => ({ row, place, value: sortValue(row.cells[column]) }));
      rows.sort((a, b) => compare(a.value, b.value, direction) || a.place - b.place);
      body.append(...rows.map((r) => r.row));
    });
  });
}

const PAGE = 25;
const LIST = { rows: [], page: 0, sort: null, direction: 1 };

function matcher(text) {
  if (!text) return () => true;
  const pattern = new RegExp(text.replace(/[.*+^${}()|[\]\\]/g, "\\$&").replaceAll("?", "."));
  return (key) => pattern.test(key);
}

function listRows() {
  const all = byId("rows-filter").value === "all";
  const fits = matcher(byId("rows-find").value.trim());
  LIST.rows = [];
  for (let row = 0; row < TABLE.keys.length; row++) {
    const marked = TABLE.front.has(row) || row === TABLE.baseline || row === TABLE.chosen;
    if ((all || marked) && fits(TABLE.keys[row])) LIST.rows.push(row);
  }
  const name = LIST.sort;
  const values = name === "precision" ? TABLE.keys : TABLE.columns[name];
  if (values) LIST.rows.sort((a, b) => compare(values[a], values[b], LIST.direction) || a - b);
  LIST.page = 0;
  drawRows();
}

function drawRows() {
  const body = byId("table-configurations").tBodies[0];
  const names = Object.keys(TABLE.columns);
  const first = LIST.page * PAGE;
  const rows = LIST.rows.slice(first, first + PAGE).map((row) => {
    const button = element("button", { type: "button", class: "row", text: TABLE.short[row], title: TABLE.keys[row] });
    const mark = row === TABLE.baseline ? " baseline" : row === TABLE.chosen ? " chosen" : TABLE.front.has(row) ? " front" : "";
    const line = element("tr", { "data-row": row }, element("td", {}, button, element("small", { text: mark })));
    for (const name of names) line.append(element("td", { text: show(name, TABLE.columns[name][row]) }));
    if (row === RENDER.selected) line.className = "selected";
    return line;
  });
  body.replaceChildren(...rows);
  const last = Math.min(first + PAGE, LIST.rows.length);
  byId("rows-said").textContent = LIST.rows.length ? `${first + 1} to ${last} of ${LIST.rows.length.toLocaleString("en")}` : "none fits";
  byId("rows-previous").disabled = first === 0;
  byId("rows-next").disabled = last >= LIST.rows.length;
}

function startConfigurations() {
  const table = byId("table-configurations");
  if (!table) return;
  const header = element("tr");
  for (const name of ["precision", ...Object.keys(TABLE.columns)]) {
    const cell = element("th", { scope: "col", text: name === "precision" ? name : measureOf(name).label, title: measureOf(name).means || "" });
    headerButton(cell, (direction) => {
      LIST.sort = name;
      LIST.direction = direction;
      listRows();
    });
    header.append(cell);
  }
  table.tHead.append(header);
  table.tBodies[0].addEventListener("click", (event) => {
    const line = event.target.closest("tr");
    if (line) select(Number(line.dataset.row));
  });
  byId("rows-filter").addEventListener("change", listRows);
  byId("rows-find").addEventListener("input", listRows);
  byId("rows-previous").addEventListener("click", () => { LIST.page--; drawRows(); });
  byId("rows-next").addEventListener("click", () => { LIST.page++; drawRows(); });
  RENDER.listeners.push(() => {
    for (const line of table.tBodies[0].rows) line.className = Number(line.dataset.row) === RENDER.selected ? "selected" : "";
  });
  LIST.sort = DATA.table.cost in TABLE.columns ? DATA.table.cost : "precision";
  listRows();
}
