"""league.matchmaking: every simple kind of player chooses its opponents as often as defined."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from support.league_in_memory import add, league, named, set_return, set_win_rate

from league.empirical_game.returns import Returns
from league.matchmaking import KINDS, Branch, Kind, Target, choose, distribution, kind_of, responses, weighted
from league.matchmaking.simple import knockout
from league.matchmaking.view import ModelRef, Player, Roster, View
from league.rules.pfsp import WEIGHTINGS, pfsp
from league.state.league_state import LeagueState
from warren.errors import ConfigurationError, MatchmakingError, PlayerError, UnknownName


@pytest.fixture
def small() -> LeagueState:
    """Return a league of a learner and three snapshots; its win rates against them are .1, .5 and .9."""
    state = league()
    add(state, "main", "pfsp")
    for version, rate in ((1, 0.1), (2, 0.5), (3, 0.9)):
        add(state, f"main@{version}", "pfsp")
        set_win_rate(state, "main", f"main@{version}", rate)
    return state


def play(state: LeagueState, kind: str, **config: object) -> dict[str, float]:
    return named(state, distribution(kind_of(kind, config), state, state.players["main"]))


def test_self_play_meets_only_the_player_itself(small: LeagueState) -> None:
    assert play(small, "self_play") == {"main": 1.0}


def test_random_is_uniform_over_the_history(small: LeagueState) -> None:
    assert play(small, "random") == pytest.approx({f"main@{version}": 1 / 3 for version in (1, 2, 3)})
    assert play(small, "random", self_share=0.4, shares="matches") == pytest.approx(
        {"main": 0.4, **{f"main@{version}": 0.2 for version in (1, 2, 3)}}
    )


@pytest.mark.parametrize("kind", ["random", "pfsp", "psro"])
@pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 0.9])
def test_shares_of_decisions_count_a_match_against_itself_twice(small: LeagueState, kind: str, share: float) -> None:
    found = play(small, kind, self_share=1.0 - share)
    of_others = sum(p for name, p in found.items() if name != "main")
    assert of_others == pytest.approx(2.0 * share / (1.0 + share))
    decisions = of_others + 2.0 * found.get("main", 0.0)
    assert of_others / decisions == pytest.approx(share)


@pytest.mark.parametrize("weighting", sorted(WEIGHTINGS))
def test_pfsp_plays_by_each_weighting(small: LeagueState, weighting: str) -> None:
    expected = dict(zip(("main@1", "main@2", "main@3"), pfsp([0.1, 0.5, 0.9], weighting), strict=True))
    assert play(small, "pfsp", weighting=weighting) == pytest.approx(expected)


def test_a_fixed_opponent_is_the_only_one(small: LeagueState) -> None:
    assert play(small, "fixed", opponent="main@2") == {"main@2": 1.0}
    with pytest.raises(PlayerError, match="did you mean main@1"):
        play(small, "fixed", opponent="main@7x1")


def test_softmax_prefers_opponents_near_the_target_win_rate(small: LeagueState) -> None:
    weights = np.exp(-np.array([0.4, 0.0, 0.4]) / 0.2)
    expected = dict(zip(("main@1", "main@2", "main@3"), weights / weights.sum(), strict=True))
    assert play(small, "softmax", temperature=0.2) == pytest.approx(expected)
    assert play(small, "softmax", temperature=0.001, target=0.9)["main@3"] == pytest.approx(1.0)


def test_the_champion_is_the_player_that_beats_the_others() -> None:
    state = league()
    add(state, "main", "champion")
    for version, elo in ((1, 1500.0), (2, 1400.0), (3, 1300.0), (4, 1200.0), (5, 1100.0)):
        add(state, f"main@{version}", "champion", elo=elo)
    assert play(state, "champion") == {"main@1": 1.0}
    for loser in (1, 2, 3, 5):
        set_return(state, "main@4", f"main@{loser}", 0.8)
    assert play(state, "champion") == {"main@4": 1.0}


def test_a_champion_is_found_anew_from_changed_returns_only(monkeypatch: pytest.MonkeyPatch) -> None:
    state, read = league(), []
    add(state, "main", "champion")
    for version, elo in ((1, 1500.0), (2, 1400.0), (3, 1300.0)):
        add(state, f"main@{version}", "champion", elo=elo)
    matrix, games = LeagueState.matrix, Returns.games
    monkeypatch.setattr(LeagueState, "matrix", lambda *given: read.append("payoff") or matrix(*given))
    monkeypatch.setattr(Returns, "games", lambda *given: read.append("returns") or games(*given))
    for _ in range(3):
        assert play(state, "champion") == {"main@1": 1.0}
    assert read == ["payoff", "returns"]
    for other in (1, 2):
        set_return(state, "main@3", f"main@{other}", 0.8)
    assert play(state, "champion") == {"main@3": 1.0}
    assert read == ["payoff", "returns", "returns"], "frozen players have no new win rates"
    state.ratings[1:4] = [1200.0, 1500.0, 1100.0]
    assert play(state, "champion") == {"main@3": 1.0} and len(read) == 3, "seeds follow the ratings"


def test_a_knockout_without_results_goes_to_the_first_seed() -> None:
    state = league()
    for name, elo in (("a", 1100.0), ("b", 1300.0), ("c", 1200.0)):
        add(state, name, elo=elo)
    assert state.roster.by_slot[knockout(state, state.roster.everyone)].name == "b"


@pytest.mark.parametrize("kind", ["random", "pfsp", "softmax", "champion", "psro"])
def test_a_first_player_plays_itself_until_there_is_anyone_else(kind: str) -> None:
    state = league()
    add(state, "main", kind)
    assert play(state, kind) == {"main": 1.0}
    add(state, "other", kind)
    assert play(state, kind) == {"other": 1.0}


@pytest.mark.parametrize("kind", ["random", "pfsp", "softmax", "champion", "psro", "main_agent", "league_exploiter"])
def test_nobody_is_matched_with_a_removed_player(small: LeagueState, kind: str) -> None:
    add(small, "agent", "main_agent")
    small.apply({"event": "changed", "name": "main@1", "field": "removed", "value": "1", "by": "test"})
    assert "main@1" not in play(small, kind)


def test_choices_follow_the_distribution(small: LeagueState) -> None:
    kind, me, rng = kind_of("pfsp", {"self_share": 0.2}), small.players["main"], np.random.default_rng(11)
    games = 20_000
    counts = np.zeros(small.roster.slots)
    for _ in range(games):
        counts[choose(kind, small, me, rng).opponent.slot] += 1
    p = distribution(kind, small, me)
    assert (np.abs(counts - games * p) <= 3 * np.sqrt(games * p * (1 - p))).all()


def test_a_choice_names_the_branch_that_made_it(small: LeagueState) -> None:
    rng = np.random.default_rng(0)
    choices = [choose(kind_of("pfsp", {"self_share": 0.5}), small, small.players["main"], rng) for _ in range(40)]
    assert {(choice.branch, choice.opponent.name == "main") for choice in choices} == {
        ("self_play", True),
        ("pfsp", False),
    }


def test_every_kind_of_player_has_probabilities_that_sum_to_one(small: LeagueState) -> None:
    add(small, "agent", "main_agent")
    add(small, "agent@1", "main_agent")
    for name in KINDS:
        config = {"opponent": "main@1"} if name == "fixed" else {}
        total = distribution(kind_of(name, config), small, small.players["main"])
        assert total.sum() == pytest.approx(1.0), name
        assert total.min() >= 0.0, name


def test_a_user_adds_a_kind_in_a_few_lines(small: LeagueState, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KINDS, "_entries", dict(KINDS._entries))

    @KINDS.register("nemesis")
    @dataclass(frozen=True)
    class Nemesis(Kind):
        floor: float = 0.2

        def branches(self, view: View, me: Player) -> Iterator[Branch]:
            rivals = view.roster.historical
            yield Branch("nemesis", 1.0, lambda: weighted(rivals, view.win_rates(me.slot, rivals) < self.floor))

    assert play(small, "nemesis") == {"main@1": 1.0}
    assert play(small, "nemesis", floor=0.6) == pytest.approx({"main@1": 0.5, "main@2": 0.5})


def test_a_wrong_name_suggests_a_known_one() -> None:
    with pytest.raises(UnknownName, match="did you mean main_agent"):
        kind_of("main_agnet")
    with pytest.raises(ConfigurationError, match=r"option of pfsp 'weigthing' does not exist; did you mean weighting"):
        kind_of("pfsp", {"weigthing": "squared"})
    with pytest.raises(ConfigurationError, match="did you mean squared"):
        kind_of("pfsp", {"weighting": "sqared"})


@pytest.mark.parametrize(
    ("kind", "config", "problem"),
    [
        ("random", {"self_share": 1.5}, "self_share=1.5"),
        ("pfsp", {"shares": "games"}, "shares='games' is not 'decisions' or 'matches'"),
        ("softmax", {"temperature": 0.0}, "temperature=0.0"),
        ("fixed", {}, "opponent is not given"),
        ("psro", {"self_share": 0.7, "uniform_share": 0.7}, "shares within 1"),
        ("psro", {"solver": "nsh"}, "did you mean nash"),
        ("pbt_elo", {"sigma": 0.0}, "sigma=0.0"),
        ("main_agent", {"pfsp_share": 0.9}, "above 1"),
        ("main_agent", {"checkpoint_win_rate": 7.0}, "checkpoint_win_rate=7.0"),
        ("main_exploiter", {"checkpoint_min_steps": 10, "checkpoint_max_steps": 5}, "need 0 <= min <= max"),
        ("best_response", {"budget": 0}, "budget=0 must be at least 1 step"),
        ("best_response", {"budget": "1/2"}, "budget='1/2' is not a number of steps; use a whole one, or a share"),
        ("pfsp", {"snapshot_every": 0.02}, "snapshot_every=0.02 is not a number of steps; use a whole one, or a share"),
        ("pfsp", {"snapshot_every": -5}, "snapshot_every=-5 is not a number of steps; use a whole one, or a share"),
        ("best_response", {"snapshot_every": 500}, "snapshot_every=500 is not heeded by this kind; set budget instead"),
        ("anytime_psro", {"snapshot_every": None}, "snapshot_every=None is not heeded by this kind; set budget"),
        ("main_agent", {"checkpoint_max_steps": "2%"}, "give both as steps, or both as shares of the run"),
        (
            "main_exploiter",
            {"checkpoint_min_steps": "4%", "checkpoint_max_steps": "2%"},
            "checkpoint_min_steps=4%, checkpoint_max_steps=2%: need 0 <= min <= max",
        ),
        ("main_exploiter", {"freeze": "return"}, "freeze='return' is not 'win_rate' or 'returns'"),
        ("league_exploiter", {"freeze": "returns", "patience": 0}, "patience=0 must be at least 1"),
        ("main_agent", {"freeze": "returns"}, "option of main_agent 'freeze' does not exist"),
    ],
)
def test_impossible_constants_are_refused(kind: str, config: dict[str, object], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        kind_of(kind, config)


def test_a_whole_number_may_be_written_as_a_float() -> None:
    refresh = vars(kind_of("psro", {"refresh": 1e3}))["refresh"]
    assert refresh == 1000 and isinstance(refresh, int)  # 1e3 in YAML


def test_the_default_kind_is_snapshotted_every_period_or_by_snapshot_every(small: LeagueState) -> None:
    me, rng = small.players["main"], np.random.default_rng(0)
    assert kind_of("pfsp").period_end(small, me, 1, rng).snapshot
    assert not kind_of("pfsp", {"snapshot_every": 100}).period_end(small, me, 99, rng).snapshot
    assert kind_of("pfsp", {"snapshot_every": 100}).period_end(small, me, 100, rng).snapshot
    assert not kind_of("pfsp", {"snapshot_every": None}).period_end(small, me, 10**12, rng).snapshot


def test_a_share_of_the_run_is_reached_once_its_length_is_known(small: LeagueState) -> None:
    me, rng = small.players["main"], np.random.default_rng(0)
    for kind, option in (("pfsp", "snapshot_every"), ("best_response", "budget")):
        made = kind_of(kind, {option: "2%"})
        assert not made.period_end(small, me, 10**12, rng).snapshot, "the length of the run is not known yet"
        assert not made.within(None).period_end(small, me, 10**12, rng).snapshot
        assert not made.within(1e6).period_end(small, me, 19_999, rng).snapshot
        assert made.within(1e6).period_end(small, me, 20_000, rng).snapshot


def test_a_fixed_opponent_that_was_removed_is_named(small: LeagueState) -> None:
    small.apply({"event": "changed", "name": "main@1", "field": "removed", "value": "1", "by": "test"})
    with pytest.raises(MatchmakingError, match="'main@1', which was removed"):
        play(small, "fixed", opponent="main@1")


def test_only_exploiters_and_best_responses_begin_without_a_frozen_model() -> None:
    late = {name for name in KINDS if not KINDS[name].begins_frozen}
    assert late == {"main_exploiter", "league_exploiter", "best_response", "anytime_psro"}


def test_a_best_response_meets_one_player_or_the_mixture_until_its_budget_is_spent(small: LeagueState) -> None:
    me, rng = small.players["main"], np.random.default_rng(0)
    alone = kind_of("best_response", {"opponent": "main@1", "budget": 300})
    assert distribution(alone, small, me)[small.players["main@1"].slot] == 1.0
    mixed = distribution(kind_of("best_response"), small, me)
    assert mixed == pytest.approx(distribution(kind_of("psro"), small, me))
    early, late = alone.period_end(small, me, 299, rng), alone.period_end(small, me, 300, rng)
    assert (early.snapshot, early.reset) == (False, False)
    assert (late.snapshot, late.reset) == (True, True)


def test_the_gain_of_a_best_response_is_from_frozen_players_before_it(small: LeagueState) -> None:
    for name in ("learner", "hunter", "mixed"):
        add(small, name, "self_play" if name == "learner" else "best_response")

    def gains_from(response: str, **config: object) -> dict[str, float] | None:
        player = small.players[response]
        found = kind_of("best_response", config).gains_from(small, player)
        return None if found is None else named(small, _spread(small, found))

    add(small, "hunter@5")
    assert gains_from("hunter@5", opponent="main@2") == {"main@2": 1.0}
    assert gains_from("hunter@5", opponent="main") == {"main@3": 1.0}, "the newest snapshot of one that learns"
    assert gains_from("hunter@5", opponent="learner") is None, "it has no snapshot"
    assert gains_from("hunter@5", solver="uniform") == pytest.approx(
        {f"main@{version}": 1 / 3 for version in (1, 2, 3)}
    )
    add(small, "main@9")
    add(small, "learner@9")
    assert gains_from("hunter@5", opponent="main") == {"main@3": 1.0}, "main@9 came after it"
    assert gains_from("hunter@5", opponent="learner") is None
    assert set(gains_from("hunter@5", solver="uniform") or {}) == {"main@1", "main@2", "main@3"}
    add(small, "byhand", "best_response", frozen=True)
    assert set(gains_from("byhand", solver="uniform") or {}) == {
        "main@1",
        "main@2",
        "main@3",
        "main@9",
        "learner@9",
        "hunter@5",
    }


def test_the_newest_response_of_a_player_is_not_an_average_of_weights() -> None:
    kind = "best_response"
    learning = [Player(name, slot, kind) for slot, name in enumerate(("early", "hunter", "averaged"))]
    models = [
        ("hunter", "hunter@1"),
        ("hunter", "hunter@2"),
        ("hunter", "hunter.average-0.1@2"),
        ("averaged", "averaged.average-0.1@2"),
    ]
    frozen = [
        Player(model, slot, kind, parent=parent, model=ModelRef.parse(model), frozen=True)
        for slot, (parent, model) in enumerate(models, 3)
    ]
    found = responses(Roster([*learning, *frozen, Player("byhand", 7, kind, frozen=True), Player("main", 8, "pfsp")]))
    assert {name: None if one is None else one.name for name, one in found.items()} == {
        "early": None, "hunter": "hunter@2", "averaged": "averaged.average-0.1@2", "byhand": "byhand",
    }  # fmt: skip


def _spread(state: LeagueState, target: Target) -> np.ndarray:
    """Return each slot's share of a target, on average over both seats."""
    found = np.zeros(len(state.players))
    found[target.slots] = target.shares.mean(axis=0)
    return found
