import io
import json
from dataclasses import replace
from functools import partial
from itertools import combinations, count, pairwise
from pathlib import Path

import numpy as np
import pytest
from omegaconf import OmegaConf

import envs
from agents import build_algorithm, build_policy
from benchmarks.league import curve as curves
from benchmarks.league import figures, meeting, parts, picture, sides, strength
from benchmarks.league.curve import follow
from benchmarks.league.figures import read, summary
from benchmarks.league.search import against_search
from benchmarks.league.sides import settings
from benchmarks.league.strength import Plan
from envs import exploitability
from envs.large.phantom import dark_hex
from league.empirical_game.mixture import EXACT
from league.matchmaking import kind_of
from workers.config.league import LeagueConfig
from workers.evaluation.exact_cells import PLANS
from workers.evaluation.scores import table
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
    found = summary("rps", lines)
    assert found["rps_league"] == 0.02 and found["rps_league_by_seed"] == [0.04, 0.01, 0.02]
    assert found["rps_main_agent"] == 0.2
    assert found["rps_selfplay"] == 0.8  # the median of 0.9, 0.5, 0.8
    assert found["rps_selfplay_at_start"] == 0.1


def test_a_control_is_summarized_by_its_last_mixture():
    lines = [
        *curve("league", 1, [2.0, 0.2], "leduc", main_agent=0.4),
        *curve("control", 1, [2.0, 0.3], "leduc", main_agent=0.5),
        *curve("control", 2, [2.0, 0.1], "leduc", main_agent=0.7),
    ]
    found = summary("leduc", lines)
    assert found["leduc_control"] == 0.2 and found["leduc_control_by_seed"] == [0.3, 0.1]
    assert found["leduc_control_main_agent"] == 0.6
    assert "leduc_interval" not in found  # nothing follows from one pair


def test_the_interval_is_of_differences_between_runs_of_the_same_seed():
    apart = [0.10, 0.12, 0.08, 0.10]  # how much more exploitable the control is, per seed
    ends = [0.2, 0.9, 0.4, 0.6]  # seeds differ by far more
    lines = [line for seed, end in enumerate(ends) for line in curve("league", seed, [2.0, end], main_agent=1.0)]
    lines += [line for seed, end in enumerate(ends) for line in curve("control", seed, [2.0, end + apart[seed]])]
    lines += [{"side": "league", "seed": seed, "relative_performance": 0.01 * seed} for seed in range(4)]
    found = summary("leduc", lines)
    low, high = found["leduc_interval"]
    error = 0.0163299 / 2.0  # the standard error of the differences
    assert (low, high) == pytest.approx((-0.1 - 3.1824 * error, -0.1 + 3.1824 * error), abs=1e-4)  # t of 3 degrees
    assert found["leduc_relative_performance"] == pytest.approx(0.015)


def test_poker_has_the_names_of_its_sides():
    lines = [
        *curve("league", 1, [2.0, 0.2], "leduc", main_agent=0.4),
        *curve("nfsp", 1, [3.0, 2.0], "leduc", name="exploitability"),
        *curve("psro", 1, [4.0, 0.5], "leduc", name="exploitability"),
    ]
    found = summary("leduc", lines)
    values = {name: found[f"leduc_{name}"] for name in ("league", "main_agent", "nfsp", "psro")}
    assert values == {"league": 0.2, "main_agent": 0.4, "nfsp": 2.0, "psro": 0.5}
    assert not any("psro_nash" in name or "selfplay" in name for name in found)


def test_every_side_has_the_same_time_and_seed(tmp_path):
    plan = Plan(["leduc"], 1, tmp_path, 12.0, cores=[1])
    for side in (*sides.SIDES, *figures.PEERS):
        options = dict(pairwise(strength.command(plan, "leduc", 7, side, tmp_path / "out.jsonl", 1)))
        assert (options["--seconds"], options["--seed"], options["-n"]) == ("12.0", "7", "19")
        if side not in figures.PEERS:
            assert (options["--side"], options["--core"], options["--clock"]) == (side, "1", "wall")
    psro = strength.command(plan, "leduc", 1, "psro_nash", tmp_path / "out.jsonl")
    assert psro[6] == "psro" and psro[-2:] == ["--meta-strategy", "nash"]
    counted = Plan(["leduc"], 1, tmp_path, clock="decisions")
    options = dict(pairwise(strength.command(counted, "leduc", 1, "league", tmp_path / "out.jsonl")))
    assert options["--decisions"] == "4000000" and "--seconds" not in options


def test_a_curve_starts_at_once_ends_in_time_and_can_be_read_and_drawn(tmp_path):
    out = io.StringIO()
    for side in ("league", "selfplay"):
        league = LocalLeague(settings("rps", 1, side, ["games=64", "lanes=64"]))
        follow(league, 3.0, 0.5, out, clock=count(0.0, 0.25).__next__, game="rps", side=side, seed=1)
    path = tmp_path / "rps.jsonl"
    path.write_text(out.getvalue())
    runs = figures.by_run(read(path))
    assert set(runs) == {("league", 1), ("selfplay", 1)}
    for found in runs.values():
        seconds = [line["seconds"] for line in found]
        assert seconds == [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0]  # a round takes a quarter of a second of this clock
        assert found[-1]["steps"] > found[0]["steps"] == 0
        assert found[0]["main_agent"] > 0.2  # it begins with a favourite
    picture.draw(tmp_path / "rps.png", "rps", read(path), goal=0.05)
    assert (tmp_path / "rps.png").read_bytes().startswith(b"\x89PNG")


def test_games_without_an_exact_figure_are_compared_by_what_best_responses_gain(tmp_path):
    def ends(game, side, seed, **worth):
        return {"game": game, "side": side, "seed": seed, "seconds": 45.0, **{"nash_mixture": None, **worth}}

    gains = {("league", 1): 0.5, ("control", 1): 0.6, ("league", 2): 0.4, ("control", 2): 0.6, ("league", 3): 0.9}
    lines = [ends("connect_four", *which, main_agent=None, response=gain) for which, gain in gains.items()]
    assert figures.pairs(lines, figures.worth) == [(0.5, 0.6), (0.4, 0.6)]
    low, high = figures.summary("connect_four", lines)["connect_four_interval"]
    assert low < -0.15 < high
    exact = [ends("kuhn", side, 1, nash_mixture=0.1, main_agent=0.2, response=9.0) for side in ("league", "control")]
    assert figures.pairs(exact, figures.worth) == [(0.1, 0.1)]
    picture.compare(tmp_path / "control.png", {"connect_four": lines, "kuhn": exact})
    assert (tmp_path / "control.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("game", list(sides.TUNED))
def test_a_control_has_all_settings_of_the_league_but_its_other_players(game):
    league, control = settings(game, 3, "league"), settings(game, 3, "control")
    main, alone = league.players["main"], control.players.pop("main")
    assert control.players == {} and replace(control, players=league.players) == league
    assert (alone.updates, alone.hyperparameters) == (main.updates, main.hyperparameters)


def test_a_control_plays_itself_alone_and_is_scored_by_the_mixture_of_its_snapshots():
    schedule = [f"players.main.config.checkpoint_{name}_steps=2000" for name in ("min", "max")]
    small = ["games=64", "lanes=64", "match_games=64", "period_steps=1000", "players.main.averages=[]", *schedule]
    control = LocalLeague(settings("kuhn", 1, "control", small))
    matches, out, request = [], io.StringIO(), control.league.request

    def kept(*given):
        matches.append(request(*given))
        return matches[-1]

    control.league.request = kept
    follow(control, 3.0, 1.0, out, clock=count(0.0, 0.05).__next__, game="kuhn", side="control", seed=1)
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert {(match.home, match.away) for match in matches} == {("main", "main")}
    # Frozen at its beginning, and then by the main agent's rule: no sooner than 2,000 decisions after the last time.
    assert 3 <= lines[-1]["frozen"] <= 1 + lines[-1]["steps"] // 2000
    assert lines[-1]["in_mixture"] >= 1 and lines[-1]["evaluation_games"] > 0
    assert lines[-1]["nash_mixture"] > 0.0 and lines[-1]["mixture_of_players"] > 0.0


def test_self_play_has_the_settings_of_the_main_agent_but_nobody_else_to_play():
    league, alone = settings("kuhn", 3, "league"), settings("kuhn", 3, "selfplay")
    assert alone.algorithm == league.algorithm and alone.network == league.network and alone.seed == 3
    assert {name: player.kind for name, player in alone.players.items()} == {"main": "self_play"}
    assert settings("kuhn", 3, "league", ["algorithm.epochs=1"]).algorithm["epochs"] == 1


def played(command, **_):
    """Write two lines, as the process of the peer or the league that the command names would."""
    out, seed = (command[command.index(name) + 1] for name in ("--out", "--seed"))
    name = "nash_mixture" if "benchmarks.league.curve" in command else "exploitability"
    lines = [{"seed": int(seed), "seconds": s, name: 2.0 - s, "main_agent": 3.0} for s in (0.0, 1.0)]
    Path(out).write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.parametrize("jobs", [1, 3])
def test_every_run_adds_its_curve_under_the_name_of_its_side(tmp_path, monkeypatch, jobs):
    monkeypatch.setattr(strength.subprocess, "run", played)
    found = strength.measure(Plan(["leduc"], 2, tmp_path, 1.0, peers=["psro_nash"], jobs=jobs))
    assert found["leduc_league_by_seed"] == found["leduc_psro_nash_by_seed"] == [1.0, 1.0]
    assert "leduc_nfsp" not in found and found["budget"] == {"leduc": 1.0}
    lines = read(tmp_path / "leduc.jsonl")
    assert [(line["side"], line["seed"]) for line in lines[::2]] == [
        ("league", 1), ("control", 1), ("psro_nash", 1), ("league", 2), ("control", 2), ("psro_nash", 2),
    ]  # fmt: skip
    assert list(tmp_path.iterdir()) == [tmp_path / "leduc.jsonl"]


def test_an_interrupted_benchmark_makes_only_the_runs_that_are_missing(tmp_path, monkeypatch):
    runs = []

    def process(command, **_):
        if len(runs) == 3:
            raise KeyboardInterrupt
        runs.append((command[command.index("--seed") + 1], command[command.index("--side") + 1]))
        played(command)

    monkeypatch.setattr(strength.subprocess, "run", process)
    plan = Plan(["kuhn"], 2, tmp_path, 1.0, sides=["league", "early"], first_seed=11)
    with pytest.raises(KeyboardInterrupt):
        strength.measure(plan)
    assert runs == [("11", "league"), ("11", "early"), ("12", "league")]
    runs.clear()
    found = strength.measure(plan)
    assert runs == [("12", "early")] and found["kuhn_early_by_seed"] == [1.0, 1.0]
    longer = Plan(["kuhn"], 1, tmp_path, 2.0, sides=["league"], first_seed=11)
    runs.clear()
    assert strength.measure(longer)["kuhn_league_by_seed"] == [1.0] and runs == [("11", "league")]


def algorithm_of(config, player):
    games = envs.make_two_player(config.env, 1, 0, **config.env_kwargs)
    policy = build_policy(config.network, games.single_observation_space, games.single_action_space, 0)
    found = build_algorithm("ppo", config.algorithm_of(player), policy, 0)
    found.adjust(config.players[player].hyperparameters)  # all are constants
    return found


@pytest.mark.parametrize("side", sides.OF_FILES)
def test_a_league_of_a_file_plays_the_benchmarks_games(side):
    found, league = settings("goofspiel_4", 3, side), settings("goofspiel_4", 3, "league")
    file = LeagueConfig.from_dict(OmegaConf.to_container(OmegaConf.load(sides.CONF / f"{sides.OF_FILES[side]}.yaml")))
    of_parts = () if not sides.SIDES[side] else ("players", "period_steps")
    kept = {name: getattr(file, name) for name in ("env", "env_kwargs", "reward_scale", "seed", *of_parts)}
    assert (found.env, found.env_kwargs, found.seed) == (league.env, league.env_kwargs, 3)
    assert replace(found, **kept) == file
    assert settings("leduc", 3, side).reward_scale == 0.08


@pytest.mark.parametrize("side", [side for side in sides.OF_FILES if side != sides.MINE])
def test_a_league_without_a_main_agent_has_no_figures_of_one(side):
    out = io.StringIO()
    league = LocalLeague(settings("kuhn", 1, side, ["games=64", "lanes=64"]))
    follow(league, 1.0, 1.0, out, clock=count(0.0, 0.25).__next__)
    first, last = map(json.loads, out.getvalue().splitlines())
    assert (first["nash_mixture"] is None) == (side != sides.PSRO)  # answers begin without frozen players
    assert last["steps"] > first["steps"]
    assert {last["main_agent"], last["least_win_rate"]} == {None} and last["main_steps"] == 0


@pytest.mark.parametrize("side", [side for side in sides.SIDES if side not in sides.OF_FILES])
def test_sides_differ_from_the_league_by_their_parts_alone(side):
    league, found = settings("leduc", 3, "league"), settings("leduc", 3, side)
    of_side = sides.SIDES[side]
    assert (found.algorithm, found.network, found.seed) == (league.algorithm, league.network, 3)
    if "MMD" in of_side:
        main = algorithm_of(found, "main").config
        assert main.schedules["proximal_coefficient"].at(0) == 0.05
        assert main.entropy_at(0, 1.0) < 0.006 < main.entropy_at(0, 0.0)
    alone = {*sides.ALONE} <= {*of_side} or {"unregularized alone", "self-play alone"} & {*of_side}
    assert (len(found.players) == 1) == bool(alone)
    kinds_left = {player.kind for player in found.players.values()} & {*parts.EXPLOITERS}
    assert bool(kinds_left) == (not alone and "without exploiters" not in of_side)
    assert (parts.UNREGULARIZED in found.players) == (not alone and "without unregularized" not in of_side)
    if "without PFSP" in of_side:
        assert found.players["main"].config["pfsp_share"] == 0.0
    if "early exploiters" in of_side:
        kept = {
            player.config["checkpoint_max_steps"]
            for player in found.players.values()
            if player.kind in parts.EXPLOITERS
        }
        assert kept == {60_000} and found.period_steps <= 30_000
        assert found.players["main"].config == league.players["main"].config
    if "freeze by returns" in of_side:
        exploiting = [player for player in found.players.values() if player.kind in parts.EXPLOITERS]
        kinds = [kind_of(player.kind, player.config) for player in exploiting]
        assert [kind.wants_looks for kind in kinds] == [True] * 3 and found.period_steps <= 30_000
        assert found.players["main"] == league.players["main"]
    assert found.earned_share == (0.5 if "earned learning" in of_side else 0.0)
    if "warm start" in of_side:
        learning = {name: one for name, one in found.players.items() if name not in ("main", parts.UNREGULARIZED)}
        initial = {player.initial for player in learning.values()}
        tied = algorithm_of(found, "main_exploiter").config.schedules["magnet_coefficient"]
        assert initial == {"main"} and (tied.at(0), tied.at(40_000)) == (0.2, 0.0)
        assert found.players["main"] == settings("leduc", 3, "mmd" if "MMD" in of_side else "early").players["main"]
    if "PSRO exploiter" in of_side:
        assert [player.kind for player in found.players.values()].count("psro") == 1


def test_sides_that_are_the_same_league_are_refused_before_any_run(tmp_path):
    asked = ["no_exploiters", "no_unregularized", "no_pfsp", "early", "warm", "returns", "mmd"]
    known = "whose parts the game's settings have; leave it out"
    assert strength.problems(Plan(["kuhn", "leduc"], 1, tmp_path, sides=asked)) == [
        f"side no_unregularized of kuhn: the same league as side league, {known}",
        f"side no_pfsp of kuhn: the same league as side no_exploiters, {known}",
    ]
    alike = [side for side in sides.SIDES if sides.twin("rps", side) is None]
    assert "control" in alike and strength.problems(Plan(["rps"], 1, tmp_path, sides=alike)) == []
    for game in ("kuhn", "leduc", "liars_dice"):
        run = [side for side in sides.SIDES if sides.twin(game, side) is None]
        leagues = [settings(game, 1, side) for side in run]
        assert all(one != other for one, other in combinations(leagues, 2))


@pytest.mark.parametrize("game", sides.HELD_OUT)
def test_games_that_are_held_out_are_played_by_the_settings_of_leduc(game):
    tuned, found = settings("leduc", 1, "league"), settings(game, 1, "league")
    same = dict(tuned.players)
    if found.evaluation == EXACT:
        updates = dict.fromkeys(same, 5) | {"main": 24, "unregularized": 24}
        same = {name: replace(player, updates=updates[name]) for name, player in same.items()}
        same["unregularized"] = replace(same["unregularized"], algorithm={"epochs": 3})
    else:
        del same["unregularized"]
        same["main"] = replace(same["main"], updates=48)
    assert (found.players, found.algorithm) == (same, tuned.algorithm) and found.reward_scale == 1.0
    games = envs.make_two_player(found.env, 2, 1, **found.env_kwargs)
    assert games.reset().action_mask.any(axis=1).all() and games.max_return == 1.0


def test_the_league_of_liars_dice_is_the_one_that_is_held_out():
    loaded = OmegaConf.to_container(OmegaConf.load(sides.CONF / "liars_dice.yaml"))
    assert LeagueConfig.from_dict({**loaded, "seed": 1}) == settings("liars_dice", 1, "league")


@pytest.mark.parametrize("game", [game for game in sides.HELD_OUT if settings(game, 1, "league").evaluation == EXACT])
def test_exact_payoffs_are_asked_of_games_that_have_them_and_for_all_players_at_once(game):
    found = settings(game, 1, "league")
    form = exploitability.load(found.env, **found.env_kwargs)
    assert 200 * sum(form.num_sequences) <= PLANS  # otherwise each cell would make each player's plans again


FROZEN_OFTEN = (
    "games=64", "lanes=64", "period_steps=64",
    "players.main.config.checkpoint_min_steps=64", "players.main.config.checkpoint_max_steps=128",
)  # fmt: skip


def test_least_win_rate_is_that_against_the_worst_of_its_own_snapshots(monkeypatch):
    league = LocalLeague(settings("rps", 1, "control", [*FROZEN_OFTEN]))
    while len(league.frozen) < 3:
        league.round()
    returns = iter([np.full((2, 4), 1.0), np.array([[1.0, -1.0, -1.0, 0.0]] * 2), np.zeros((2, 4))])
    monkeypatch.setattr(curves, "play_deals", lambda *_: next(returns))
    assert curves.least_win_rate(league, 4) == 0.375


def test_cycles_are_the_triples_in_which_each_beats_the_next(monkeypatch):
    league = LocalLeague(settings("rps", 1, "control", [*FROZEN_OFTEN]))
    while len(league.frozen) < 4:
        league.round()
    meter = curves.Meter(league)
    pure = np.repeat(np.eye(3)[:, None], 2, axis=1)  # each strategy in both seats
    monkeypatch.setattr(curves, "table", lambda form, policy: next(played))
    played = iter([*pure, pure[0]])
    assert meter.cycles() == 0.5  # two of four triples: those with one of the two equal players


def test_in_games_too_large_to_be_solved_best_responses_measure_the_mixture(monkeypatch):
    small = ["games=32", "lanes=16", "unroll_length=4", "network.hidden_sizes=[8]", "algorithm.epochs=1"]
    league, out = LocalLeague(settings("dark_hex_3", 1, "control", small)), io.StringIO()
    monkeypatch.setattr(curves, "DEALS", 16)
    monkeypatch.setattr(exploitability, "large", lambda *_, **__: None)
    follow(
        league, 1.0, 5.0, out, clock=count(0.0, 1.0).__next__, respond=200, game="dark_hex_3", side="control", seed=1
    )
    first, last = map(json.loads, out.getvalue().splitlines())
    assert first["nash_mixture"] is None and "response" not in first
    low, high = last["response_within"]
    assert last["cycles"] is None and low <= last["response"] <= high
    summed = summary("dark_hex_3", [{**line, "side": "control"} for line in (first, last)])
    assert summed["dark_hex_3_control_response"] == round(last["response"], 4) and "dark_hex_3_control" not in summed


def test_connect_four_ends_with_games_against_a_tree_search(monkeypatch):
    small = ["games=32", "lanes=16", "unroll_length=4", "network.hidden_sizes=[8]", "algorithm.epochs=1"]
    league, out = LocalLeague(settings("connect_four", 1, "control", small)), io.StringIO()
    monkeypatch.setattr(curves, "DEALS", 16)
    monkeypatch.setattr(
        curves,
        "against_search",
        partial(against_search, searches={"search_share": (20, 1), "light_search_share": (1, 2)}),
    )
    follow(league, 1.0, 5.0, out, clock=count(0.0, 1.0).__next__, search=20, side="control", seed=1)
    first, last = map(json.loads, out.getvalue().splitlines())
    assert not set(figures.SEARCHED) & set(first) and set(figures.SEARCHED) <= set(last)
    assert last["search_share"] < 0.5 and last["main_search_share"] < 0.5
    assert summary("connect_four", [first, last])["connect_four_control_search_share"] == last["search_share"]
    assert against_search(LocalLeague(settings("rps", 1, "control", ["games=32"])), 20) == {}


def test_in_games_solved_without_being_written_out_the_last_line_is_exact(monkeypatch):
    small = ["env_kwargs.board_size=2", "games=32", "lanes=16", "unroll_length=4", "network.hidden_sizes=[8]"]
    league, out = LocalLeague(settings("dark_hex_3", 1, "control", small)), io.StringIO()
    game = dark_hex("dark_hex", 2, 2)
    monkeypatch.setattr(curves, "DEALS", 16)
    monkeypatch.setattr(exploitability, "large", lambda *_, **__: game)
    follow(league, 1.0, 5.0, out, clock=count(0.0, 1.0).__next__, respond=200)
    first, last = map(json.loads, out.getvalue().splitlines())
    assert first["nash_mixture"] is None and first["main_agent"] is None and "response" not in last
    main = league.trainees["main"].policy
    assert last["main_agent"] == pytest.approx(game.exploitability([main.probabilities]), abs=1e-6)
    slots, shares = league.mixture()
    members = [league.policy_of(int(slot)).probabilities for slot in slots]
    assert last["nash_mixture"] == pytest.approx(game.exploitability(members, shares), abs=1e-6)


def test_mixtures_of_two_sides_meet_as_they_were_kept(tmp_path):
    places = [tmp_path / side for side in ("league", "control")]
    form, mixed = exploitability.load("matrix:rps"), []
    for seed, place in enumerate(places):
        league = LocalLeague(settings("rps", seed, place.name, ["games=64"]))
        curves.keep(league, place)
        mixed.append(table(form, league.policy_of(int(league.mixture()[0][0]))))
    gain = exploitability.payoff(form, mixed)[0, 1]
    assert abs(gain) > 0.05
    assert meeting.relative_performance("rps", *places, 4000) == pytest.approx(gain, abs=0.05)
    assert meeting.relative_performance("rps", places[0], places[0], 4000) == pytest.approx(0.0, abs=0.05)
