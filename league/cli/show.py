"""Show a league as it is now: standings, payoff, open matches and periods, counters, and the pool.

    python -m league.show --redis URL --run NAME          # once
    python -m league.show --run NAME --watch              # until Ctrl-C
    python -m league.show --run NAME --json               # one JSON object (with --watch: one a line)

Exit status 1 when matches are missing: issued = counted + expired + aborted + open holds at every moment.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from league.cli.overview import FEW_GAMES, FEW_OPPONENTS, Row, overview
from league.cli.tables import output, table
from league.empirical_game.least_exploitable import members_gain
from league.models.command_line import add_source, existing, guarded
from warren import arguments

ROWS = 40  # rows of a table, unless more are asked for
JSON_WIDTH = 100  # players in the payoff where no terminal bounds it, unless more are asked for
CELL = 3  # characters of a win rate in %
BUSY = 9.0  #  --watch waits at least this many times as long as reading the league takes
LONGEST = 86_400.0  # s between two tables at most
FIXED_ROWS = 19  # rows of a screen for headings, counters, the pool and strength
STYLES = {"learning": "bold", "paused": "yellow", "frozen": "", "removed": "dim strike"}


def title(found: Row, run: str) -> Text:
    """Return the first line: the run, the number of players, and the time."""
    states = [row["state"] for row in found["players"]]
    counts = ", ".join(f"{states.count(state)} {state}" for state in STYLES if state in states)
    moment = datetime.fromtimestamp(found["time"], UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return Text(f"league of run {run}: {len(states)} players ({counts or 'none'}), {moment}", style="bold")


def standings_table(players: list[Row], width: int, rows: int) -> Table:
    """Return a table with one row per player."""
    shown = [players[place] for place in kept([row["state"] for row in players], rows)]
    columns = {
        "player": [row["player"] for row in shown],
        "kind": [row["kind"] for row in shown],
        "state": [row["state"] for row in shown],
        "parent": [row["parent"] or "" for row in shown],
        ">games": [f"{row['games']:,.0f}" for row in shown],
        ">win rate": ["" if row["win_rate"] is None else f"{row['win_rate']:.3f}" for row in shown],
        ">Elo": [f"{row['elo']:.0f}{'?' if row['provisional'] else ' '}" for row in shown],
        ">95 %": [f"{row['elo_lower']:.0f} to {row['elo_upper']:.0f}" for row in shown],
        ">gen.": [str(row["generation"]) for row in shown],
        ">steps": [f"{row['steps']:,}" if row["steps"] else "" for row in shown],
        ">period": [f"{row['period'] or ''}{' open' if row['period_open'] else ''}" for row in shown],
    }
    styles = [STYLES[row["state"]] for row in shown]
    notes = [_more(len(players) - len(shown), "players")]
    if any(row["provisional"] for row in shown):
        notes.append(f"? provisional: fewer than {FEW_OPPONENTS} opponents met, or {FEW_GAMES} games played")
    spare = ("parent", ">gen.", "kind", ">period", ">games", ">steps", ">95 %")
    return table(columns, width, spare, styles, caption="\n".join(filter(None, notes)))


def payoff_table(payoff: Row, width: int, rows: int) -> Table:
    """Return a table of win rates in %, of the row against the column; numbers above name the players of the rows."""
    names, rates = payoff["players"], payoff["win_rates"]
    longest = max((len(name) for name in names), default=0)
    places = kept(payoff["states"], max(1, min(rows, (width - longest - 5) // (CELL + 1))))
    columns: dict[str, list[str | Text]] = {
        "win rate, %": [names[place] for place in places],
        ">": [str(number) for number in range(1, len(places) + 1)],
    }
    for number, other in enumerate(places, 1):
        columns[f">{number}"] = [_rate(rates[place][other]) for place in places]
    left_out = len(names) + payoff["left_out"] - len(places)
    return table(columns, width, caption=_more(left_out, "players"), padding=1)


def people_table(people: list[Row], width: int, rows: int) -> Table:
    """Return a table with one row per person with rated games."""
    shown = people[:rows]
    columns = {
        "person": [row["person"] for row in shown],
        ">games": [f"{row['games']:,}" for row in shown],
        ">mean return": [f"{row['mean_return']:+.3f}" for row in shown],
        ">outcomes": [f"{row['outcomes']:,}" for row in shown],
        ">Elo": [f"{row['elo']:.0f}" for row in shown],
        ">95 %": [f"{row['elo_lower']:.0f} to {row['elo_upper']:.0f}" for row in shown],
        "against": [", ".join(row["opponents"]) for row in shown],
    }
    return table(columns, width, ("against", ">outcomes"), caption=_more(len(people) - len(shown), "people"))


def responses_table(responses: list[Row], width: int, rows: int) -> Table:
    """Return a table with one row per player of kind best_response."""
    shown = responses[:rows]
    columns = {
        "best response": [row["player"] for row in shown],
        "to": [row["opponent"] for row in shown],
        ">spent of its budget": [_spent(row) for row in shown],
        "newest frozen": [row["response"] or "" for row in shown],
        ">gain": ["" if row["mean"] is None else f"{row['mean']:+.4f}" for row in shown],
        ">interval": [_interval(row) for row in shown],
        "from": [row["target"] or "" for row in shown],
    }
    return table(columns, width, ("from",), caption=_more(len(responses) - len(shown), "best responses"))


def matches_table(matches: list[Row], width: int, rows: int) -> Table:
    """Return a table of open matches, grouped by holder and pair; the pairs whose leases end first come first."""
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for match in matches:  # in the order of their leases' ends
        groups.setdefault((match["holder"], match["home"], match["away"]), []).append(match)
    shown = dict(list(groups.items())[:rows])
    first = [held[0] for held in shown.values()]
    columns = {
        "matches held by": [holder for holder, _, _ in shown],
        "home": [home for _, home, _ in shown],
        "away": [away for _, _, away in shown],
        ">open": [f"{len(held):,}" for held in shown.values()],
        **_leases(first, "first lease left, s"),
    }
    more = sum(map(len, groups.values())) - sum(map(len, shown.values()))
    return table(columns, width, (">first lease left, s",), _late(first), caption=_more(more, "open matches"))


def periods_table(periods: list[Row], width: int, rows: int) -> Table:
    """Return a table of open learning periods and their holders."""
    shown, more = periods[:rows], max(0, len(periods) - rows)
    cells = {
        "learning period of": [row["player"] for row in shown],
        "held by": [row["learner"] for row in shown],
        ">number": [str(row["period"]) for row in shown],
        ">steps": [f"{row['steps']:,}" for row in shown],
    }
    spare = (">number", ">steps")
    return table({**cells, **_leases(shown)}, width, spare, _late(shown), caption=_more(more, "open periods"))


def kept(states: Sequence[str], rows: int) -> list[int]:
    """Return the places of at most `rows` players, in their order: learning and paused ones are chosen first."""
    first = sorted(range(len(states)), key=lambda place: (states[place] not in ("learning", "paused"), place))
    return sorted(first[:rows])


def counters_text(counters: Row) -> Text:
    """Return the counts of matches, whether they add up, and why matches did not count."""
    parts = ("counted", "expired", "aborted", "open")
    line = Text(f"matches  issued {counters['issued']:,} = ")
    line.append(" + ".join(f"{name} {counters[name]:,}" for name in parts))
    if missing := counters["missing"]:
        line.append(f"  DIFFERS by {missing:,}: restore a snapshot, or ask league.replay where", style="bold red")
    else:
        line.append("  holds", style="green")
    reasons = [f"{name} {count:,}" for name, count in sorted(counters.items()) if ":" in name]
    return line.append(f"\ngames    {counters['games']:,}" + "".join(f"  {reason}" for reason in reasons))


def pool_text(pool: Row, wanted: list[str]) -> Text:
    """Return the size of the pool, and the spilled models that readers wait for."""
    line = Text(
        f"models   {pool['models']:,} ({pool['frozen']:,} frozen), {pool['redis_bytes'] / 1e6:,.1f} MB in Redis"
    )
    if pool["spilled"]:
        line.append(f"; {pool['spilled']:,} spilled, {pool['disk_bytes'] / 1e6:,.1f} MB on disk")
    if wanted:
        line.append(f"\nwaited for until a keeper brings them back: {', '.join(wanted)}", style="yellow")
    return line


def strength_text(score: Row, now: float) -> Text:
    """Return the evaluator's newest score: exploitability, kinds in the mixture, alpha-rank of its first members."""
    known = {"main": score["main_agent"], "mixture": score["mixture"], "uniform play": score["uniform"]}
    parts = [f"{name} {value:.4g}" for name, value in known.items() if value is not None]
    line = Text(f"strength exploitability {', '.join(parts) or 'not known of so large a game'}")
    if (gain := members_gain(score)) is not None:
        line.append(f"; the mixture's best member gains {gain[0]:.4g} to {gain[1]:.4g}")
    line.append(f" ({max(0.0, now - score['time']):.0f} s ago)", style="dim")
    shares, frozen = score["shares_by_kind"], score["frozen_by_kind"]
    if shares:
        of_each = ", ".join(f"{kind} {share:.0%} ({frozen[kind]:,} frozen)" for kind, share in shares.items())
        line.append(f"\nmixture  {of_each}")
    if score["alpha_rank"]:
        line.append("\nranked   " + ", ".join(f"{name} {share:.3f}" for name, share in score["alpha_rank"].items()))
    return line


def page(found: Row, run: str, width: int, rows: int = ROWS) -> Group:
    """Return the whole page for a terminal `width` characters wide; at most `rows` rows a table."""
    parts: list[RenderableType] = [title(found, run), counters_text(found["counters"])]
    parts.append(pool_text(found["pool"], found["wanted"]))
    if found["strength"] is not None:
        parts.append(strength_text(found["strength"], found["time"]))
    parts.append("")
    if found["players"]:
        parts += [standings_table(found["players"], width, rows), *_reasons(found["players"]), ""]
        parts.append(payoff_table(found["payoff"], width, rows))
    if found["responses"]:
        parts += ["", responses_table(found["responses"], width, rows)]
    if found["people"]:
        parts += ["", people_table(found["people"], width, rows)]
    if found["periods"]:
        parts += ["", periods_table(found["periods"], width, rows)]
    if found["matches"]:
        parts += ["", matches_table(found["matches"], width, rows)]
    return Group(*parts)


def _reasons(players: list[Row]) -> list[Text]:
    return [Text(f"{row['player']} is paused: {row['reason']}", style="yellow") for row in players if row["reason"]]


def _more(left_out: int, what: str) -> str:
    return f"{left_out:,} more {what}" if left_out > 0 else ""


def _spent(row: Row) -> str:
    budget = f"{int(row['budget']):,}" if row["budget"].isdigit() else row["budget"]
    return f"{row['spent']:,} of {budget}"


def _interval(row: Row) -> str:
    if row["mean"] is None:
        return "not measured yet"
    return f"{row['lower']:+.4f} to {row['upper']:+.4f}" if row["games"] else "exact"


def _leases(rows: Iterable[Row], heading: str = "lease left, s") -> dict[str, list[str]]:
    return {f">{heading}": [f"{row['lease_left']:,.1f}" for row in rows]}


def _late(rows: Iterable[Row]) -> list[str]:
    return ["yellow" if row["lease_left"] < 0 else "" for row in rows]


def _rate(rate: float | None) -> Text:
    if rate is None:
        return Text("·", style="dim")
    # Blue for a winner and orange for a loser: colours that nearly everybody can tell apart.
    style = "" if 0.45 <= rate <= 0.55 else "bright_blue" if rate > 0.5 else "dark_orange"
    return Text(f"{100 * rate:.0f}", style=style)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(prog="python -m league.show", description=(__doc__ or "").partition("\n")[0])
    add_source(made)
    made.add_argument("--watch", action="store_true", help="show it again and again, until Ctrl-C")
    every, count = arguments.number(0.0, LONGEST), arguments.whole(1)
    made.add_argument("--every", type=every, default=2.0, metavar="S", help="s between two tables of --watch")
    made.add_argument("--rows", type=count, help=f"rows of a table at most; default: {ROWS}, or what fits with --watch")
    made.add_argument("--width", type=count, help="players in the payoff at most; default: what fits")
    made.add_argument("--json", action="store_true", help="print JSON: everything, with numbers as they are")
    return made


def run(given: argparse.Namespace, console: Console | None = None) -> int:
    """Do what the command line asks."""
    console = console or output()
    store, pool = existing(given)
    fits = JSON_WIDTH if given.json else min(JSON_WIDTH, console.width // (CELL + 1))
    width = given.width if given.width is not None else fits

    def read() -> Row:
        return overview(store, pool, width)

    if given.watch:
        return watch(given, console, read)
    found = read()
    if given.json:
        print(json.dumps({"run": given.run, **found}))
    else:
        console.print(page(found, given.run, console.width, given.rows or ROWS))
    return 1 if found["counters"]["missing"] else 0


def watch(given: argparse.Namespace, console: Console, read: Callable[[], Row]) -> int:
    """Show the page again and again until Ctrl-C, which is how it is meant to end."""
    with contextlib.suppress(KeyboardInterrupt):
        try:
            if given.json or not console.is_terminal:
                for found in readings(read, given.every):
                    _print(given, console, found)
            with Live(console=console, screen=True, auto_refresh=False) as live:
                for found in readings(read, given.every):
                    rows = given.rows or max(4, (console.height - FIXED_ROWS) // 4)
                    live.update(page(found, given.run, console.width, rows), refresh=True)
        except BrokenPipeError:  # the reader has read enough; the rest is dropped
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def readings(read: Callable[[], Row], every: float) -> Iterator[Row]:
    """Yield what `read` returns, at most once every `every` s: reading a large league keeps Redis busy."""
    while True:
        began = time.monotonic()
        yield read()
        time.sleep(max(every, BUSY * (time.monotonic() - began)))


def _print(given: argparse.Namespace, console: Console, found: dict[str, Any]) -> None:
    if given.json:
        print(json.dumps({"run": given.run, **found}), flush=True)
    else:
        console.print(page(found, given.run, console.width, given.rows or ROWS), "")


def main(argv: list[str] | None = None) -> int:
    """Run the command line; exit status 1 when matches are missing, 2 for an error."""
    return guarded(lambda: run(parser().parse_args(argv)))
