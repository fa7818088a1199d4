// A position: squares where the text of a game is rows of single characters, else the text itself.

import { h } from "./dom.js";

const EMPTY = new Set([".", "-", "_", " "]);

export function board(position) {
  if (!position.board) return h("pre", { class: "position", tabindex: "0" }, position.text || " ");
  const rows = position.board.map((row) => h("tr", {}, [...row].map((one) => h("td", { class: EMPTY.has(one) ? "empty" : `piece p${one.toLowerCase() === "x" ? 0 : one.toLowerCase() === "o" ? 1 : 2}` }, EMPTY.has(one) ? "" : one))));
  return h("div", {}, h("table", { class: "board", "aria-label": "board" }, h("tbody", {}, rows)), h("details", {}, h("summary", {}, "as text"), h("pre", { class: "position" }, position.text)));
}
