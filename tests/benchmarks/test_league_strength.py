import io
import json
from dataclasses import replace
from itertools import count, pairwise
from pathlib import Path

import pytest

from benchmarks.league import strength
from benchmarks.league.curve import follow, settings
from workers.leagues.local import LocalLeague

pytestmark = pytest.mark.usefixtures("one_thread")


def curve(side, seed, values, game="rps", name="nash_mixture", **more):
    return [
        {"game": game, "side": side, "seed": seed, "seconds": float(second), name: value, **more}
        for second, value in enumerate(values)
    ]


def test_a_league_scores_by_its_end_and_self_play_by_its_second_half():
    lines = [
        *curve("league", 1, [0.9, 0.5, 0.04], main_agent=0.3),
        *curve("league", 2, [0.9, 0.5, 0.01], main_agent=0.1),
        *curve("league", 3, [0.9, 0.5, 0.02], main_agent=0.2),
        *curve("selfplay", 1, [0.1, 0.7, 0.9, 0.5, 0.8], name="main_agent"),
    ]
    found = strength.summary("rps", lines)
    assert found["rps_league"] == 0.02 and found["rps_league_by_seed"] == [0.04, 0.01, 0.02]
    assert found["rps_main_agent"] == 0.2
    assert found["rps_selfplay"] == 0.8  # of 0.9, 0.5, 0.8
    assert found["rps_selfplay_at_start"] == 0.1


def test_a_control_is_worth_its_mixture_at_the_end_beside_the_leagues():
    lines = [
        *curve("league", 1, [2.0, 0.2], "leduc", main_agent=0.4),
        *curve("control", 1, [2.0, 0.3], "leduc", main_agent=0.5),
        *curve("control", 2, [2.0, 0.1], "leduc", main_agent=0.7),
    ]
    found = strength.summary("leduc", lines)
    assert found["leduc_control"] == 0.2 and found["leduc_control_by_seed"] == [0.3, 0.1]
    assert found["leduc_control_main_agent"] == 0.6


def test_poker_has_the_names_of_its_sides():
    lines = [
        *curve("league", 1, [2.0, 0.2], "leduc", main_agent=0.4),
        *curve("nfsp", 1, [3.0, 2.0], "leduc", name="exploitability"),
        *curve("psro", 1, [4.0, 0.5], "leduc", name="exploitability"),
    ]
    found = strength.summary("leduc", lines)
    values = {name: found[f"leduc_{name}"] for name in ("nash_mixture", "main_agent", "nfsp", "psro")}
    assert values == {"nash_mixture": 0.2, "main_agent": 0.4, "nfsp": 2.0, "psro": 0.5}
    assert not any("psro_nash" in name or "selfplay" in name for name in found)


def test_every_side_has_the_same_time_and_seed(tmp_path):
    for game, sides in strength.SIDES.items():
        for side in sides:
            command = strength.command(game, side, 7, 12.0, tmp_path / "out.jsonl")
            options = dict(pairwise(command))
            assert (options["--seconds"], options["--seed"]) == ("12.0", "7")
            assert ("--self-play" in command) == (side == "selfplay")
            assert ("--control" in command) == (side == "control")
    psro = strength.command("leduc", "psro_nash", 1, 1.0, tmp_path / "out.jsonl")
    assert psro[3] == "psro" and psro[-2:] == ["--meta-strategy", "nash"]


def test_a_curve_starts_at_once_ends_in_time_and_can_be_read_and_drawn(tmp_path):
    out = io.StringIO()
    for side in ("league", "self_play"):
        league = LocalLeague(settings("rps", 1, side, ["games=64", "lanes=64"]))
        name = {"self_play": "selfplay"}.get(side, side)
        follow(league, 3.0, 0.5, out, clock=count(0.0, 0.25).__next__, game="rps", side=name, seed=1)
    path = tmp_path / "rps.jsonl"
    path.write_text(out.getvalue())
    runs = strength.by_run(strength.read(path))
    assert set(runs) == {("league", 1), ("selfplay", 1)}
    for found in runs.values():
        seconds = [line["seconds"] for line in found]
        assert seconds == [0.0, 0.5, 1.0, 1.5, 2.0, 2.5]  # a round takes a quarter of a second of this clock
        assert found[-1]["steps"] > found[0]["steps"] == 0
        assert found[0]["main_agent"] > 0.2  # it begins with a favourite
    strength.draw(tmp_path / "rps.png", "rps", strength.read(path), goal=0.05)
    assert (tmp_path / "rps.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("game", list(strength.SIDES))
def test_a_control_has_all_settings_of_the_league_but_its_other_players(game):
    league, control = settings(game, 3, "league"), settings(game, 3, "control")
    main, alone = league.players["main"], control.players.pop("main")
    assert control.players == {} and replace(control, players=league.players) == league
    assert (alone.updates, alone.hyperparameters) == (main.updates, main.hyperparameters)


def test_a_control_plays_itself_alone_and_is_scored_by_the_mixture_of_its_snapshots():
    schedule = [f"players.main.config.checkpoint_{name}_steps=2000" for name in ("min", "max")]
    small = ["games=64", "lanes=64", "match_games=64", "period_steps=1000", "evaluation_games=64", *schedule]
    control = LocalLeague(settings("kuhn", 1, "control", small))
    matches, out, request = [], io.StringIO(), control.league.request

    def kept(name):
        matches.append(request(name))
        return matches[-1]

    control.league.request = kept
    follow(control, 3.0, 1.0, out, clock=count(0.0, 0.05).__next__, game="kuhn", side="control", seed=1)
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert {(match.home, match.away) for match in matches} == {("main", "main")}
    # Frozen at its beginning, and then by the main agent's rule: no sooner than 2,000 decisions after the last time.
    assert 3 <= lines[-1]["frozen"] <= 1 + lines[-1]["steps"] // 2000
    assert lines[-1]["in_mixture"] >= 1 and lines[-1]["evaluation_games"] > 0
    assert lines[-1]["nash_mixture"] > 0.0


def test_self_play_has_the_settings_of_the_main_agent_but_nobody_else_to_play():
    league, alone = settings("kuhn", 3, "league"), settings("kuhn", 3, "self_play")
    assert alone.algorithm == league.algorithm and alone.network == league.network and alone.seed == 3
    assert {name: player.kind for name, player in alone.players.items()} == {"main": "self_play"}
    assert settings("kuhn", 3, "league", ["algorithm.epochs=1"]).algorithm["epochs"] == 1


@pytest.mark.parametrize("jobs", [1, 3])
def test_every_run_adds_its_curve_under_the_name_of_its_side(tmp_path, monkeypatch, jobs):
    def process(command, **_):
        out, seed = (command[command.index(name) + 1] for name in ("--out", "--seed"))
        name = "nash_mixture" if "benchmarks.league.curve" in command else "exploitability"
        lines = [{"seed": int(seed), "seconds": s, name: 2.0 - s, "main_agent": 3.0} for s in (0.0, 1.0)]
        Path(out).write_text("".join(json.dumps(line) + "\n" for line in lines))

    monkeypatch.setattr(strength.subprocess, "run", process)
    (tmp_path / "leduc.jsonl").write_text("of an earlier run")
    found = strength.measure(["leduc"], 2, 1.0, tmp_path, ["psro_nash"], jobs)
    assert found["leduc_nash_mixture_by_seed"] == found["leduc_psro_nash_by_seed"] == [1.0, 1.0]
    assert "leduc_nfsp" not in found and found["seconds"] == {"leduc": 1.0}
    lines = strength.read(tmp_path / "leduc.jsonl")
    assert [(line["side"], line["seed"]) for line in lines[::2]] == [
        ("league", 1), ("control", 1), ("psro_nash", 1), ("league", 2), ("control", 2), ("psro_nash", 2),
    ]  # fmt: skip
    assert list(tmp_path.iterdir()) == [tmp_path / "leduc.jsonl"]
