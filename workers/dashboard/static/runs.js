// The list of runs, and plain runs: curves, settings, several side by side.

import { address, clock, duration, get, h, number, query, replace, short } from "./dom.js";
import { lineChart } from "./charts.js";
import { panel, sortable } from "./table.js";
import { problems } from "./facts.js";

const link = (row) => h("a", { href: address(row.kind === "league" ? "/run" : "/compare", { run: row.run }) }, row.run);

export async function listPage(main) {
  const { root, runs } = await get("/api/runs");
  const chosen = new Set();
  const compare = h("a", { class: "button", href: "/compare" }, "side by side");
  const pick = (row) => h("input", { type: "checkbox", "aria-label": `choose ${row.run}`, checked: chosen.has(row.run), onchange: (event) => {
    if (event.target.checked) chosen.add(row.run); else chosen.delete(row.run);
    compare.href = address("/compare", { run: [...chosen] });
    compare.hidden = chosen.size < 2;
  } });
  compare.hidden = true;
  const shown = sortable({ title: "runs", rows: runs, columns: [
    { name: "run", title: "run", show: (row) => [pick(row), " ", link(row)] }, { name: "kind", title: "kind" }, { name: "game", title: "game" },
    { name: "state", title: "state", show: (row) => (row.live ? "● running" : row.state) }, { name: "started", title: "started", show: (row) => clock(row.started) },
    { name: "steps", title: "steps", number: true, show: (row) => number(row.steps) }, { name: "seconds", title: "time", number: true, show: (row) => duration(row.seconds) }] });
  replace(main, h("h1", {}, "Runs"), h("p", { class: "dim" }, `below ${root}`), compare,
    runs.length ? panel("All runs", shown, () => runs) : h("p", {}, "no runs yet: python -m workers.train starts one"));
}

// Curves of one run or several: by steps where all have steps.
export async function comparePage(main, names) {
  const found = await get("/api/curves", { run: names });
  const entries = Object.entries(found), single = entries.length === 1;
  const curves = new Map();
  const add = (metric, name, rows, key) => {
    const x = rows.steps?.some((one) => one !== null) && !rows.steps.some((one) => one === null) ? rows.steps : rows.time ?? [];
    if (!curves.has(metric)) curves.set(metric, []);
    curves.get(metric).push({ name, x, y: rows[key] });
  };
  for (const [run, one] of entries) {
    for (const [player, rows] of Object.entries(one.learners)) for (const key of Object.keys(rows)) if (!["time", "steps", "window"].includes(key)) add(key, [single ? "" : run, player].filter(Boolean).join(" ") || run, rows, key);
    for (const key of Object.keys(one.evaluation)) if (!["time", "steps", "seconds"].includes(key) && !key.startsWith("steps.")) add(`evaluation: ${key}`, run, one.evaluation, key);
  }
  const first = ["mean_return", "evaluation: mean_return", "steps_per_second", "data_age", "staleness"];
  const order = [...curves.keys()].sort((one, other) => (first.indexOf(one) + 1 || 99) - (first.indexOf(other) + 1 || 99));
  const charts = order.map((metric) => h("section", { class: "panel" }, lineChart({ title: metric.replace(/^losses\./, "").replaceAll("_", " "), series: curves.get(metric), xTitle: "steps" })));
  const settings = [...new Set(entries.flatMap(([, one]) => Object.keys(one.settings)))].map((setting) => {
    const values = entries.map(([, one]) => one.settings[setting] ?? "");
    return { setting, ...Object.fromEntries(entries.map(([run], at) => [run, values[at]])), differs: new Set(values).size > 1 };
  });
  const only = h("input", { type: "checkbox", id: "differs", checked: !single, onchange: () => table.update(rows()) });
  const rows = () => (only.checked ? settings.filter((row) => row.differs) : settings);
  const table = sortable({ title: "settings", rows: rows(), chosen: (row) => !single && row.differs, columns: [{ name: "setting", title: "setting" }, ...entries.map(([run]) => ({ name: run, title: run }))] });
  const summary = sortable({ title: "runs", rows: entries.map(([, one]) => one.summary), columns: [
    { name: "run", title: "run" }, { name: "game", title: "game" }, { name: "state", title: "state" }, { name: "steps", title: "steps", number: true, show: (row) => number(row.steps) }, { name: "seconds", title: "time", number: true, show: (row) => duration(row.seconds) }] });
  const facts = single ? problems(entries[0][0]) : null;
  replace(main, h("h1", {}, single ? entries[0][0] : `${entries.length} runs side by side`), panel("Runs", summary, () => entries.map(([, one]) => one.summary)),
    h("div", { class: "columns" }, charts.length ? charts : h("p", {}, "no figures yet")),
    panel("Settings", [single ? null : h("label", {}, only, " only those that differ"), table], () => settings), facts?.element);
  facts?.load();
  if (entries.some(([, one]) => one.summary.live)) setTimeout(() => { if (location.pathname === "/compare" && !document.querySelector("[aria-expanded=true]")) comparePage(main, query().getAll("run")).catch(() => {}); }, 5000);
}
