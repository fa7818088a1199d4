// A league: everything about it at one moment, which the slider chooses, and live while it goes on.

import { address, clock, duration, failed, get, h, number, percent, query, remember, replace, s } from "./dom.js";
import { lineageChart, lineChart } from "./charts.js";
import { heatMap, meanReturns, returnText, winRates } from "./heatmap.js";
import { panel, sortable } from "./table.js";
import { problems, settingsPanel } from "./facts.js";

const STEPS = 2000; // places of the slider

export async function leaguePage(main, run) {
  let at = query().get("at") ? Number(query().get("at")) : null, chosen = query().get("player");
  let state = null, series = null, span = [0, 1], until = 0, asked = 0, again = null;

  // The moment.
  const slider = h("input", { type: "range", min: 0, max: STEPS, value: STEPS, id: "moment", "aria-label": "moment of the league" });
  const when = h("output", { for: "moment", class: "when" }), status = h("span", { class: "status" });
  const latest = h("button", { type: "button", onclick: () => go(null) }, "latest");
  const back = h("button", { type: "button", "aria-label": "a bit earlier", onclick: () => go((at ?? until) - (until - state.began) / 50) }, "◀");
  const forth = h("button", { type: "button", "aria-label": "a bit later", onclick: () => go((at ?? until) + (until - state.began) / 50) }, "▶");
  slider.addEventListener("input", () => go(Number(slider.value) >= STEPS ? null : state.began + ((until - state.began) * Number(slider.value)) / STEPS));
  const bar = h("div", { class: "moments", role: "group", "aria-label": "time" }, back, slider, forth, latest, when, status);

  // The parts.
  const trouble = h("div"), figures = h("dl", { class: "figures" });
  const name = (row) => h("button", { type: "button", class: "link", onclick: () => choose(row.player ?? row) }, row.player ?? row);
  const standings = sortable({
    title: "standings", rows: [], key: "player", chosen: (row) => row.player === chosen,
    columns: [
      { name: "player", title: "player", show: name }, { name: "kind", title: "kind" },
      { name: "state", title: "state", show: (row) => (row.reason ? `${row.state}: ${row.reason}` : row.state) },
      { name: "elo", title: "Elo", number: true, show: (row) => `${number(row.elo)}${row.provisional ? "?" : ""}` },
      { name: "elo_lower", title: "95 %", show: whisker }, { name: "win_rate", title: "win rate", number: true, show: (row) => percent(row.win_rate) },
      { name: "win_rate_lower", title: "95 %", number: true, show: (row) => (row.win_rate === null ? "" : `${number(100 * row.win_rate_lower)}–${number(100 * row.win_rate_upper)} %`) },
      { name: "games", title: "games", number: true, show: (row) => number(row.games) }, { name: "generation", title: "gen.", number: true },
      { name: "steps", title: "steps", number: true, show: (row) => (row.steps ? number(row.steps) : "") },
    ],
  });
  function whisker(row) {
    const x = (value) => Math.max(0, Math.min(100, ((value - span[0]) / (span[1] - span[0])) * 100));
    const text = `${number(row.elo_lower)} to ${number(row.elo_upper)}`;
    return [s("svg", { class: "whisker", viewBox: "0 0 100 10", role: "img", "aria-label": text }, s("title", {}, text),
      s("line", { x1: x(row.elo_lower), x2: x(row.elo_upper), y1: 5, y2: 5 }), s("circle", { cx: x(row.elo), cy: 5, r: 2.5 })), h("span", { class: "small dim" }, ` ${text}`)];
  }
  // What the map shows: win rates come with each moment, the evaluators' returns are read when they are first asked for.
  let rates = null, returns = null, shown = query().get("map") === "returns" ? "returns" : "rates";
  const layers = h("select", { id: "layer", "aria-label": "what the map shows", onchange: () => { shown = layers.value; remember({ map: shown === "returns" ? shown : null }); drawMap().catch((error) => replace(trouble, failed(error))); } },
    h("option", { value: "rates", selected: shown === "rates" }, "win rates of matches"), h("option", { value: "returns", selected: shown === "returns" }, "mean returns by evaluators"));
  const map = heatMap({ title: "Payoff", open: openCell, describe, above: layers });
  async function drawMap(anew = false) {
    if (shown === "returns" && (anew || !returns)) returns = meanReturns(await get("/api/returns", { run }));
    map.update(shown === "returns" ? returns : rates, shown === "returns" ? state.players.filter((one) => one.state === "frozen") : state.players);
    map.choose(chosen);
  }
  const cell = h("dialog", { class: "cell", "aria-label": "a pair of players" });
  cell.addEventListener("close", () => remember({ home: null, away: null }));
  const player = h("div", { class: "player" });
  const ratings = lineChart({ title: "Ratings", series: [], began: 0, note: "Elo of the players that learn; a line breaks where a player begins anew" });
  const charts = {
    exploitability: lineChart({ title: "Exploitability", series: [], began: 0, log: true, note: "points a game, logarithmic; the band bounds what the mixture's best member gains against it" }),
    shares: lineChart({ title: "Shares of the mixture", series: [], began: 0, note: "of each kind of player, in the Nash mixture of the frozen ones" }),
    references: lineChart({ title: "Against references", series: [], began: 0, note: "mean return of the main agent" }),
    steps: lineChart({ title: "Throughput", series: [], began: 0, unit: "steps/s" }),
    matches: lineChart({ title: "Matches", series: [], began: 0, unit: "1/s" }),
    age: lineChart({ title: "Data age", series: [], began: 0, unit: "s", note: "from when experience was made to its update" }),
    stale: lineChart({ title: "Staleness", series: [], began: 0, unit: "versions" }),
    returns: lineChart({ title: "Mean return", series: [], began: 0, note: "of the last training episodes" }),
  };
  const all = [ratings, ...Object.values(charts)];
  const tree = lineageChart({ title: "Lineage" });
  const matches = sortable({ title: "who plays whom", rows: [], columns: [
    { name: "home", title: "home", show: (row) => name(row.home) }, { name: "away", title: "away", show: (row) => name(row.away) },
    { name: "branch", title: "chosen as" }, { name: "open", title: "matches", number: true }, { name: "holder", title: "played by" },
    { name: "lease_left", title: "lease left, s", number: true, show: (row) => number(row.lease_left, 1) }] });
  const periods = sortable({ title: "learning periods", rows: [], columns: [
    { name: "player", title: "player", show: name }, { name: "period", title: "period", number: true }, { name: "learner", title: "learner" },
    { name: "steps", title: "steps", number: true, show: (row) => number(row.steps) }, { name: "lease_left", title: "lease left, s", number: true, show: (row) => number(row.lease_left, 1) }] });
  const gains = sortable({ title: "best responses", rows: [], columns: [
    { name: "player", title: "player", show: name }, { name: "response", title: "newest frozen" }, { name: "target", title: "from" },
    { name: "mean", title: "gain", number: true, show: (row) => number(row.mean, 4) },
    { name: "lower", title: "interval", show: (row) => (row.games ? `${number(row.lower, 4)} to ${number(row.upper, 4)}` : "exact") },
    { name: "games", title: "games", number: true, show: (row) => number(row.games) }] });
  let gained = [];
  const gainsPanel = panel("Best responses", gains, () => gained, "what each player's newest frozen response gains from its target, in points a game");
  gainsPanel.hidden = true;
  const processes = sortable({ title: "processes", rows: [], columns: [
    { name: "process", title: "process" }, { name: "role", title: "role" }, { name: "up", title: "state", show: (row) => (row.up ? "● up" : "○ silent") },
    { name: "silent", title: "last heard, s ago", number: true, show: (row) => number(row.silent, 1) }, { name: "count", title: "matches or periods", number: true }] });
  const rest = problems(run);

  async function describe(home, away) {
    const found = await get("/api/cell", { run, home, away, at });
    const other = shown === "rates" && found.returns ? `; returns ${returnText(found.returns)}` : "";
    if (!found.last) return other;
    const { wins, draws, losses, time } = found.last;
    return `${other}; last result ${wins} won, ${draws} drawn, ${losses} lost, ${duration(time - state.began)} after the beginning`;
  }
  async function openCell(home, away) {
    replace(cell, h("p", {}, "Loading…"));
    if (!cell.open) cell.showModal();
    remember({ home, away });
    try {
      const found = await get("/api/cell", { run, home, away, at }), list = h("div", {}, h("p", {}, "Looking for them…"));
      const rows = Object.entries({ "win rate": percent(found.win_rate), "95 %": found.win_rate === null ? "" : `${percent(found.win_rate_lower)} to ${percent(found.win_rate_upper)}`,
        "games that still count": number(found.games, 1), "won, drawn, lost": `${number(found.wins, 1)}, ${number(found.draws, 1)}, ${number(found.losses, 1)}`,
        "mean return by evaluators": found.returns ? returnText(found.returns) : "not known; evaluators play frozen players",
        "last result": found.last ? `${found.last.wins} won, ${found.last.draws} drawn, ${found.last.losses} lost at ${clock(found.last.time)}` : "not among the events that are kept" });
      replace(cell, h("form", { method: "dialog" }, h("button", { "aria-label": "close" }, "✕")), h("h2", {}, `${home} against ${away}`),
        h("dl", {}, rows.map(([title, value]) => [h("dt", {}, title), h("dd", {}, value)])), h("h3", {}, "Recorded matches"),
        list,
        h("p", {}, [home, away].map((one) => [h("a", { href: address("/play", { run, player: one }) }, `play against ${one}`), " "])));
      const recorded = await get("/api/matches", { run, home, away });
      replace(list, recorded.matches.length ? sortable({ title: "recorded matches", rows: recorded.matches, columns: [
          { name: "match", title: "match", show: (row) => h("a", { href: address("/match", { run, match: row.match, game: 1 }) }, row.match) },
          { name: "home", title: "home" }, { name: "games", title: "games", number: true }, { name: "mean_return", title: "mean return of home", number: true, show: (row) => number(row.mean_return, 3) },
          { name: "time", title: "ended", show: (row) => clock(row.time) }, { name: "recorded as", title: "recorded as" }] })
          : h("p", { class: "dim" }, "none of this pair; league.replay_every and league.replay_evaluations record them"));
    } catch (error) { replace(cell, h("form", { method: "dialog" }, h("button", {}, "close")), failed(error)); }
  }
  function choose(given) {
    chosen = chosen === given ? null : given;
    remember({ player: chosen });
    standings.update(state.players);
    map.choose(chosen);
    drawSeries();
    showPlayer();
  }
  function showPlayer() {
    const row = state.players.find((one) => one.player === chosen);
    if (!row) { replace(player); return; }
    const children = state.players.filter((one) => one.parent === row.player).length;
    replace(player, h("section", { class: "panel", "aria-labelledby": "p-chosen" }, h("h2", { id: "p-chosen" }, row.player),
      h("p", {}, [row.kind, row.state, `generation ${row.generation}`, `joined ${duration(row.joined - state.began)} after the beginning`,
        row.ended ? `ended after ${duration(row.ended - state.began)}` : null, row.parent ? `snapshot of ${row.parent}` : `${children} snapshots`].filter(Boolean).join(", ")),
      h("p", {}, h("a", { href: address("/play", { run, player: row.player }) }, "play against it"), " ", h("button", { type: "button", onclick: () => choose(chosen) }, "choose nobody"))));
  }

  // What is told.
  function show(found) {
    state = found;
    until = Math.max(until, found.until ?? found.time);
    const elo = state.players.map((one) => one.elo);
    span = [Math.min(...elo) - 150, Math.max(...elo) + 150];
    standings.update(state.players);
    rates = winRates(state.payoff);
    drawMap().catch((error) => replace(trouble, failed(error)));
    showMoving();
    showPlayer();
    showMoment();
  }
  function showMoving() {
    const counters = state.counters, count = (wanted) => state.players.filter((one) => one.state === wanted).length;
    const ended = `${number(counters.counted)} counted + ${number(counters.expired)} expired + ${number(counters.aborted)} aborted + ${number(counters.open)} open`;
    const up = state.processes.filter((one) => one.up).length;
    replace(figures, Object.entries({
      players: `${count("learning")} learning, ${count("paused")} paused, ${count("frozen")} frozen`, games: number(counters.games),
      "matches issued": `${number(counters.issued)} = ${ended}${counters.missing ? `; DIFFERS by ${number(counters.missing)}` : ""}`,
      processes: `${up} of ${state.processes.length} heard of lately`,
    }).map(([title, value]) => h("div", {}, h("dt", {}, title), h("dd", {}, value))));
    matches.update(state.matches);
    periods.update(state.periods);
    processes.update(state.processes);
    replace(trouble, state.problem ? h("p", { class: "problem", role: "alert" }, state.problem) : null);
  }
  function showMoment() {
    const span = Math.max(1e-9, until - state.began), now = at ?? until;
    slider.value = String(Math.round((STEPS * Math.min(span, Math.max(0, now - state.began))) / span));
    slider.setAttribute("aria-valuetext", `${duration(now - state.began)} of ${duration(span)}`);
    when.textContent = `${duration(now - state.began)} of ${duration(span)} · ${clock(now)}`;
    status.textContent = at !== null ? "earlier" : { live: "● live", away: "◌ Redis is away", ended: "■ ended" }[state.store ?? "ended"] ?? "";
    latest.disabled = at === null;
    for (const chart of all) chart.moment(at);
    tree.moment(at);
    showGains();
  }
  function showGains() {
    const newest = series?.scores.filter((one) => one.time && (at === null || one.time <= at)).at(-1);
    gained = Object.entries(newest?.gains ?? {}).map(([title, one]) => ({ player: title, ...one }));
    gains.update(gained);
    gainsPanel.hidden = !gained.length;
  }
  const rise = (x, y) => ({ x, y });
  function drawSeries() {
    if (!series) return;
    const scores = series.scores.filter((one) => one.time), x = scores.map((one) => one.time);
    const named = Object.entries(series.ratings).sort(([one], [other]) => (other === chosen) - (one === chosen));
    ratings.update(named.map(([title, one]) => ({ name: title, ...rise(one.time, one.elo), chosen: title === chosen })));
    const lines = (names, of) => names.map((title) => ({ name: title, x, y: scores.map((one) => of(one, title) ?? null) }));
    const keys = (of) => [...new Set(scores.flatMap((one) => Object.keys(of(one) ?? {})))];
    const gains = scores.filter((one) => one.gain_within);
    charts.exploitability.update([["mixture", "Nash mixture"], ["main_agent", "main agent"], ["uniform", "uniform play"]].map(([key, title]) => ({ name: title, x, y: scores.map((one) => one[key] ?? null) })).filter((one) => one.y.some((value) => value !== null)),
      gains.length ? { name: "gain of the mixture's best member", x: gains.map((one) => one.time), low: gains.map((one) => one.gain_within[0]), high: gains.map((one) => one.gain_within[1]) } : null);
    charts.shares.update(lines(keys((one) => one.shares_by_kind), (one, key) => one.shares_by_kind?.[key]));
    showGains();
    charts.references.update(lines(keys((one) => one.references), (one, key) => one.references?.[key]));
    const learners = Object.entries(series.learners);
    const of = (key) => learners.filter(([, one]) => one[key]).map(([title, one]) => ({ name: title, ...rise(one.time, one[key]) }));
    charts.steps.update(of("steps_per_second"));
    charts.age.update(of("data_age"));
    charts.stale.update(of("staleness"));
    charts.returns.update(of("mean_return"));
    charts.matches.update([{ name: "matches", ...rise(series.throughput.time, series.throughput.matches) }]);
  }
  async function load() {
    const mine = ++asked;
    const found = await get("/api/state", { run, at });
    if (mine === asked) { show(found); document.body.dataset.moment = at ?? "now"; }
  }
  async function loadSeries() {
    series = await get("/api/series", { run });
    drawSeries();
    tree.update({ found: await get("/api/lineage", { run }), began: state.began, end: until, chosen, pick: choose });
    for (const one of all) one.moment(at);
  }
  function go(moment) {
    at = moment === null || moment >= until ? null : Math.max(state.began, moment);
    remember({ at: at === null ? null : at.toFixed(3) });
    showMoment();
    clearTimeout(again);
    again = setTimeout(() => load().catch((error) => replace(trouble, failed(error))), 60);
  }

  // Live: one stream for all of the page.
  let seriesAt = 0;
  function hear(message) {
    if (message.hello !== undefined) { // what this page was told of first may be newer than what it has read, or older
      document.body.dataset.event = message.hello;
      if (message.hello && message.hello !== state.event && at === null) load().catch(() => {});
      return;
    }
    until = Math.max(until, message.time);
    Object.assign(state, { store: message.state, problem: message.problem });
    if (at === null) {
      if (message.anew) load().catch(() => {});
      else {
        const rows = new Map(message.players.map((one) => [one.slot, one]));
        for (const row of state.players) if (rows.has(row.slot)) Object.assign(row, rows.get(row.slot));
        if (rows.size) standings.update(state.players);
        for (const one of message.cells) rates.set(...one);
        if (shown === "rates" && message.cells.length) map.redraw();
        Object.assign(state, { time: message.time, event: message.event, matches: message.matches, periods: message.periods, processes: message.processes, counters: message.counters });
        showMoving();
      }
    }
    showMoment();
    document.body.dataset.event = message.event;
    if (performance.now() > seriesAt) { seriesAt = performance.now() + 5000; loadSeries().catch(() => {}); rest.load(); if (shown === "returns") drawMap(true).catch(() => {}); }
  }

  await load();
  for (const chart of all) chart.from(state.began);
  replace(main, h("h1", {}, run), bar, trouble, figures, player, cell,
    panel("Standings", standings, () => state.players, "Choose a player to see its figures and to play against it. ?: few opponents or games. Intervals of Elo take the others' ratings as they are."),
    gainsPanel,
    h("div", { class: "columns" }, h("section", { class: "panel tall" }, map), [ratings, charts.exploitability, charts.shares, charts.references].map((one) => h("section", { class: "panel" }, one))),
    h("section", { class: "panel" }, tree),
    h("div", { class: "columns" }, panel("Who plays whom", matches, () => state.matches), panel("Learning periods", periods, () => state.periods)),
    h("div", { class: "columns" }, [charts.steps, charts.matches, charts.age, charts.stale, charts.returns].map((one) => h("section", { class: "panel" }, one))),
    panel("Processes", processes, () => state.processes, "as the league heard of them: requests and results of actors, periods of learners"),
    rest.element, settingsPanel(run));
  showMoment();
  if (query().get("home") && query().get("away")) openCell(query().get("home"), query().get("away"));
  await loadSeries();
  rest.load();
  const source = new EventSource(address("/api/events", { run }));
  source.onmessage = (event) => hear(JSON.parse(event.data));
  source.onerror = () => { status.textContent = "◌ the dashboard does not answer"; };
  source.onopen = () => showMoment();
  addEventListener("pagehide", () => source.close());
}
