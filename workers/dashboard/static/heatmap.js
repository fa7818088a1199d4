// The payoff of all players as a heat map: orange where the row's player loses, blue where it wins, by lightness too.
// Hover, touch or the arrow keys say what a cell holds; Enter or a click opens it.

import { h, percent, number } from "./dom.js";
import { numbers } from "./table.js";

export const NEVER = 0xffff;
const STOPS = [[179, 80, 10], [232, 160, 102], [247, 247, 247], [107, 166, 214], [11, 79, 138]];

export function colour(rate) {
  const at = Math.max(0, Math.min(4, 4 * rate)), low = Math.min(3, Math.floor(at)), part = at - low;
  return STOPS[low].map((value, channel) => Math.round(value + part * (STOPS[low + 1][channel] - value)));
}

export function wilson(rate, games) {
  if (!games) return null;
  const z = 1.96, middle = (rate + (z * z) / (2 * games)) / (1 + (z * z) / games);
  const reach = (z / (1 + (z * z) / games)) * Math.sqrt((rate * (1 - rate)) / games + (z * z) / (4 * games * games));
  return [Math.max(0, middle - reach), Math.min(1, middle + reach)];
}

const unpack = (text, kind) => new kind(Uint8Array.from(atob(text), (one) => one.charCodeAt(0)).buffer);

// players: [{slot, player, state}] in the order of rows. The element has .update(payoff, players), .cells(list), .choose(name).
export function heatMap({ title, open, describe }) {
  let slots = 0, rates = new Uint16Array(), games = new Float32Array(), players = [], at = null, chosen = null, side = 10, margin = 0;
  const canvas = h("canvas", { tabindex: "0", role: "img", "aria-label": `${title}: the arrow keys move, Enter opens a cell` });
  const said = h("output", { class: "said", "aria-live": "polite" });
  const rows = () => players.flatMap((row) => players.map((column) => {
    const place = row.slot * slots + column.slot, rate = rates[place] === NEVER ? null : rates[place] / 65534;
    const [lower, upper] = rate === null ? [null, null] : wilson(rate, games[place]);
    return { row: row.player, column: column.player, "win rate": rate === null ? null : Number(rate.toFixed(4)), games: Number(games[place].toFixed(2)), lower: lower && Number(lower.toFixed(4)), upper: upper && Number(upper.toFixed(4)) };
  }).filter((one) => one["win rate"] !== null));
  const scale = h("div", { class: "scale", "aria-hidden": "true" }, "loses ", [0, 0.25, 0.5, 0.75, 1].map((rate) => {
    const swatch = h("span", {}, percent(rate));
    swatch.style.background = `rgb(${colour(rate)})`;
    swatch.style.color = Math.abs(rate - 0.5) > 0.3 ? "#fff" : "#000";
    return swatch;
  }), " wins; grey: never met");
  const element = h("figure", { class: "figure" }, h("figcaption", {}, h("h3", {}, title), h("p", { class: "dim" }, "rows against columns, the strongest by Elo first")), h("div", { class: "map" }, canvas), said, scale, numbers(title, rows));

  function draw() {
    const n = players.length, width = Math.max(240, Math.min(element.clientWidth || 600, 760));
    const style = getComputedStyle(element), text = style.getPropertyValue("--text"), never = style.getPropertyValue("--never");
    const labelled = n > 0 && n <= 40;
    const longest = labelled ? Math.max(...players.map((one) => one.player.length)) : 0;
    margin = labelled ? Math.min(0.32 * width, 6.6 * Math.min(longest, 22) + 8) : 0;
    side = Math.max(1, (width - margin) / Math.max(1, n));
    const ratio = devicePixelRatio || 1;
    canvas.width = Math.round((margin + side * n) * ratio);
    canvas.height = Math.round(side * n * ratio);
    canvas.style.width = `${margin + side * n}px`;
    canvas.style.height = `${side * n}px`;
    const pen = canvas.getContext("2d");
    if (!n) return;
    const image = new ImageData(n, n), grey = never.match(/\d+/g)?.map(Number) ?? [200, 200, 200];
    for (let row = 0; row < n; row++) for (let column = 0; column < n; column++) {
      const rate = rates[players[row].slot * slots + players[column].slot];
      image.data.set([...(rate === NEVER ? grey : colour(rate / 65534)), 255], 4 * (row * n + column));
    }
    const small = new OffscreenCanvas(n, n);
    small.getContext("2d").putImageData(image, 0, 0);
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.imageSmoothingEnabled = false;
    pen.drawImage(small, margin, 0, side * n, side * n);
    pen.textBaseline = "middle";
    players.forEach((one, row) => {
      pen.font = `${one.state === "frozen" ? "" : "bold "}${Math.min(12, side + 1)}px sans-serif`;
      pen.fillStyle = text;
      pen.textAlign = "right";
      if (labelled && side >= 7) pen.fillText(one.player.length > 22 ? `${one.player.slice(0, 21)}…` : one.player, margin - 5, (row + 0.5) * side, margin - 6);
      if (side >= 26) players.forEach((other, column) => {
        const rate = rates[one.slot * slots + other.slot];
        if (rate === NEVER) return;
        pen.font = `${Math.min(12, side / 3)}px sans-serif`;
        pen.textAlign = "center";
        pen.fillStyle = Math.abs(rate / 65534 - 0.5) > 0.3 ? "#fff" : "#000";
        pen.fillText(String(Math.round((100 * rate) / 65534)), margin + (column + 0.5) * side, (row + 0.5) * side);
      });
    });
    pen.strokeStyle = text;
    const place = players.findIndex((one) => one.player === chosen);
    if (place >= 0) { pen.lineWidth = 1.5; pen.strokeRect(margin + 0.75, place * side, side * n - 1.5, side); pen.strokeRect(margin + place * side, 0.75, side, side * n - 1.5); }
    if (at) { pen.lineWidth = 3; pen.strokeRect(margin + at[1] * side + 1, at[0] * side + 1, Math.max(3, side - 2), Math.max(3, side - 2)); }
  }
  let later = 0;
  function point(place) {
    at = place;
    requestAnimationFrame(draw);
    clearTimeout(later);
    if (!at) { said.textContent = ""; return; }
    const [row, column] = [players[at[0]], players[at[1]]], cell = row.slot * slots + column.slot;
    if (rates[cell] === NEVER) { said.textContent = `${row.player} and ${column.player} never met`; return; }
    const rate = rates[cell] / 65534, [lower, upper] = wilson(rate, games[cell]);
    const text = `${row.player} against ${column.player}: wins ${percent(rate)} (${percent(lower)} to ${percent(upper)}, 95 %) of ${number(games[cell], 1)} games that still count`;
    said.textContent = text;
    later = setTimeout(async () => { const more = await describe(row.player, column.player).catch(() => ""); if (at && players[at[0]] === row && players[at[1]] === column) said.textContent = text + more; }, 150);
  }
  function under(event) {
    const box = canvas.getBoundingClientRect(), row = Math.floor((event.clientY - box.top) / side), column = Math.floor((event.clientX - box.left - margin) / side);
    return row >= 0 && column >= 0 && row < players.length && column < players.length ? [row, column] : null;
  }
  canvas.addEventListener("pointermove", (event) => point(under(event)));
  canvas.addEventListener("pointerleave", () => { if (document.activeElement !== canvas) point(null); });
  canvas.addEventListener("click", (event) => { const place = under(event); if (place) { point(place); open(players[place[0]].player, players[place[1]].player); } });
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key], n = players.length;
    if (step && n) { event.preventDefault(); point(at ? [Math.max(0, Math.min(n - 1, at[0] + step[0])), Math.max(0, Math.min(n - 1, at[1] + step[1]))] : [0, 0]); }
    if (event.key === "Enter" && at) open(players[at[0]].player, players[at[1]].player);
  });
  let wide = 0;
  new ResizeObserver(() => { if (Math.abs(element.clientWidth - wide) > 2) { wide = element.clientWidth; draw(); } }).observe(element);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  element.update = (payoff, given) => {
    slots = payoff.slots;
    rates = unpack(payoff.rates, Uint16Array);
    games = unpack(payoff.games, Float32Array);
    players = given.filter((one) => one.state !== "removed");
    at = null;
    draw();
  };
  element.cells = (changed) => {
    for (const [row, column, rate, played] of changed) { rates[row * slots + column] = Math.round(rate * 65534); games[row * slots + column] = played; }
    if (changed.length) requestAnimationFrame(draw);
  };
  element.choose = (name) => { chosen = name; draw(); };
  return element;
}
