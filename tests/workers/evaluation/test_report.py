"""workers.evaluation.report: pictures show what the league holds, at any size, and are written whole."""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from league.empirical_game.returns import Returns
from league.matchmaking.view import ModelRef, Player
from league.rules.ratings import elo_intervals
from league.rules.settings import Settings
from league.state.history import History
from league.state.in_memory import MemoryLeague
from workers.dashboard import curves as dashboard_curves
from workers.evaluation import canvas, composition, curves, heat_maps, report
from workers.evaluation.lineage import lineage
from workers.evaluation.report import Board, draw_all

SOON = {"checkpoint_min_steps": 10, "checkpoint_max_steps": 10}


class Played:
    """A league in memory with a clock of its own, and its history."""

    def __init__(self) -> None:
        self.history, self.entries, self.clock = History(), [], 1_700_000_000.0
        self.league = MemoryLeague(Settings(), 0, self.happened)

    def happened(self, event) -> None:
        self.clock += 7.0
        self.entries.append((f"{round(self.clock * 1000)}-0", dict(event)))
        self.history.take(self.entries[-1:])

    def play(self, snapshots: int, learners: int = 3, seed: int = 0) -> Played:
        rng, league = np.random.default_rng(seed), self.league
        kinds = ["main_agent", "main_exploiter", "league_exploiter"]
        names = [f"{kinds[number % 3]}_{number}" for number in range(learners)]
        for number, name in enumerate(names):
            league.add_player(name, kinds[number % 3], SOON)
        league.snapshot(names[0], 0)
        for number in range(1, snapshots):
            name = names[number % learners]
            for _ in range(3):
                league.report(league.request(name), "".join(rng.choice(list("wdl"), size=4)))
            league.open_period(name)
            league.close_period(name, 100 * number, number)
        return self

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        lines = [json.dumps({"id": entry, "fields": event}) + "\n" for entry, event in self.entries]
        (folder / "league.jsonl").write_text("".join(lines))


def score(seconds: float, **changes) -> dict:
    given = {
        "time": 1.7e9 + seconds, "seconds": seconds, "steps": {"main": 100}, "frozen": 3, "games": 1000,
        "main_agent": 0.5, "mixture": 0.25, "references": {"uniform": 0.1},
    }  # fmt: skip
    return {**given, **changes}


def write_scores(folder: Path, *scores: dict) -> None:
    (folder / "evaluation.jsonl").write_text("".join(json.dumps(one) + "\n" for one in scores))


def known_returns(history: History) -> Returns:
    returns, rng = Returns(), np.random.default_rng(0)
    for first in history.state.roster.historical:
        for second in history.state.roster.historical:
            returns.record(int(first), int(second), rng.normal(size=4))
    return returns


def lines_of(figure: Figure) -> dict[str, np.ndarray]:
    return {str(line.get_label()): np.asarray(line.get_ydata(), float) for line in figure.axes[0].get_lines()}


@pytest.mark.parametrize(("snapshots", "learners"), [(1, 1), (2, 3), (60, 4), (130, 12)])
def test_leagues_of_any_size_are_drawn(tmp_path: Path, snapshots: int, learners: int) -> None:
    played = Played().play(snapshots, learners)
    write_scores(tmp_path, score(1.0), score(60.0))
    paths = draw_all(tmp_path, played.history, returns=known_returns(played.history), uniform=0.9)
    names = ["exploitability", "references", "payoff", "returns", "ratings", "lineage"]
    if snapshots == 1:
        names.remove("returns")  # a single player has no opponent
    assert paths == [tmp_path / "pictures" / f"{name}.png" for name in names]
    assert sorted((tmp_path / "pictures").iterdir()) == sorted(paths)  # no half-written file is left
    for path in paths:
        pixels = matplotlib.image.imread(path)[..., :3]
        assert 200 < pixels.shape[0] < 2600 and 300 < pixels.shape[1] < 2600
        assert (pixels < 0.9).any()
        # Nothing is cut off: every edge is blank.
        for edge in (pixels[:3], pixels[-3:], pixels[:, :3], pixels[:, -3:]):
            assert (edge == 1.0).all(), path


def test_leagues_without_data_draw_fewer_pictures_and_do_not_fail(tmp_path: Path) -> None:
    assert draw_all(tmp_path, History()) == []
    nobody = Played()
    assert draw_all(tmp_path, nobody.history, returns=Returns()) == []
    nobody.league.add_player("lone", "self_play")
    names = [path.stem for path in draw_all(tmp_path, nobody.history, returns=Returns(), board=Board(tmp_path))]
    assert names == ["payoff", "ratings", "lineage"]
    write_scores(tmp_path, score(0.0, main_agent=None, mixture=None, references={}))
    assert [path.stem for path in draw_all(tmp_path, nobody.history)] == names
    frozen = Played()
    frozen.league.add_player("by-hand", "self_play", frozen=True)
    assert [path.stem for path in draw_all(tmp_path, frozen.history)] == ["payoff", "lineage"]
    removed = Played().play(3)
    for name in list(removed.league.state.players):
        removed.happened({"event": "changed", "name": name, "field": "removed", "value": "1", "by": ""})
    assert [path.stem for path in draw_all(tmp_path, removed.history)] == ["ratings", "lineage"]


def test_the_payoff_is_drawn_from_the_strongest_to_the_weakest() -> None:
    history = Played().play(12).history
    figure = heat_maps.payoff(history)
    assert figure is not None
    axes, state = figure.axes[0], history.state
    drawn = [label.get_text() for label in axes.get_yticklabels()]
    elo = [state.ratings[state.players[name].slot] for name in drawn]
    assert elo == sorted(elo, reverse=True) and len(drawn) == len(state.players)
    assert [label.get_text() for label in axes.get_xticklabels()] == drawn
    rates = axes.get_images()[0].get_array()
    for row, home in enumerate(drawn):
        for column, away in enumerate(drawn):
            slots = state.players[home].slot, np.array([state.players[away].slot])
            met = state.games(*slots)[0] > 0
            assert np.ma.is_masked(rates[row, column]) != met
            assert not met or rates[row, column] == state.win_rates(*slots)[0]
    bold = {label.get_text() for label in axes.get_yticklabels() if label.get_fontweight() == "bold"}
    assert bold == {player.name for player in state.roster if not player.frozen}


def test_the_payoff_shows_returns_by_evaluators_of_pairs_that_never_met() -> None:
    played = Played().play(3)
    history = played.history
    roster = history.state.roster
    for name in ("x", "y"):  # these two have met no player
        played.league.add_player(name, "self_play", frozen=True)
    one, other = (history.state.players[name].slot for name in ("x", "y"))
    known = Returns()
    known.record(one, other, [0.5, 0.5])
    known.record(other, one, [-0.1, -0.1])
    figure = heat_maps.payoff(history, known)
    assert figure is not None and roster is not None
    axes = figure.axes[0]
    drawn = [label.get_text() for label in axes.get_yticklabels()]
    (circles,) = [found for found in axes.collections if len(found.get_offsets())]
    shown = {
        (drawn[int(row)], drawn[int(column)]): value
        for (column, row), value in zip(np.asarray(circles.get_offsets()), circles.get_array(), strict=True)
    }
    assert shown == {("x", "y"): pytest.approx(0.3), ("y", "x"): pytest.approx(-0.3)}
    assert any("circles: evaluators' mean return, within 0.3" in text.get_text() for text in figure.texts)
    without = heat_maps.payoff(history)
    assert without is not None and not [found for found in without.axes[0].collections if len(found.get_offsets())]


def test_returns_are_means_over_both_seats() -> None:
    history = Played().play(3).history
    one, other = (int(slot) for slot in history.state.roster.historical[:2])
    returns = Returns()
    returns.record(one, other, [2.0, 4.0])
    assert heat_maps.returns(history, returns) is None  # one seat does not tell which player is better
    returns.record(other, one, [1.0])
    figure = heat_maps.returns(history, returns)
    assert figure is not None and figure.texts[-1].get_text() == "Returns between 2 frozen players, 1 not yet played"
    values = figure.axes[0].get_images()[0].get_array()
    assert sorted(values.compressed()) == [-1.0, 1.0]
    best = history.state.roster.by_slot[one].name
    assert figure.axes[0].get_yticklabels()[0].get_text() == best and values[0].compressed() == [1.0]


def test_a_rating_has_a_gap_where_a_player_was_reset() -> None:
    history = Played().play(12).history
    figure = curves.ratings(history)
    assert figure is not None
    lines = lines_of(figure)
    resets = [restart.player for restart in history.restarts]
    assert resets.count("main_exploiter_1") == 4
    assert np.isnan(lines["main_exploiter_1"]).sum() == 4 and not np.isnan(lines["main_agent_0"]).any()
    assert lines["main_agent_0"][-1] == history.ratings["main_agent_0"].points()[1][-1]


def test_means_are_taken_per_window_and_keep_gaps() -> None:
    times = np.array([0.0, 1.0, 2.0, 10.0, 11.0, 11.0, 12.0, 25.0])
    values = np.array([1.0, 2.0, 3.0, 5.0, 7.0, np.nan, 100.0, 4.0])
    found_times, found = canvas.means(times, values, 10.0)
    assert np.array_equal(found, [2.0, 6.0, np.nan, 100.0, 4.0], equal_nan=True)
    assert list(found_times) == [1.0, 10.5, 11.0, 12.0, 25.0]


def test_only_the_strongest_of_many_players_have_colours() -> None:
    history = Played().play(60, learners=20).history
    colours = curves.player_colours(history)
    elo = {name: history.state.ratings[history.state.players[name].slot] for name in history.ratings}
    assert len(set(colours.values())) == len(colours) == 7
    assert min(elo[name] for name in colours) >= max(value for name, value in elo.items() if name not in colours)
    figure = curves.ratings(history)
    assert figure is not None and "13 others that learn" in lines_of(figure)


def test_lineage_has_a_lane_per_player_and_a_circle_per_snapshot() -> None:
    history = Played().play(12).history
    figure = lineage(history)
    assert figure is not None
    axes = figure.axes[0]
    lanes = [label.get_text() for label in axes.get_yticklabels()]
    assert lanes == ["main_agent_0", "main_exploiter_1", "league_exploiter_2"]
    circles = axes.collections[-1].get_offsets()
    expected = [[(taken.time - history.began) / 60.0, lanes.index(taken.parent)] for taken in history.snapshots]
    seconds = canvas.time_unit(history.now - history.began)[1]
    assert np.allclose(circles, np.array(expected) * [60.0 / seconds, 1.0])
    assert [text.get_text() for text in axes.texts] == [
        str(sum(taken.parent == lane for taken in history.snapshots)) for lane in lanes
    ]


def test_averages_of_weights_are_diamonds_above_the_snapshots_of_their_player() -> None:
    played = Played().play(2, learners=2)
    name, models = "main_exploiter_1", [ModelRef("main_exploiter_1", 9), ModelRef("main_exploiter_1.average-0.1", 9)]
    played.league.open_period(name)
    played.league.close_period(name, 900, 9, snapshots=models)
    figure = lineage(played.history)
    assert figure is not None
    diamonds, circles = [drawn.get_offsets() for drawn in figure.axes[0].collections[-2:]]
    assert len(circles) == 3 and [row for _, row in diamonds] == [1.0 - 0.28]
    assert [text.get_text() for text in figure.axes[0].texts] == ["1", "3"]


def test_exploitability_skips_unknown_values_and_draws_uniform_play() -> None:
    scores = [score(1.0, mixture=None), score(60.0, main_agent=0.01), score(120.0, main_agent=None)]
    figure = curves.exploitability(scores, uniform=0.9)
    assert figure is not None and figure.axes[0].get_yscale() == "log"
    lines = lines_of(figure)
    assert list(lines["main agent: 0.01"]) == [0.5, 0.01]
    assert list(lines["Nash mixture of all frozen players: 0.25"]) == [0.25, 0.25]
    assert set(lines["uniform policy: 0.9"]) == {0.9}
    # A log scale cannot show an exploitability of 0, as of uniform play in rock-paper-scissors.
    for values, uniform in (({"mixture": 0.0}, None), ({}, 0.0)):
        solved = curves.exploitability([score(1.0, **values)], uniform)
        assert solved is not None and solved.axes[0].get_yscale() == "linear"


def test_the_best_members_gain_is_a_band_even_without_exact_values() -> None:
    figure = curves.exploitability([score(1.0, gain_within=[0.0, 0.75]), score(60.0, gain_within=[0.1, 0.5])])
    assert figure is not None and figure.axes[0].get_yscale() == "log"
    (band,) = figure.axes[0].collections
    assert band.get_label() == "gain of the mixture's best member: 0.1 to 0.5"
    assert band.get_paths()[0].vertices[:, 1].max() == 0.75
    large = curves.exploitability([score(1.0, main_agent=None, mixture=None, gain_within=[0.0, 0.75])])
    assert large is not None and large.axes[0].get_yscale() == "linear"
    assert curves.exploitability([score(1.0, main_agent=None, mixture=None)]) is None


def test_the_exploitability_of_a_mixture_is_not_drawn_as_a_members_gain(tmp_path: Path) -> None:
    exact = [score(1.0, gain_within=[0.25, 0.25]), score(60.0, mixture=0.125, gain_within=[0.125, 0.125])]
    figure = curves.exploitability(exact)
    assert figure is not None and not figure.axes[0].collections
    assert list(lines_of(figure)) == ["main agent: 0.5", "Nash mixture of all frozen players: 0.125"]
    write_scores(tmp_path, *exact, score(90.0, gain_within=[0.0, 0.1]))
    assert [one["gain_within"] for one in dashboard_curves.scores(tmp_path)] == [None, None, [0.0, 0.1]]


def test_shares_of_kinds_are_stacked() -> None:
    shares = [{"main_agent": 1.0}, {"main_agent": 0.75, "league_exploiter": 0.25}]
    scores = [
        score(60.0 * number, shares_by_kind=each, frozen_by_kind=dict.fromkeys(each, 3))
        for number, each in enumerate(shares)
    ]
    figure = curves.kinds([score(0.0), *scores])
    assert figure is not None
    first, second = figure.axes[0].collections
    assert [one.get_label() for one in (first, second)] == [
        "main_agent: 75%, 3 frozen",
        "league_exploiter: 25%, 3 frozen",
    ]
    assert second.get_paths()[0].vertices[:, 1].max() == 1.0
    assert not figure.texts[:-1], "nobody is ranked"
    assert curves.kinds([score(1.0)]) is None


def test_the_members_that_alpha_rank_puts_first_are_named_below_the_kinds() -> None:
    ranks = {f"a-player-with-a-long-name-{number}@{10**number}": 0.4 - number / 10 for number in range(5)}
    shares = {"shares_by_kind": {"main_agent": 1.0}, "frozen_by_kind": {"main_agent": 9}}
    figure = curves.kinds([score(1.0, **shares, alpha_rank={"older@1": 1.0}), score(60.0, **shares, alpha_rank=ranks)])
    assert figure is not None
    ranked = figure.texts[0]
    assert ranked.get_text().startswith("alpha-rank of members, now: a-player-wi") and "older" not in ranked.get_text()
    assert [part.split()[-1] for part in ranked.get_text().split(", ")[2:]] == ["0.30", "0.20"]
    place, axis = ranked.get_window_extent(), figure.axes[0].xaxis.label.get_window_extent()
    assert place.x1 < figure.bbox.x1, "it is not cut off"
    assert not place.overlaps(axis)


def test_snapshots_ratings_have_bars_of_their_intervals() -> None:
    state = (played := Played().play(12)).league.state
    figure = curves.ratings(played.history)
    assert figure is not None
    (bars,) = [one for one in figure.axes[0].containers if isinstance(one, ErrorbarContainer)]
    ends = [segment[:, 1] for segment in bars.lines[2][0].get_segments()]
    slots = [state.players[taken.name].slot for taken in played.history.snapshots]
    lower, upper = elo_intervals(np.array(state.ratings), state.payoff.cells)
    np.testing.assert_allclose(ends, np.stack([lower, upper], axis=1)[slots])
    assert all(low < state.ratings[slot] < high for slot, (low, high) in zip(slots, ends, strict=True))


def test_a_mixture_is_summed_by_kind_and_ranked() -> None:
    players = [Player(f"p{slot}", slot, kind, frozen=True) for slot, kind in enumerate(["main_agent", "psro", "psro"])]
    shares = np.array([[0.5, 0.5, 0.0], [0.25, 0.75, 0.0]])
    returns = Returns()
    for slot in range(3):
        returns.record(slot, slot, [0.0])
    returns.record(0, 1, [-1.0])
    returns.record(1, 0, [1.0])
    assert composition.frozen_by_kind(players) == {"psro": 2, "main_agent": 1}
    assert composition.shares_by_kind(players, shares) == {"psro": 0.625, "main_agent": 0.375}
    ranked = composition.ranking(players, shares, returns)
    assert list(ranked) == ["p1", "p0"] and ranked["p1"] > 0.99


def test_tensorboard_has_every_point_once_after_a_restart(tmp_path: Path) -> None:
    played = Played().play(6)
    write_scores(tmp_path, score(10.0), score(20.0, mixture=None))
    board = Board(tmp_path)
    draw_all(tmp_path, played.history, board=board)
    first = len(played.history.ratings["main_agent_0"].points()[0])
    played.league.report(played.league.request("main_agent_0"), "w")
    write_scores(tmp_path, score(10.0), score(20.0, mixture=None), score(30.0, main_agent=0.125))
    draw_all(tmp_path, played.history, board=board)
    board.close()
    again = Board(tmp_path)
    draw_all(tmp_path, played.history, board=again)
    again.close()

    found = EventAccumulator(str(tmp_path / report.BOARD), size_guidance={"scalars": 0, "images": 0})
    found.Reload()
    elo = found.Scalars("elo/main_agent_0")
    times, values = played.history.ratings["main_agent_0"].points()
    assert len(elo) == len(times) == first + 1
    assert [point.value for point in elo] == pytest.approx(list(values))
    assert [point.step for point in elo] == [int(time - played.history.began) for time in times]
    assert [(p.step, p.value) for p in found.Scalars("exploitability/main_agent")] == [
        (10, 0.5),
        (20, 0.5),
        (30, 0.125),
    ]
    assert [p.step for p in found.Scalars("exploitability/mixture")] == [10, 30]
    assert len(found.Scalars("reference/uniform")) == 3
    assert found.Scalars("league/counted")[-1].value == played.league.state.counters["counted"]
    assert set(found.Tags()["images"]) == {"payoff", "ratings", "lineage", "exploitability", "references"}


def test_images_go_to_tensorboard_seldom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now, drawn = [1000.0], []
    monkeypatch.setattr(report.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(Board, "draw", lambda self, made, seconds, moment: drawn.append(now[0]))
    board, played = Board(tmp_path), Played().play(2)
    for now[0] in (1000.0, 1060.0, 1000.0 + report.IMAGES_EVERY):
        draw_all(tmp_path, played.history, board=board)
    board.close()
    assert drawn == [1000.0, 1000.0 + report.IMAGES_EVERY]


def test_the_command_draws_from_a_saved_league_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    played = Played().play(6)
    played.save(tmp_path / "run" / "league")
    returns = known_returns(played.history)
    cells = [[a, b, *map(float, returns._cells[a, b])] for a, b in np.argwhere(returns._cells[..., 0] > 0).tolist()]
    (tmp_path / "run" / "league" / "returns.json").write_text(json.dumps(cells))
    (tmp_path / "run" / "config.yaml").write_text("league:\n  env: matrix:rps\n")
    write_scores(tmp_path / "run", score(10.0))
    with (tmp_path / "run" / "evaluation.jsonl").open("a") as file:
        file.write('{"time": 17')  # the evaluator is still writing this line
    assert report.main([str(tmp_path / "run")]) == 0
    drawn = [Path(line) for line in capsys.readouterr().out.splitlines()]
    assert [path.stem for path in drawn] == [
        "exploitability", "references", "payoff", "returns", "ratings", "lineage",
    ]  # fmt: skip
    assert all(path.exists() for path in drawn)
    history, saved = report.saved(tmp_path / "run")
    assert history.state.differences(played.history.state) == []
    slots = history.state.roster.historical
    assert np.array_equal(saved.matrix(slots), returns.matrix(slots))
    # The folder of a saved league alone works, too.
    assert report.main([str(tmp_path / "run" / "league"), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 4
    (tmp_path / "empty").mkdir()
    assert report.main([str(tmp_path / "empty")]) == 2
    assert "holds no saved league" in capsys.readouterr().err
    (tmp_path / "run" / "league" / "returns.json").write_text("[[1,2")
    assert report.main([str(tmp_path / "run")]) == 2
    assert "returns.json is not JSON" in capsys.readouterr().err


def test_uniform_play_is_known_where_a_game_can_be_solved() -> None:
    assert report.uniform_of("matrix:rps") == pytest.approx(0.0)
    assert report.uniform_of("openspiel:kuhn_poker") == pytest.approx(0.4583, abs=1e-3)
    assert report.uniform_of("CartPole-v1") is None
