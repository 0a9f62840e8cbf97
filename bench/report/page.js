"use strict";
for (const section of document.querySelectorAll("section")) {
  const link = document.createElement("a");
  link.href = "#" + section.id;
  link.textContent = section.querySelector("h2").textContent;
  document.getElementById("contents").append(link);
}
function key(row, column) {
  const cell = row.cells[column];
  return "v" in cell.dataset ? Number(cell.dataset.v) : cell.textContent;
}
function sort(header) {
  const body = header.closest("table").tBodies[0];
  const up = header.getAttribute("aria-sort") !== "ascending";
  for (const other of header.parentNode.cells) other.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", up ? "ascending" : "descending");
  const rows = Array.from(body.rows, (row) => [key(row, header.cellIndex), row]);
  rows.sort(([a], [b]) => (typeof a === "number" && typeof b === "number" ? a - b
    : String(a).localeCompare(String(b), undefined, { numeric: true })) * (up ? 1 : -1));
  for (const [, row] of rows) body.append(row);
}
for (const header of document.querySelectorAll("th")) header.querySelector("button").addEventListener("click", () => sort(header));
