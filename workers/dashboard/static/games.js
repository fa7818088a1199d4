// Games: a recorded match move by move, and a person's game against a player.

import { address, clock, failed, get, h, number, percent, post, query, remember, replace, short } from "./dom.js";
import { board } from "./board.js";
import { sortable } from "./table.js";

export async function matchPage(main, run) {
  const match = query().get("match");
  let game = Number(query().get("game") ?? 1), place = Number(query().get("move") ?? 0), found = null;
  const shown = h("div", { class: "game" }), said = h("p", { "aria-live": "polite" }), title = h("h1");
  const range = h("input", { type: "range", min: 0, value: 0, "aria-label": "move" }), games = h("input", { type: "number", min: 1, "aria-label": "game" });
  const of = h("span"), moves = h("ol", { class: "moves" }), film = h("span");
  const go = (to) => { place = Math.max(0, Math.min(found.moves.length, to)); draw(); };
  const step = (by) => { stop(); go(place + by); };
  range.addEventListener("input", () => { stop(); go(Number(range.value)); });
  games.addEventListener("change", () => { stop(); game = Number(games.value); place = 0; load().catch((error) => replace(shown, failed(error))); });

  // A game that draws itself is shown by its own pictures: each move's, one after the other as a film when it is played.
  const picture = h("img", { class: "picture", alt: "" });
  let running = null, asked = "";
  const drawPicture = () => new Promise((resolve) => {
    const wanted = address("/api/picture", { run, match, game, move: place });
    if (wanted === asked) { resolve(); return; }
    asked = wanted;
    picture.onload = picture.onerror = resolve;
    picture.alt = `the game before move ${place + 1}, as it draws itself`;
    picture.src = wanted;
  });
  const play = h("button", { type: "button", "aria-pressed": "false", onclick: () => { if (running) stop(); else start(); } }, "play");
  function stop() { clearTimeout(running); running = null; play.textContent = "play"; play.setAttribute("aria-pressed", "false"); }
  function start() {
    play.textContent = "stop";
    play.setAttribute("aria-pressed", "true");
    if (place >= found.moves.length) go(0);
    const next = async () => {
      if (place >= found.moves.length) { stop(); return; }
      const mine = running;
      go(place + 1);
      if (found.drawn) await drawPicture();
      if (running === mine) running = setTimeout(next, found.moves.length < 200 ? 600 : 60);
    };
    running = setTimeout(next, 300);
  }
  function draw() {
    remember({ game, move: place || null });
    range.value = String(place);
    const over = place >= found.moves.length, move = found.moves[place], last = found.moves[place - 1];
    const position = over ? (found.end.text || found.end.board ? found.end : last ?? found.end) : move;
    if (found.drawn) drawPicture();
    const kept = shown.querySelector("details")?.open ?? false;
    replace(shown, found.drawn ? [picture, h("details", { open: kept }, h("summary", {}, "as text"), board(position))] : board(position));
    const ended = `the game is over: player 0 ${number(found.returns[0], 2)}, player 1 ${number(found.returns[1], 2)}`;
    said.textContent = `${last ? `${last.player} (player ${last.seat}) played ${last.action}; ` : ""}${over ? ended : `${move.player} (player ${move.seat}) is to move`}`;
    [...moves.children].forEach((one, at) => one.classList.toggle("chosen", at === place - 1));
  }
  async function load() {
    found = await get("/api/match", { run, match, game });
    title.textContent = `${found.home} against ${found.away}`;
    range.max = String(found.moves.length);
    games.value = String(found.game);
    games.max = String(found.games);
    of.textContent = ` of ${found.games}, ${clock(found.time)}`;
    replace(film, found.drawn ? h("a", { href: address("/api/film", { run, match, game }), download: `${match}-${game}.gif` }, "as a film (GIF)") : null);
    replace(moves, found.moves.map((move, at) => h("li", {}, h("button", { type: "button", class: "link", onclick: () => { stop(); go(at + 1); } }, `${move.player}: ${move.action}`))));
    draw();
  }
  replace(main, title, h("p", {}, "game ", games, of, " ", film), h("div", { class: "moments" }, h("button", { type: "button", "aria-label": "back", onclick: () => step(-1) }, "◀"), range, h("button", { type: "button", "aria-label": "on", onclick: () => step(1) }, "▶"), play), said,
    h("div", { class: "columns" }, shown, moves));
  await load();
}

export async function playPage(main, run) {
  const player = query().get("player") ?? "main";
  let game = null, views = false, busy = false;
  const table = h("div", { class: "game" }), legal = h("div", { class: "legal", role: "group", "aria-label": "legal moves" }), said = h("p", { "aria-live": "polite", role: "status" });
  const log = h("ol", { class: "moves" }), view = h("div", { class: "view" });
  const seat = h("select", { id: "seat" }, h("option", { value: "0" }, "first"), h("option", { value: "1" }, "second"), h("option", { value: "" }, "by lot"));
  const greedy = h("input", { type: "checkbox", id: "greedy" });
  const person = h("input", { type: "text", id: "person", size: 10, maxlength: 100, placeholder: "your name", autocomplete: "nickname", "aria-label": "your name, for a rating" });
  const rated = h("input", { type: "checkbox", id: "rated", onchange: () => { greedy.disabled = rated.checked; if (rated.checked) { greedy.checked = false; person.focus(); } } });
  const begin = h("button", { type: "button", onclick: () => ask("/api/play", { run, player, seat: seat.value === "" ? null : Number(seat.value), greedy: greedy.checked, rated: rated.checked ? person.value.trim() : null }) }, "begin a game");
  const showing = h("input", { type: "checkbox", id: "views", onchange: () => { views = showing.checked; draw(); } });

  function seen(title, one) {
    const rows = Object.entries(one.probabilities).map(([move, share]) => ({ move, share })).sort((a, b) => b.share - a.share);
    return h("section", {}, h("h3", {}, title), one.value === null ? null : h("p", {}, `value ${short(one.value)}`),
      sortable({ title, rows, columns: [{ name: "move", title: "move" }, { name: "share", title: "probability", number: true, show: (row) => [h("meter", { min: 0, max: 1, value: row.share, "aria-hidden": "true" }), ` ${percent(row.share)}`] }] }));
  }
  function draw() {
    if (!game) return;
    const mine = game.returns ? game.returns[game.seat] : null;
    said.textContent = game.over ? `The game is over: ${mine > 0 ? "you won" : mine < 0 ? "you lost" : "a draw"} (${number(mine, 2)}). ${game.rating ?? ""}` : `You are player ${game.seat}; it is your move.${game.rated ? ` The game counts for ${game.rated}'s rating.` : ""}`;
    replace(table, board(game));
    replace(legal, game.legal.map((one) => h("button", { type: "button", class: "move", disabled: busy, onclick: () => ask("/api/move", { game: game.game, action: one.action }) }, one.name)));
    replace(log, game.moves.map((one) => h("li", {}, `${one.by}: ${one.action}`, views && one.view && one.by !== "you" ? ` (${percent(one.view.probabilities[one.action])}, value ${short(one.view.value)})` : "")));
    const last = game.moves.findLast((one) => one.view && one.by !== "you");
    replace(view, views && game.rated && !game.over ? h("p", { class: "dim" }, "a rated game shows the player's view at its end") : views ? [game.view ? seen(`What ${game.opponent} would do in your place`, game.view) : null, last ? seen(`Its last decision: ${last.action}`, last.view) : null] : []);
    if (!game.over) legal.querySelector("button")?.focus();
  }
  async function ask(path, given) {
    if (busy) return;
    busy = true;
    said.textContent = "It thinks… (the first game loads its weights)";
    for (const one of legal.querySelectorAll("button")) one.disabled = true;
    try { game = await post(path, given); busy = false; draw(); } catch (error) { busy = false; draw(); replace(view, failed(error)); said.textContent = ""; }
  }
  replace(main, h("h1", {}, `Play against ${player}`), h("p", { class: "setup" }, h("label", { for: "seat" }, "you move "), seat, " ", h("label", {}, greedy, " it always takes its likeliest move"), " ", h("label", {}, rated, " rated, for "), person, " ", begin, " ", h("label", {}, showing, " show its view")),
    h("p", { class: "dim" }, "Rated games count while the run goes on, against a player that is in the league now."),
    said, h("div", { class: "columns" }, h("div", {}, table, legal), h("div", {}, log, view)));
}
