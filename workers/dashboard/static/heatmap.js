// The payoff of all players as a heat map: orange where the row's player loses, blue where it wins, by lightness too.
// Hover, touch or the arrow keys say what a cell holds; Enter or a click opens it. What it shows is a layer: win rates of
// matches, or the evaluators' mean returns.

import { h, percent, number, replace, short } from "./dom.js";
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

// A layer: {slots, note, scale: five texts from the worst to the best, at(place) -> null or {share: 0 to 1, label, text, fields}}.
export function winRates(payoff) {
  const rates = unpack(payoff.rates, Uint16Array), games = unpack(payoff.games, Float32Array), n = payoff.slots;
  return {
    slots: n, note: "rows against columns, the strongest by Elo first; grey: never met", scale: [0, 0.25, 0.5, 0.75, 1].map(percent),
    share: (place) => (rates[place] === NEVER ? null : rates[place] / 65534),
    label: (place) => String(Math.round((100 * rates[place]) / 65534)),
    text: (place) => { const rate = rates[place] / 65534, [lower, upper] = wilson(rate, games[place]); return `wins ${percent(rate)} (${percent(lower)} to ${percent(upper)}, 95 %) of ${number(games[place], 1)} games that still count`; },
    never: "never met",
    fields: (place) => { const rate = rates[place] / 65534, [lower, upper] = wilson(rate, games[place]); return { "win rate": digits(rate), games: Number(games[place].toFixed(2)), lower: digits(lower), upper: digits(upper) }; },
    set(row, column, rate, played) { rates[row * n + column] = Math.round(rate * 65534); games[row * n + column] = played; },
  };
}

export function meanReturns(measured) {
  const n = measured.slots, [means, lower, upper, games] = ["mean", "lower", "upper", "games"].map((name) => unpack(measured[name], Float32Array));
  const most = means.reduce((found, one) => (Math.abs(one) > found ? Math.abs(one) : found), 0) || 1;
  const how = { games: "played in both seats", pairs: "pairs of games on one deal", exact: "computed on the whole game" }[measured.found_by];
  return {
    slots: n, note: `mean returns of frozen players over both seats, as evaluators found them (${how}), the best on average first; grey: not known`,
    scale: [-1, -0.5, 0, 0.5, 1].map((part) => short(Number((part * most).toPrecision(2)))),
    share: (place) => (Number.isNaN(means[place]) || means[place] === undefined ? null : 0.5 + means[place] / (2 * most)),
    label: (place) => means[place].toFixed(most >= 10 ? 0 : most >= 1 ? 1 : 2).replace(/^(-?)0\./, "$1."),
    text: (place) => returnText({ mean: means[place], lower: lower[place], upper: upper[place], games: games[place], found_by: measured.found_by, confidence: measured.confidence }),
    order: (players) => {
      const average = new Map(players.map((row) => {
        const known = players.map((column) => means[row.slot * n + column.slot]).filter((one, at) => row.slot < n && players[at].slot < n && !Number.isNaN(one));
        return [row, known.length ? known.reduce((sum, one) => sum + one, 0) / known.length : -Infinity];
      }));
      return [...players].sort((one, other) => average.get(other) - average.get(one));
    },
    never: "are not measured against each other",
    fields: (place) => ({ "mean return": digits(means[place]), games: games[place], lower: digits(lower[place]), upper: digits(upper[place]) }),
  };
}

export function returnText({ mean, lower, upper, games, found_by, confidence }) {
  if (found_by === "exact") return `${signed(mean)} a game, exactly`;
  const within = lower === null || Number.isNaN(lower) ? "" : ` (${signed(lower)} to ${signed(upper)}, ${number(100 * confidence)} % at all times)`;
  return `${signed(mean)} a game${within} by ${number(games)} ${found_by === "pairs" ? "pairs of games" : "games"} of evaluators`;
}
const signed = (value) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(3)}`;
const digits = (value) => (value === null || Number.isNaN(value) ? null : Number(value.toFixed(4)));
const unpack = (text, kind) => new kind(Uint8Array.from(atob(text), (one) => one.charCodeAt(0)).buffer);

// players: [{slot, player, state}] in the order of rows. The element has .update(layer, players), .redraw() after layer.set, .choose(name).
export function heatMap({ title, open, describe, above = null }) {
  let layer = null, players = [], at = null, chosen = null, side = 10, margin = 0;
  const canvas = h("canvas", { tabindex: "0", role: "img", "aria-label": `${title}: the arrow keys move, Enter opens a cell` });
  const said = h("output", { class: "said", "aria-live": "polite" }), note = h("p", { class: "dim" });
  const place = (row, column) => (row.slot < layer.slots && column.slot < layer.slots ? row.slot * layer.slots + column.slot : -1);
  const share = (row, column) => { const found = place(row, column); return found < 0 ? null : layer.share(found); };
  const rows = () => players.flatMap((row) => players.filter((column) => share(row, column) !== null)
    .map((column) => ({ row: row.player, column: column.player, ...layer.fields(place(row, column)) })));
  const scale = h("div", { class: "scale", "aria-hidden": "true" });
  const element = h("figure", { class: "figure" }, h("figcaption", {}, h("h3", {}, title), above, note), h("div", { class: "map" }, canvas), said, scale, numbers(title, rows));

  function draw() {
    const n = players.length, width = Math.max(240, Math.min(element.clientWidth || 600, 760));
    const style = getComputedStyle(element), text = style.getPropertyValue("--text"), never = style.getPropertyValue("--never");
    const longest = Math.max(0, ...players.map((one) => one.player.length)), room = Math.min(0.32 * width, 6.6 * Math.min(longest, 22) + 8);
    const labelled = n > 0 && (width - room) / n >= 7;
    margin = labelled ? room : 0;
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
      const found = share(players[row], players[column]);
      image.data.set([...(found === null ? grey : colour(found)), 255], 4 * (row * n + column));
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
      if (labelled) pen.fillText(one.player.length > 22 ? `${one.player.slice(0, 21)}…` : one.player, margin - 5, (row + 0.5) * side, margin - 6);
      if (side >= 26) players.forEach((other, column) => {
        const found = share(one, other);
        if (found === null) return;
        pen.font = `${Math.min(12, side / 3)}px sans-serif`;
        pen.textAlign = "center";
        pen.fillStyle = Math.abs(found - 0.5) > 0.3 ? "#fff" : "#000";
        pen.fillText(layer.label(place(one, other)), margin + (column + 0.5) * side, (row + 0.5) * side);
      });
    });
    pen.strokeStyle = text;
    const marked = players.findIndex((one) => one.player === chosen);
    if (marked >= 0) { pen.lineWidth = 1.5; pen.strokeRect(margin + 0.75, marked * side, side * n - 1.5, side); pen.strokeRect(margin + marked * side, 0.75, side, side * n - 1.5); }
    if (at) { pen.lineWidth = 3; pen.strokeRect(margin + at[1] * side + 1, at[0] * side + 1, Math.max(3, side - 2), Math.max(3, side - 2)); }
  }
  let later = 0;
  function point(given) {
    at = given;
    requestAnimationFrame(draw);
    clearTimeout(later);
    if (!at) { said.textContent = ""; return; }
    const [row, column] = [players[at[0]], players[at[1]]];
    if (share(row, column) === null) { said.textContent = `${row.player} and ${column.player} ${layer.never}`; return; }
    const text = `${row.player} against ${column.player}: ${layer.text(place(row, column))}`;
    said.textContent = text;
    later = setTimeout(async () => { const more = await describe(row.player, column.player).catch(() => ""); if (at && players[at[0]] === row && players[at[1]] === column) said.textContent = text + more; }, 150);
  }
  function under(event) {
    const box = canvas.getBoundingClientRect(), row = Math.floor((event.clientY - box.top) / side), column = Math.floor((event.clientX - box.left - margin) / side);
    return row >= 0 && column >= 0 && row < players.length && column < players.length ? [row, column] : null;
  }
  canvas.addEventListener("pointermove", (event) => point(under(event)));
  canvas.addEventListener("pointerleave", () => { if (document.activeElement !== canvas) point(null); });
  canvas.addEventListener("click", (event) => { const found = under(event); if (found) { point(found); open(players[found[0]].player, players[found[1]].player); } });
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key], n = players.length;
    if (step && n) { event.preventDefault(); point(at ? [Math.max(0, Math.min(n - 1, at[0] + step[0])), Math.max(0, Math.min(n - 1, at[1] + step[1]))] : [0, 0]); }
    if (event.key === "Enter" && at) open(players[at[0]].player, players[at[1]].player);
  });
  let wide = 0;
  new ResizeObserver(() => { if (Math.abs(element.clientWidth - wide) > 2) { wide = element.clientWidth; draw(); } }).observe(element);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  element.update = (given, shown) => {
    layer = given;
    const before = players.map((one) => one.player);
    players = shown.filter((one) => one.state !== "removed");
    if (layer.order) players = layer.order(players);
    if (players.length !== before.length || players.some((one, number) => one.player !== before[number])) at = null;
    note.textContent = layer.note;
    replace(scale, "worse ", layer.scale.map((text, number) => {
      const swatch = h("span", {}, text), [red, green, blue] = STOPS[number];
      swatch.style.background = `rgb(${red}, ${green}, ${blue})`;
      swatch.style.color = number === 0 || number === 4 ? "#fff" : "#000";
      return swatch;
    }), " better");
    draw();
  };
  element.redraw = () => requestAnimationFrame(draw);
  element.choose = (name) => { chosen = name; draw(); };
  return element;
}
