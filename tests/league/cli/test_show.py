"""`python -m league.show`: prints what the league holds."""

from __future__ import annotations

import io
import json
import os
import pty
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from safetensors.numpy import save
from support.store_fixtures import store_on
from support.waiting import PATIENCE, until

from league.cli import show
from league.cli.overview import balance, overview, payoff
from league.matchmaking import KINDS
from league.matchmaking.view import ModelRef
from league.models.pool import Pool
from league.redis.pause_reasons import PauseReasons
from league.redis.shared_score import SharedScore
from league.redis.store import Store
from league.state.periods import Periods

SCORE = {
    "time": 0.0, "main_agent": None, "mixture": 0.2034, "uniform": 2.37,
    "gain_within": [0.0, 0.05], "shares_by_kind": {"main_agent": 0.75, "psro": 0.25},
    "frozen_by_kind": {"main_agent": 12, "psro": 3}, "alpha_rank": {"main@1200": 0.9, "main@3": 0.1},
}  # fmt: skip
WEIGHTS = save({"layer": np.arange(400, dtype=np.float32)})


@pytest.fixture
def store(redis_url: str, run_name: str) -> Store:
    return store_on(redis_url, f"warren.{run_name}")


@pytest.fixture
def pool(store: Store, run_name: str) -> Pool:
    return Pool(store.redis, f"warren.{run_name}:")


@pytest.fixture
def played(store: Store, pool: Pool) -> Store:
    """Return a league: main has beaten rival and is in training and matches; others are frozen, paused or removed."""
    for name in ("main", "rival", "idle", "gone"):
        store.add_player(name, "self_play")
    pool.put("main", 3, 300, WEIGHTS)
    pool.freeze("main", 3)
    period = Periods(store).open("main", "learner-0", 3600.0)
    Periods(store).progress(period, 12_345, 3600.0)
    store.snapshot("main", 3)
    for outcome in "wwwl":
        store.report(store.issue("main", "rival", "actor-1", 60.0).id, outcome)
    store.report("nobody's", "w")
    store.abort(store.issue("main", "rival", "actor-1", 60.0).id)
    store.issue("rival", "main@3", "actor-2", 7200.0, match="long")
    store.issue("rival", "main", "actor-2", 0.001, match="over")
    store.pause("idle")
    store.remove("gone")
    return store


@pytest.fixture
def command(run_command):  # type: ignore[no-untyped-def]
    return partial(run_command, show.main)


def test_the_reason_for_a_pause_is_shown_until_the_player_is_resumed(played: Store, command) -> None:  # type: ignore[no-untyped-def]
    played.pause("rival")
    PauseReasons(played).note("rival", "its learner died 5 times")
    assert "rival is paused: its learner died 5 times" in command()[1]
    reasons = {row["player"]: row["reason"] for row in json.loads(command("--json")[1])["players"]}
    assert {name: why for name, why in reasons.items() if why} == {"rival": "its learner died 5 times"}
    played.resume("rival")
    assert "died 5 times" not in command()[1]


def test_the_json_output_holds_every_table(played: Store, pool: Pool, command) -> None:  # type: ignore[no-untyped-def]
    status, out, _ = command("--json")
    found = json.loads(out)
    assert status == 0
    rows = {row["player"]: row for row in found["players"]}
    assert {name: row["state"] for name, row in rows.items()} == {
        "main": "learning", "main@3": "frozen", "rival": "learning", "idle": "paused", "gone": "removed",
    }  # fmt: skip
    assert [row["player"] for row in found["players"]][-1] == "gone"
    main = rows["main"]
    assert (main["games"], main["steps"], main["period"], main["period_open"]) == (3.9, 12_345, 1, True)
    assert main["win_rate"] == pytest.approx(played.load().win_rates(0, np.array([1]))[0], abs=1e-4)
    assert rows["main@3"]["parent"] == "main" and rows["main@3"]["model"] == "main@3"
    assert rows["main"]["elo"] > 1200 > rows["rival"]["elo"]
    assert rows["idle"]["win_rate"] is None

    assert [(row["match"], row["holder"], row["home"], row["away"]) for row in found["matches"]] == [
        ("over", "actor-2", "rival", "main"),
        ("long", "actor-2", "rival", "main@3"),
    ]
    assert found["matches"][0]["lease_left"] < 0 < 7000 < found["matches"][1]["lease_left"] <= 7200
    (period,) = found["periods"]
    assert (period["player"], period["learner"], period["period"]) == ("main", "learner-0", 1)
    assert 3400 < period["lease_left"] <= 3600
    counters = found["counters"]
    assert counters["issued"] == 7 and counters["missing"] == 0
    assert [counters[name] for name in ("counted", "expired", "aborted", "open")] == [4, 0, 1, 2]
    assert counters["refused:unknown"] == 1 and counters["aborted:actor"] == 1
    assert found["pool"] == {
        "models": 1, "frozen": 1, "spilled": 0, "redis_bytes": len(WEIGHTS), "disk_bytes": 0,
    }  # fmt: skip


def test_a_league_with_a_kind_of_its_own_is_shown(played: Store, command, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setitem(KINDS._entries, "nemesis", KINDS["best_response"])
    played.add_player("nemesis", "nemesis")
    monkeypatch.delitem(KINDS._entries, "nemesis")  # its module is imported by the league's workers alone
    status, out, error = command()
    assert (status, error) == (0, "") and "nemesis" in out


@pytest.mark.parametrize("option", ["--every=nan", "--every=inf", "--every=-1", "--rows=0", "--rows=-1", "--width=-3"])
def test_numbers_that_cannot_be_shown_are_refused(played: Store, command, option: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(SystemExit, match="2"):
        command("--watch", "--json", option)


def test_the_payoff_is_cut_to_a_width_and_keeps_learning_players(played: Store) -> None:
    state = played.load()
    whole = payoff(state, 10)
    assert whole["players"][0] == "main" and whole["players"][-1] == "rival" and whole["left_out"] == 0
    place = {name: number for number, name in enumerate(whole["players"])}
    assert len(place) == 4  # the removed player is not in it
    assert whole["win_rates"][place["main"]][place["rival"]] > 0.7
    assert whole["win_rates"][place["rival"]][place["main"]] < 0.3
    assert whole["win_rates"][place["main"]][place["idle"]] is None
    few = payoff(state, 3)
    assert (set(few["players"]), few["left_out"]) == ({"main", "rival", "idle"}, 1)
    assert payoff(state, 0)["win_rates"] == []


def test_a_spilled_model_that_a_reader_waits_for_is_named(played: Store, pool: Pool) -> None:
    assert pool.spill(ModelRef("main", 3))
    pool.redis.rpush(f"{pool.prefix}wanted", "", "main@3", "main@3")
    found = overview(played, pool, 10)
    assert found["wanted"] == ["main@3"]
    assert found["pool"]["spilled"] == 1 and found["pool"]["disk_bytes"] == len(WEIGHTS)
    assert "brings them back: main@3" in show.pool_text(found["pool"], found["wanted"]).plain


def test_missing_matches_are_printed_and_set_the_exit_status(played: Store, command) -> None:  # type: ignore[no-untyped-def]
    assert "issued 7 = counted 4 + expired 0 + aborted 1 + open 2  holds" in command()[1]
    played.redis.hincrby(f"{played.prefix}counters", "counted", -1)
    status, out, _ = command()
    assert status == 1 and "DIFFERS by 1" in out
    assert balance({"issued": 2, "counted": 3}, 1)["missing"] == -2


def rendered(store: Store, pool: Pool, width: int = 120, rows: int = 40) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    console.print(show.page(overview(store, pool, width // 5), "a-run", width, rows))
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_every_table_is_printed_within_the_width(played: Store, pool: Pool) -> None:
    lines = rendered(played, pool).splitlines()
    text = "\n".join(lines)
    assert lines[0].startswith("league of run a-run: 5 players (2 learning, 1 paused, 1 frozen, 1 removed)")
    (row,) = [line.split() for line in lines if line.startswith("main ") and "self_play" in line and "open" in line]
    assert row[:3] == ["main", "self_play", "learning"] and row[-2:] == ["1", "open"]
    (rates,) = [line.split() for line in lines if line.startswith("main ") and "·" in line]
    assert "75" in rates
    for part in (
        "learner-0",
        "actor-2",
        "main@3",
        "? provisional: fewer than 3 opponents met, or 30 games played",
        "refused:unknown 1",
        "models   1 (1 frozen)",
    ):
        assert part in text
    assert all(len(line) <= 120 for line in lines)


def test_a_large_league_is_cut_to_the_given_width_and_rows(store: Store, pool: Pool) -> None:
    for number in range(30):
        store.add_player(f"player-with-a-long-name-{number}", "random")
        store.issue("player-with-a-long-name-0", f"player-with-a-long-name-{number}", "actor", 60.0)
    lines = rendered(store, pool, width=80, rows=5).splitlines()
    assert max(map(len, lines)) <= 80 and len(lines) < 40
    assert "25 more players" in "\n".join(lines) and "25 more open matches" in "\n".join(lines)


def test_open_matches_are_counted_by_holder_and_players(store: Store, pool: Pool) -> None:
    for name in ("main", "rival"):
        store.add_player(name, "random")
    for holder, number in (("actor-1", 7), ("actor-2", 5)):
        for _ in range(number):
            store.issue("main", "rival", holder, 60.0)
    store.issue("rival", "main", "actor-2", 6.0)
    lines = [line.split() for line in rendered(store, pool, width=80).splitlines() if line.startswith("actor-")]
    assert [line[:4] for line in lines] == [
        ["actor-2", "rival", "main", "1"],
        ["actor-1", "main", "rival", "7"],
        ["actor-2", "main", "rival", "5"],
    ]


def test_a_player_of_few_opponents_or_games_has_a_provisional_rating(store: Store, pool: Pool) -> None:
    for name in ("main", "old", "older", "new"):
        store.add_player(name, "random")
    for _ in range(5):
        for other in ("old", "older", "new"):
            store.report(store.issue("main", other, "actor", 60.0).id, "wld")
    rows = {row["player"]: row for row in overview(store, pool, 10)["players"]}
    assert {name: row["provisional"] for name, row in rows.items()} == {
        "main": False, "old": True, "older": True, "new": True,
    }  # fmt: skip
    reach = {name: row["elo_upper"] - row["elo_lower"] for name, row in rows.items()}
    assert all(reach["main"] < reach[name] for name in ("old", "older", "new"))
    main = rows["main"]
    assert f"{main['elo_lower']:.0f} to {main['elo_upper']:.0f}" in rendered(store, pool, width=160)


def test_long_names_fit_into_80_columns(store: Store, pool: Pool) -> None:
    for number in range(6):
        store.add_player(f"league_exploiter_{number}-1200", "league_exploiter")
    names = [player.name for player in store.view().roster]
    for other in names[1:]:
        for _ in range(10):
            store.report(store.issue(names[0], other, "actor-0-somehost", 60.0).id, "wld" * 30)
    store.issue(names[0], names[1], "actor-0-somehost", 60.0)
    text = rendered(store, pool, width=80)
    assert max(map(len, text.splitlines())) <= 80 and "…" not in text
    assert all(text.count(name) >= 2 for name in names) and "state" in text and "Elo" in text


def test_learning_players_are_shown_however_weak_they_are(store: Store, pool: Pool) -> None:
    for number in range(12):
        store.add_player(f"old-{number}", "random", frozen=True, model=ModelRef("main", 1))
    store.add_player("main", "random")
    for number in range(12):
        store.report(store.issue("main", f"old-{number}", "actor", 60.0).id, "l")
    found = overview(store, pool, 10)
    assert found["players"][-1]["player"] == "main"
    for table in (show.standings_table(found["players"], 120, 5), show.payoff_table(found["payoff"], 120, 5)):
        assert table.row_count == 5 and list(table.columns[0].cells)[-1] == "main"


def test_watching_reads_a_large_league_at_most_a_tenth_of_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, slept = [0.0], []
    monkeypatch.setattr(show.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(show.time, "sleep", slept.append)
    durations = iter((0.1, 1.0, 0.2))

    def read() -> dict[str, object]:
        clock[0] += next(durations)
        return {}

    found = show.readings(read, every=2.0)
    for _ in range(3):
        next(found)
    assert slept == pytest.approx([2.0, 9.0])


def test_a_player_frozen_in_its_period_has_no_open_period(played: Store, pool: Pool) -> None:
    played.freeze("main", ModelRef("main", 3))
    found = overview(played, pool, 10)
    assert found["periods"] == [] and not any(row["period_open"] for row in found["players"])


def test_an_empty_league_is_shown_and_a_run_without_a_league_is_refused(
    store: Store, pool: Pool, command, run_name: str
) -> None:  # type: ignore[no-untyped-def]
    status, out, _ = command()
    assert status == 0 and "0 players (none)" in out and "issued 0 = counted 0" in out
    status, _, error = command("--run", run_name + "-other")
    assert status == 2 and "does not exist; did you mean" in error and run_name in error
    assert command("--run", "")[0] == 2


def test_watching_prints_again_and_again_until_ctrl_c(played: Store, redis_url: str, run_name: str) -> None:
    arguments = ["--redis", redis_url, "--run", run_name, "--watch", "--json", "--every", "0.05"]
    process = subprocess.Popen([sys.executable, "-m", "league.show", *arguments], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    first = json.loads(process.stdout.readline())
    played.report("long", "d")
    until(lambda: json.loads(process.stdout.readline())["counters"]["counted"] == 5)  # type: ignore[union-attr]
    process.send_signal(signal.SIGINT)
    with process.stdout as rest:
        rest.read()  # to the end: if its reader went at the same moment, that could be what ends it
    assert process.wait(PATIENCE) == 0 and first["counters"]["counted"] == 4


def test_watching_ends_when_its_reader_closes_the_pipe(played: Store, redis_url: str, run_name: str) -> None:
    arguments = ["--redis", redis_url, "--run", run_name, "--watch", "--json", "--every", "0.05"]
    pipes = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
    process = subprocess.Popen([sys.executable, "-m", "league.show", *arguments], text=True, **pipes)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(PATIENCE) == 0 and process.stderr.read() == ""


def test_watching_in_a_terminal_uses_the_alternate_screen_until_it_ends(
    played: Store, redis_url: str, run_name: str, tmp_path: Path
) -> None:
    ours, theirs = pty.openpty()
    arguments = ["--redis", redis_url, "--run", run_name, "--watch", "--every", "0.05"]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "30"}
    process = subprocess.Popen([sys.executable, "-m", "league.show", *arguments], stdout=theirs, env=environment)
    os.close(theirs)
    seen = b""
    while seen.count(b"league of run") < 2:
        seen += os.read(ours, 65536)
    process.send_signal(signal.SIGINT)
    while b"\x1b[?1049l" not in seen:  # back from the alternate screen
        seen += os.read(ours, 65536)
    assert process.wait(PATIENCE) == 0
    os.close(ours)
    assert b"\x1b[?1049h" in seen and b"main" in seen


def test_a_lost_redis_is_reported_in_one_line(played: Store, command, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    def gone(*_: object) -> None:
        raise show.existing.__globals__["redis"].ConnectionError("connection refused")

    monkeypatch.setattr(show, "overview", gone)
    status, _, error = command()
    assert status == 2 and error.startswith("error: Redis failed (connection refused)") and error.count("\n") == 1


def test_the_newest_score_of_the_evaluator_is_shown(played: Store, pool: Pool) -> None:
    assert overview(played, pool, 5)["strength"] is None
    SharedScore(played.redis, played.prefix).put({**SCORE, "time": played.redis.time()[0] - 30})
    found = overview(played, pool, 5)
    said = show.strength_text(found["strength"], found["time"]).plain
    assert "exploitability mixture 0.2034, uniform play 2.37; the mixture's best member gains 0 to 0.05 (3" in said
    assert "mixture  main_agent 75% (12 frozen), psro 25% (3 frozen)" in said
    assert "ranked   main@1200 0.900, main@3 0.100" in said
    out = io.StringIO()
    Console(file=out, width=200).print(show.page(found, "test", 200))
    assert said.splitlines()[1] in out.getvalue()
    exact = {**found["strength"], "gain_within": [0.2034, 0.2034]}  # the mixture withstands best responses
    assert "best member" not in show.strength_text(exact, found["time"]).plain


def test_best_responses_are_shown_with_their_budget_and_gain(played: Store, pool: Pool, command) -> None:  # type: ignore[no-untyped-def]
    assert "best response" not in command()[1]
    played.add_player("hunter", "best_response", {"opponent": "main@3", "budget": 100_000})
    played.add_player("other", "best_response", {"budget": "2%"})
    Periods(played).progress(Periods(played).open("hunter", "learner-1", 3600.0), 63_000, 3600.0)
    measured = {"response": "hunter@7", "target": "main@3", "games": 4096, "mean": 0.25, "lower": 0.2, "upper": 0.31}
    SharedScore(played.redis, played.prefix).put({**SCORE, "gains": {"hunter": measured}})
    out = io.StringIO()
    Console(file=out, width=200).print(show.page(overview(played, pool, 5), "test", 200))
    lines = [line.split() for line in out.getvalue().splitlines()]
    said = "hunter main@3 63,000 of 100,000 hunter@7 +0.2500 +0.2000 to +0.3100 main@3"
    unmeasured = "other the mixture 0 of 2% not measured yet"
    assert said.split() in lines and unmeasured.split() in lines
    rows = {row["player"]: row for row in json.loads(command("--json")[1])["responses"]}
    assert rows["hunter"] == {"player": "hunter", "opponent": "main@3", "budget": "100000", "spent": 63_000, **measured}
    assert rows["other"]["mean"] is None
    exact = {**measured, "games": 0}
    SharedScore(played.redis, played.prefix).put({**SCORE, "gains": {"hunter": exact}})
    assert "+0.2500 exact" in " ".join(command()[1].split())
