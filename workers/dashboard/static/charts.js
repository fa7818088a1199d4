// Lines over time, as SVG. Series differ by colour (Okabe and Ito's, told apart without colour vision), by dashes and by
// their order in the legend, which can be chosen from; the arrow keys read values out.

import { h, s, replace, short, duration } from "./dom.js";
import { numbers } from "./table.js";

export const COLOURS = ["c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7"];
export const DASHES = ["", "6 3", "2 3", "9 3 2 3", "12 4", "4 2", "1 2", "8 2 2 2 2 2"];
const LEFT = 52, RIGHT = 12, TOP = 10, BOTTOM = 30, MOST = 40;

function ticks(low, high, count) {
  const raw = (high - low) / Math.max(1, count), size = 10 ** Math.floor(Math.log10(raw || 1));
  const step = [1, 2, 5, 10].map((one) => one * size).find((one) => one >= raw) ?? size;
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-9; at += step) found.push(Math.abs(at) < step * 1e-9 ? 0 : at);
  return found;
}

// series: [{name, x: [...], y: [... or null]}]; x in s of Unix time where `began` is given, else any number.
// `band`: {name, x, low, high}. The element has .update(series, band) and .moment(t or null).
export function lineChart({ title, series, band = null, unit = "", xTitle = "time", began = null, log = false, note = null }) {
  let hidden = new Set(), moment = null, place = null, width = 600, height = 230;
  const drawing = s("svg", { class: "chart", role: "img", tabindex: "0", "aria-label": `${title}; the arrow keys read it out` });
  const said = h("output", { class: "said", "aria-live": "polite" }), legend = h("div", { class: "legend" });
  const rows = () => {
    const found = series.flatMap((one) => one.x.map((x, at) => ({
      series: one.name, ...(began === null ? { [xTitle]: x } : { time: x, "seconds since the beginning": Math.round((x - began) * 1000) / 1000 }),
      value: one.y[at],
    })));
    if (band) band.x.forEach((x, at) => found.push({ series: `${band.name}, at least`, time: x, value: band.low[at] }, { series: `${band.name}, at most`, time: x, value: band.high[at] }));
    return found;
  };
  const element = h("figure", { class: "figure" }, h("figcaption", {}, h("h3", {}, title), note && h("p", { class: "dim" }, note)),
    drawing, said, legend, numbers(title, rows));

  const shown = () => series.filter((one) => !hidden.has(one.name) && one.x.length);
  function bounds() {
    let [x0, x1, y0, y1] = [Infinity, -Infinity, Infinity, -Infinity];
    const take = (x, y) => { if (y !== null && y !== undefined && Number.isFinite(y) && (!log || y > 0)) { x0 = Math.min(x0, x); x1 = Math.max(x1, x); y0 = Math.min(y0, y); y1 = Math.max(y1, y); } };
    for (const one of shown()) one.x.forEach((x, at) => take(x, one.y[at]));
    if (band) band.x.forEach((x, at) => { take(x, band.low[at]); take(x, band.high[at]); });
    if (x0 > x1) return null;
    if (x0 === x1) { x0 -= 1; x1 += 1; }
    if (log) return [x0, x1, y0, y1 === y0 ? y0 * 2 : y1];
    const spare = 0.06 * (y1 - y0 || Math.abs(y1) || 1);
    return [x0, x1, y0 >= 0 && y0 < 0.4 * y1 ? 0 : y0 - spare, y1 + spare];
  }
  let toX = null, toY = null, range = null;

  function draw() {
    width = Math.max(260, element.clientWidth || width);
    range = bounds();
    drawing.setAttribute("viewBox", `0 0 ${width} ${height}`);
    if (!range) { replace(drawing, s("text", { x: width / 2, y: height / 2, "text-anchor": "middle", class: "dim" }, "nothing yet")); replace(legend); return; }
    const [x0, x1, y0, y1] = range;
    toX = (x) => LEFT + ((x - x0) / (x1 - x0)) * (width - LEFT - RIGHT);
    const part = log ? (y) => Math.log(y / y0) / Math.log(y1 / y0) : (y) => (y - y0) / (y1 - y0);
    toY = (y) => height - BOTTOM - part(y) * (height - TOP - BOTTOM);
    const grid = [];
    const yTicks = log ? [0, 1, 2, 3, 4].map((n) => y0 * (y1 / y0) ** (n / 4)) : ticks(y0, y1, 5);
    for (const y of yTicks) grid.push(s("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: toY(y), y2: toY(y) }), s("text", { x: LEFT - 6, y: toY(y) + 4, "text-anchor": "end" }, short(y)));
    const base = began ?? 0;
    for (const x of ticks(x0 - base, x1 - base, Math.max(2, Math.floor(width / 110)))) {
      grid.push(s("text", { x: toX(x + base), y: height - 12, "text-anchor": "middle" }, began === null ? short(x) : duration(x)));
    }
    grid.push(s("text", { x: width - RIGHT, y: height - 1, "text-anchor": "end", class: "dim small" }, `${xTitle}${unit ? `; ${unit}` : ""}`));
    const marks = [];
    if (band && band.x.length) {
      const up = band.x.map((x, at) => [x, band.high[at]]).filter(([, y]) => y !== null), down = band.x.map((x, at) => [x, band.low[at]]).filter(([, y]) => y !== null).reverse();
      marks.push(s("polygon", { class: "band", points: [...up, ...down].map(([x, y]) => `${toX(x)},${toY(log ? Math.max(y, y0) : y)}`).join(" ") }));
    }
    shown().slice(0, MOST).forEach((one) => {
      const number = series.indexOf(one);
      let path = "", pen = false;
      one.x.forEach((x, at) => {
        const y = one.y[at];
        if (y === null || y === undefined || !Number.isFinite(y) || (log && y <= 0)) { pen = false; return; }
        path += `${pen ? "L" : "M"}${toX(x).toFixed(1)} ${toY(y).toFixed(1)}`;
        pen = true;
      });
      marks.push(s("path", { d: path, class: `line ${COLOURS[number % 8]}${one.chosen ? " chosen" : ""}`, "stroke-dasharray": DASHES[number % 8] || null }));
      if (one.x.length === 1) marks.push(s("circle", { cx: toX(one.x[0]), cy: toY(one.y[0]), r: 3, class: `dot ${COLOURS[number % 8]}` }));
    });
    if (moment !== null && moment < x1) {
      const at = Math.max(LEFT, Math.min(toX(moment), width - RIGHT));
      marks.push(s("rect", { class: "later", x: at, y: TOP, width: width - RIGHT - at, height: height - TOP - BOTTOM }), s("line", { class: "moment", x1: at, x2: at, y1: TOP, y2: height - BOTTOM }));
    }
    replace(drawing, grid, marks);
    replace(legend, series.length > 1 || series[0]?.name ? series.slice(0, MOST).map((one, number) => h("button", {
      type: "button", class: `key ${COLOURS[number % 8]}`, "aria-pressed": String(!hidden.has(one.name)),
      onclick: () => { if (!hidden.delete(one.name)) hidden.add(one.name); draw(); },
    }, s("svg", { width: 26, height: 8, "aria-hidden": "true" }, s("line", { x1: 0, x2: 26, y1: 4, y2: 4, class: `line ${COLOURS[number % 8]}`, "stroke-dasharray": DASHES[number % 8] || null })), one.name)) : []);
    read();
  }

  function read() {
    drawing.querySelector(".reader")?.remove();
    if (place === null || !range) { said.textContent = ""; return; }
    const values = shown().slice(0, 8).map((one) => {
      let best = -1;
      one.x.forEach((x, at) => { if (one.y[at] !== null && one.y[at] !== undefined && (best < 0 || Math.abs(x - place) < Math.abs(one.x[best] - place))) best = at; });
      return best < 0 ? null : `${one.name || title} ${short(one.y[best])}`;
    }).filter(Boolean);
    said.textContent = `${began === null ? `${xTitle} ${short(place)}` : duration(place - began)}: ${values.join(", ")}`;
    drawing.append(s("line", { class: "reader", x1: toX(place), x2: toX(place), y1: TOP, y2: height - BOTTOM }));
  }
  drawing.addEventListener("pointermove", (event) => {
    if (!range) return;
    const box = drawing.getBoundingClientRect(), at = ((event.clientX - box.left) / box.width) * width;
    place = Math.max(range[0], Math.min(range[1], range[0] + ((at - LEFT) / (width - LEFT - RIGHT)) * (range[1] - range[0])));
    read();
  });
  drawing.addEventListener("pointerleave", () => { place = null; read(); });
  drawing.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step || !range) return;
    event.preventDefault();
    place = Math.max(range[0], Math.min(range[1], (place ?? range[1]) + (step * (range[1] - range[0])) / 40));
    read();
  });
  new ResizeObserver(() => { if (Math.abs(element.clientWidth - width) > 2) draw(); }).observe(element);
  element.update = (given, other = band) => { series = given; band = other; draw(); };
  element.moment = (given) => { moment = given; draw(); };
  element.from = (given) => { began = given; };
  queueMicrotask(draw);
  return element;
}

// Who descends from whom: a row for each player that joined, snapshots as circles, resets as bars, copies as arrows.
export function lineageChart({ title }) {
  let found = { players: [], restarts: [] }, began = 0, end = 1, moment = null, chosen = null, pick = () => {};
  const drawing = s("svg", { class: "chart lineage", role: "img", "aria-label": `${title}; its numbers are in the table` });
  const rows = () => [...found.players.map((one) => ({ ...one, event: one.parent ? "snapshot" : "joined", source: null })),
    ...found.restarts.map((one) => ({ player: one.player, kind: null, parent: null, joined: one.time, ended: null, state: null, event: one.source ? "copied" : "reset", source: one.source || null }))];
  const element = h("figure", { class: "figure wide" }, h("figcaption", {}, h("h3", {}, title), h("p", { class: "dim" }, "circles: snapshots (squares: averages of weights); bars: resets; lines between rows: copied a stronger player")), drawing, numbers(title, rows));
  function draw() {
    const width = Math.max(300, element.clientWidth || 800);
    const roots = found.players.filter((one) => !one.parent), row = new Map(roots.map((one, at) => [one.player, at]));
    const tall = roots.length > 60 ? 9 : 24, left = Math.min(190, 0.32 * width), height = roots.length * tall + 34;
    const toX = (time) => left + ((time - began) / Math.max(1e-9, end - began)) * (width - left - 40), toY = (name) => row.get(name) * tall + tall / 2 + 4;
    const later = (time) => (moment !== null && time > moment ? " gone" : "");
    const parts = [];
    for (const one of roots) {
      const y = toY(one.player);
      parts.push(s("line", { class: `life${later(one.joined)}`, x1: toX(one.joined), x2: toX(one.ended ?? end), y1: y, y2: y }));
      if (tall > 12) parts.push(s("text", { x: left - 8, y: y + 4, "text-anchor": "end", class: one.player === chosen ? "chosen" : null }, one.player.length > 26 ? `${one.player.slice(0, 25)}…` : one.player));
    }
    for (const one of found.restarts) {
      if (!row.has(one.player)) continue;
      const x = toX(one.time), y = toY(one.player);
      if (one.source && row.has(one.source.split("@")[0])) parts.push(s("line", { class: `copy${later(one.time)}`, x1: x, x2: x, y1: toY(one.source.split("@")[0]), y2: y }));
      parts.push(s("line", { class: `reset${later(one.time)}`, x1: x, x2: x, y1: y - tall / 2.4, y2: y + tall / 2.4 }));
    }
    for (const one of found.players) {
      if (!one.parent || !row.has(one.parent)) continue;
      const square = one.kind.endsWith(" average"), x = toX(one.joined), y = toY(one.parent);
      const shared = { class: `snapshot${later(one.joined)}${one.player === chosen ? " chosen" : ""}${one.state === "removed" ? " removed" : ""}`, onclick: () => pick(one.player) };
      parts.push(s(square ? "rect" : "circle", square ? { x: x - 3, y: y - 3, width: 6, height: 6, ...shared } : { cx: x, cy: y, r: tall > 12 ? 4.5 : 2.5, ...shared }, s("title", {}, `${one.player}, ${duration(one.joined - began)}`)));
    }
    for (const at of [0, 0.25, 0.5, 0.75, 1]) parts.push(s("text", { x: toX(began + at * (end - began)), y: height - 6, "text-anchor": "middle" }, duration(at * (end - began))));
    if (moment !== null) parts.push(s("line", { class: "moment", x1: toX(moment), x2: toX(moment), y1: 0, y2: height - 22 }));
    drawing.setAttribute("viewBox", `0 0 ${width} ${height}`);
    replace(drawing, parts);
  }
  let wide = 0;
  new ResizeObserver(() => { if (Math.abs(element.clientWidth - wide) > 2) { wide = element.clientWidth; draw(); } }).observe(element);
  element.update = (given) => { ({ found = found, began = began, end = end, chosen = chosen, pick = pick } = given); draw(); };
  element.moment = (given) => { moment = given; draw(); };
  return element;
}
