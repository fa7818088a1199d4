// Which page an address means.

import { address, failed, get, h, query, replace } from "./dom.js";
import { leaguePage } from "./league.js";
import { comparePage, listPage } from "./runs.js";
import { matchPage, playPage } from "./games.js";

const main = document.getElementById("main"), crumbs = document.getElementById("crumbs");

async function open() {
  const run = query().get("run");
  if (run) { document.title = `${run} · Warren`; replace(crumbs, "› ", h("a", { href: address("/run", { run }) }, run)); }
  switch (location.pathname) {
    case "/run": {
      const { summary } = await get("/api/run", { run });
      return summary.kind === "league" ? leaguePage(main, run) : comparePage(main, [run]);
    }
    case "/compare": return comparePage(main, query().getAll("run"));
    case "/match": return matchPage(main, run);
    case "/play": return playPage(main, run);
    default: return listPage(main);
  }
}

open().then(() => { document.body.dataset.ready = "1"; }).catch((error) => replace(main, failed(error)));
