// Tables that sort, and every figure's numbers as a table, CSV and JSON.

import { h, save } from "./dom.js";

const ROWS = 100; // shown at first

// A spreadsheet takes a cell that begins like a formula for one.
const cell = (value) => {
  let text = value === null || value === undefined ? "" : String(value);
  if (typeof value === "string" && /^[=+\-@\t\r]/.test(text)) text = `'${text}`;
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
};

export function csv(rows) {
  const names = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  return [names, ...rows.map((row) => names.map((name) => row[name]))].map((line) => line.map(cell).join(",")).join("\n") + "\n";
}

// Buttons that give the numbers of a figure: `rows()` returns them as plain objects.
export function numbers(title, rows) {
  const name = title.toLowerCase().replace(/[^a-z0-9]+/g, "-");
  const place = h("div", { class: "numbers" });
  const shown = h("button", { type: "button", "aria-expanded": "false", onclick: () => {
    const open = shown.getAttribute("aria-expanded") !== "true";
    shown.setAttribute("aria-expanded", String(open));
    place.replaceChildren(...(open ? [plain(rows(), title)] : []));
  } }, "table");
  return [h("div", { class: "buttons" }, shown,
    h("button", { type: "button", onclick: () => save(`${name}.csv`, csv(rows()), "text/csv"), "aria-label": `${title} as CSV` }, "CSV"),
    h("button", { type: "button", onclick: () => save(`${name}.json`, JSON.stringify(rows(), null, 1), "application/json"),
      "aria-label": `${title} as JSON` }, "JSON")), place];
}

function plain(rows, title) {
  if (!rows.length) return h("p", { class: "dim" }, "nothing yet");
  const columns = Object.keys(rows[0]).map((name) => ({ name, title: name, number: rows.some((row) => typeof row[name] === "number") }));
  return sortable({ title, columns, rows });
}

// columns: {name, title, number, show(row) -> text or node}; rows: plain objects. Returns an element with .update(rows).
export function sortable({ title, columns, rows, sorted = null, down = true, key = null, chosen = null }) {
  let all = false;
  const body = h("tbody"), more = h("button", { type: "button", class: "more" });
  const heads = columns.map((column) => {
    const button = h("button", { type: "button", onclick: () => {
      down = sorted === column.name ? !down : Boolean(column.number);
      sorted = column.name;
      draw();
    } }, column.title);
    return h("th", { scope: "col", class: column.number ? "number" : null }, button);
  });
  more.addEventListener("click", () => { all = true; draw(); });

  function draw() {
    const found = [...rows];
    if (sorted) {
      const order = (one, other) => {
        const [a, b] = [one[sorted], other[sorted]];
        if (a === b) return 0;
        if (a === null || a === undefined) return 1;
        if (b === null || b === undefined) return -1;
        return (a < b ? -1 : 1) * (down ? -1 : 1);
      };
      found.sort(order);
    }
    columns.forEach((column, place) => heads[place].setAttribute(
      "aria-sort", column.name !== sorted ? "none" : down ? "descending" : "ascending"));
    const shown = all ? found : found.slice(0, ROWS);
    body.replaceChildren(...shown.map((row) => h("tr", {
      class: chosen !== null && chosen(row) ? "chosen" : null, "data-key": key ? row[key] : null,
    }, columns.map((column, place) => h(place ? "td" : "th", {
      class: column.number ? "number" : null, scope: place ? null : "row",
    }, column.show ? column.show(row) : row[column.name] ?? "")))));
    more.hidden = shown.length === found.length;
    more.textContent = `show all ${found.length}`;
  }
  const element = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": title },
    h("table", {}, h("thead", {}, h("tr", {}, heads)), body), more);
  element.update = (given) => { rows = given; draw(); };
  draw();
  return element;
}

// A section of a page with a heading, what it shows, and its numbers.
export function panel(title, content, rows = null, note = null) {
  const id = `p-${title.toLowerCase().replace(/[^a-z0-9]+/g, "-")}`;
  return h("section", { class: "panel", "aria-labelledby": id },
    h("h2", { id }, title), note && h("p", { class: "dim" }, note), content, rows && numbers(title, rows));
}
