// What the servers, logs and files of a run tell beside its figures: processes, segments, dead letters, failures, settings.

import { clock, failed, get, h, number, replace } from "./dom.js";
import { numbers, panel, sortable } from "./table.js";

export function problems(run) {
  let found = { processes: [], segments: {}, failures: [], dead: null };
  const leases = sortable({ title: "processes that hold leases", rows: [], columns: [{ name: "process", title: "process" }, { name: "where", title: "where" }] });
  const failures = sortable({ title: "failures", rows: [], columns: [
    { name: "time", title: "when", show: (row) => clock(row.time) }, { name: "process", title: "process" }, { name: "cause", title: "cause" },
    { name: "where", title: "where" }, { name: "then", title: "then" }] });
  const segments = h("dl", { class: "figures" }), dead = h("div");
  const letters = sortable({ title: "dead letters", rows: [], columns: [{ name: "service", title: "service" }, { name: "reason", title: "reason" }, { name: "died_at", title: "when", show: (row) => clock(row.died_at) }, { name: "bytes", title: "bytes", number: true }, { name: "id", title: "id" }] });
  const look = h("button", { type: "button", onclick: async () => {
    replace(dead, h("p", {}, "Asking the broker…"));
    try {
      const told = await get("/api/dead", { run });
      letters.update(told.letters);
      replace(dead, h("p", {}, told.count === null ? told.said : `${number(told.count)} dead letters`), told.letters.length ? letters : null);
      found.dead = told.letters;
    } catch (error) { replace(dead, failed(error)); }
  } }, "ask the broker");
  const element = h("div", { class: "columns" },
    panel("Segments", segments, () => Object.entries(found.segments).map(([name, value]) => ({ name, segments: value })), "made = learned + stored + dropped, by the reason, + in flight"),
    panel("Processes with leases", leases, () => found.processes, "of a run that goes on"),
    panel("Failures", failures, () => found.failures), panel("Dead letters", [look, dead], () => found.dead ?? []));
  async function load() {
    try {
      found = { ...found, ...(await get("/api/facts", { run })) };
      leases.update(found.processes);
      failures.update(found.failures);
      const shown = Object.entries(found.segments);
      replace(segments, shown.length ? shown.map(([name, value]) => h("div", {}, h("dt", {}, name.replaceAll("_", " ")), h("dd", {}, number(value)))) : h("div", {}, "not told yet"));
    } catch (error) { replace(segments, failed(error)); }
  }
  return { element, load };
}

export function settingsPanel(run) {
  const place = h("div"), details = h("details", { class: "panel" }, h("summary", {}, "Settings"), place);
  details.addEventListener("toggle", async () => {
    if (!details.open || place.childElementCount) return;
    try {
      const { settings } = await get("/api/run", { run });
      const rows = Object.entries(settings).map(([setting, value]) => ({ setting, value }));
      replace(place, numbers("settings", () => rows), sortable({ title: "settings", rows, columns: [{ name: "setting", title: "setting" }, { name: "value", title: "value" }] }));
    } catch (error) { replace(place, failed(error)); }
  });
  return details;
}
