"""league.matchmaking.alphastar: every rule of AlphaStar's three kinds, and mistakes of other implementations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.league_in_memory import add, league, named, set_return, set_win_rate

from league.matchmaking import KINDS, distribution, kind_of
from league.matchmaking.alphastar import remove_monotonic_suffix
from league.rules.pfsp import pfsp
from league.rules.plateau import Look
from league.state.league_state import LeagueState
from warren.errors import ConfigurationError, MatchmakingError

CONSTANTS = {"checkpoint_min_steps": 2_000_000_000, "checkpoint_max_steps": 4_000_000_000, "checkpoint_win_rate": 0.7}


@pytest.fixture
def race() -> LeagueState:
    """Return a league of a main agent, a main exploiter, two league exploiters, and snapshots of all but "right"."""
    state = league()
    add(state, "main", "main_agent")
    add(state, "main@0", "main_agent")
    add(state, "exploiter", "main_exploiter")
    add(state, "left", "league_exploiter")
    add(state, "right", "league_exploiter")
    add(state, "main@1", "main_agent")
    add(state, "exploiter@1", "main_exploiter")
    add(state, "left@1", "league_exploiter")
    return state


def play(state: LeagueState, name: str, **config: float) -> dict[str, float]:
    player = state.players[name]
    published = {"shares": "matches", **config}
    return named(state, distribution(kind_of(player.kind, published), state, player))


def rates(state: LeagueState, home: str, **away: float) -> None:
    for name, rate in away.items():
        set_win_rate(state, home, name.replace("_at_", "@"), rate)


def branch(state: LeagueState, name: str, wanted: str) -> dict[str, float]:
    """Return the probabilities of opponents given that a branch is taken, added up over all branches of its name."""
    player, total = state.players[name], np.zeros(state.roster.slots)
    for found in kind_of(player.kind).branches(state, player):
        if found.name == wanted:
            candidates = found.candidates()
            np.add.at(total, candidates.slots, candidates.probabilities)
    return named(state, total)


def test_the_monotonic_suffix_is_cut_as_published() -> None:
    players = np.array([10, 11, 12, 13])
    assert remove_monotonic_suffix(np.array([0.9, 0.6, 0.8, 0.7]), players).tolist() == [10, 11, 12]
    assert remove_monotonic_suffix(np.array([0.9, 0.8, 0.7]), players[:3]).tolist() == []
    assert remove_monotonic_suffix(np.array([0.9, 0.9]), players[:2]).tolist() == []
    assert remove_monotonic_suffix(np.array([0.1, 0.2]), players[:2]).tolist() == [10, 11]
    assert remove_monotonic_suffix(np.array([]), players[:0]).tolist() == []


def test_a_main_agents_branches_have_the_published_probabilities(race: LeagueState) -> None:
    shares = {b.name: b.probability for b in kind_of("main_agent").branches(race, race.players["main"])}
    assert shares == pytest.approx({"pfsp": 0.5, "verification": 0.15, "self_play": 0.35})


def test_several_main_agents_are_picked_with_equal_probabilities(race: LeagueState) -> None:
    add(race, "second", "main_agent")
    shares = [(b.name, b.probability) for b in kind_of("main_agent").branches(race, race.players["main"])]
    assert shares == [
        ("pfsp", 0.5),
        *[("verification", pytest.approx(0.075)), ("self_play", pytest.approx(0.175))] * 2,
    ]
    assert branch(race, "main", "self_play") == {"main": 1.0, "second": 1.0}


def test_a_main_agent_plays_squared_pfsp_over_all_of_history(race: LeagueState) -> None:
    rates(race, "main", main_at_0=0.9, main_at_1=0.5, exploiter_at_1=0.4, left_at_1=0.1)
    p = pfsp([0.9, 0.5, 0.4, 0.1], "squared")
    assert branch(race, "main", "pfsp") == pytest.approx(
        dict(zip(("main@0", "main@1", "exploiter@1", "left@1"), p, strict=True))
    )


def test_verification_first_plays_exploiters_that_beat_the_main_agent(race: LeagueState) -> None:
    add(race, "exploiter@2", "main_exploiter")
    rates(race, "main", main_at_0=0.1, main_at_1=0.2, exploiter_at_1=0.29, exploiter_at_2=0.8)
    p = pfsp([0.29, 0.8], "squared")
    expected = dict(zip(("exploiter@1", "exploiter@2"), p, strict=True))
    assert branch(race, "main", "verification") == pytest.approx(expected)


def test_verification_then_plays_forgotten_snapshots(race: LeagueState) -> None:
    for version in (2, 3):
        add(race, f"main@{version}", "main_agent")
    rates(race, "main", exploiter_at_1=0.3, main_at_0=0.9, main_at_1=0.6, main_at_2=0.8, main_at_3=0.7)
    p = pfsp([0.9, 0.6, 0.8], "squared")
    expected = dict(zip(("main@0", "main@1", "main@2"), p, strict=True))
    assert branch(race, "main", "verification") == pytest.approx(expected)


@pytest.mark.parametrize("forgotten", [(0.9, 0.8), (0.7, 0.8)], ids=["falling", "not below .7"])
def test_verification_falls_through_to_self_play_when_nothing_was_forgotten(
    race: LeagueState, forgotten: tuple[float, float]
) -> None:
    rates(race, "main", exploiter_at_1=0.3, main_at_0=forgotten[0], main_at_1=forgotten[1])
    assert branch(race, "main", "verification") == {"main": 1.0}


def test_a_main_agent_that_is_too_strong_is_met_through_its_snapshots(race: LeagueState) -> None:
    add(race, "strong", "main_agent")
    add(race, "strong@1", "main_agent")
    add(race, "strong@2", "main_agent")
    rates(race, "main", strong=0.3, strong_at_1=0.5, strong_at_2=0.9)
    p = pfsp([0.5, 0.9], "variance")
    assert branch(race, "main", "self_play") == pytest.approx({"main": 1.0, "strong@1": p[0], "strong@2": p[1]})
    rates(race, "main", strong=0.31)
    assert branch(race, "main", "self_play") == {"main": 1.0, "strong": 1.0}


def test_a_main_exploiter_plays_the_main_agent_while_it_wins_above_a_tenth(race: LeagueState) -> None:
    rates(race, "exploiter", main=0.11)
    assert play(race, "exploiter") == {"main": 1.0}


def test_a_main_exploiter_that_wins_at_most_a_tenth_plays_snapshots(race: LeagueState) -> None:
    rates(race, "exploiter", main=0.1, main_at_0=0.5, main_at_1=0.2)
    p = pfsp([0.5, 0.2], "variance")
    assert play(race, "exploiter") == pytest.approx({"main@0": p[0], "main@1": p[1]})


def test_a_league_exploiter_plays_capped_linear_pfsp_over_all_of_history(race: LeagueState) -> None:
    rates(race, "left", main_at_0=0.9, main_at_1=0.5, exploiter_at_1=0.1, left_at_1=0.7)
    p = pfsp([0.9, 0.5, 0.1, 0.7], "linear_capped")
    assert play(race, "left") == pytest.approx(dict(zip(("main@0", "main@1", "exploiter@1", "left@1"), p, strict=True)))


# Snapshots and resets.


def decide(state: LeagueState, name: str, steps: int, **config: Any) -> tuple[bool, bool]:
    player = state.players[name]
    found = kind_of(player.kind, config).period_end(state, player, steps, np.random.default_rng(0))
    return found.snapshot, found.reset


@pytest.mark.parametrize("name", ["main", "exploiter", "left"])
def test_the_constants_are_those_of_the_paper(race: LeagueState, name: str) -> None:
    kind = kind_of(race.players[name].kind)
    assert {key: getattr(kind, key) for key in CONSTANTS} == CONSTANTS


@pytest.mark.parametrize("name", ["main", "exploiter", "left"])
def test_snapshots_are_taken_between_the_fewest_and_the_most_steps(race: LeagueState, name: str) -> None:
    for other in race.players:
        if other != name:
            set_win_rate(race, name, other, 1.0)
    assert decide(race, name, 1_999_999_999)[0] is False
    assert decide(race, name, 2_000_000_000)[0] is True
    for other in race.players:
        if other != name:
            set_win_rate(race, name, other, 0.0)
    assert decide(race, name, 3_999_999_999)[0] is False
    assert decide(race, name, 4_000_000_000)[0] is True


@pytest.mark.parametrize("name", ["main", "left"])
def test_one_low_win_rate_against_history_prevents_an_early_snapshot(race: LeagueState, name: str) -> None:
    rates(race, name, main_at_0=0.9, main_at_1=0.9, exploiter_at_1=0.9, left_at_1=0.7)
    assert decide(race, name, 3_000_000_000)[0] is False
    rates(race, name, left_at_1=0.71)
    assert decide(race, name, 3_000_000_000)[0] is True


def test_a_main_exploiters_early_snapshot_depends_on_main_agents_only(race: LeagueState) -> None:
    rates(race, "exploiter", main=0.71, main_at_0=0.0, main_at_1=0.0, left_at_1=0.0)
    assert decide(race, "exploiter", 2_500_000_000)[0] is True
    add(race, "second", "main_agent")
    assert decide(race, "exploiter", 2_500_000_000)[0] is False


def test_main_agents_are_never_reset_and_main_exploiters_always(race: LeagueState) -> None:
    assert decide(race, "main", 5_000_000_000) == (True, False)
    assert decide(race, "exploiter", 5_000_000_000) == (True, True)


def test_league_exploiters_are_reset_after_a_quarter_of_their_snapshots(race: LeagueState) -> None:
    rng, player = np.random.default_rng(2), race.players["left"]
    kind = kind_of(player.kind)
    resets = [kind.period_end(race, player, 5_000_000_000, rng).reset for _ in range(2000)]
    assert abs(np.mean(resets) - 0.25) <= 3 * np.sqrt(0.25 * 0.75 / 2000)


def test_a_player_that_is_not_snapshotted_is_not_reset(race: LeagueState) -> None:
    for name in ("main", "exploiter", "left"):
        assert decide(race, name, 100) == (False, False)


def test_thresholds_may_be_shares_of_the_run(race: LeagueState) -> None:
    shares = {"checkpoint_min_steps": "1%", "checkpoint_max_steps": "2%"}
    for name in ("main", "exploiter", "left"):
        player, rng = race.players[name], np.random.default_rng(0)
        kind = kind_of(player.kind, shares)
        assert not kind.within(1e6).period_end(race, player, 19_999, rng).snapshot
        assert kind.within(1e6).period_end(race, player, 20_000, rng).snapshot
        assert not kind.within(2e6).period_end(race, player, 20_000, rng).snapshot
    rates(race, "exploiter", main=0.71)
    assert (
        kind_of("main_exploiter", shares).within(1e6).period_end(race, race.players["exploiter"], 10_000, rng).snapshot
    )


# Exploiters frozen once the return against their target stops rising.

BY_RETURNS = {"freeze": "returns", "checkpoint_min_steps": 3000, "checkpoint_max_steps": 9000, "patience": 2}


def seen(state: LeagueState, name: str, *means: float, games: int = 2048) -> None:
    """Set the looks at a player: one per 1000 steps, with these mean returns."""
    given = [Look(0, 1000 * number, games, mean, mean - 0.1, mean + 0.1) for number, mean in enumerate(means, start=1)]
    state.looked[name] = given


@pytest.mark.parametrize("name", ["exploiter", "left"])
def test_an_exploiter_is_frozen_when_its_return_stops_rising(race: LeagueState, name: str) -> None:
    for other in race.players:
        if other != name:
            set_win_rate(race, name, other, 1.0)  # win rates do not count here
    seen(race, name, -0.5, -0.2, 0.1, 0.3)
    assert decide(race, name, 4000, **BY_RETURNS)[0] is False
    seen(race, name, -0.5, 0.3, 0.2, 0.3)
    assert decide(race, name, 4000, **BY_RETURNS)[0] is True
    assert decide(race, name, 2999, **BY_RETURNS)[0] is False, "fewer than the fewest steps"
    reason = kind_of(race.players[name].kind, BY_RETURNS).period_end(
        race, race.players[name], 4000, np.random.default_rng(0)
    )
    assert reason.reason == "return against its target +0.3000 (+0.2000 to +0.4000), no longer rising"


def test_without_looks_of_enough_games_an_exploiter_is_frozen_at_its_most_steps(race: LeagueState) -> None:
    for means in ((), (float("nan"),) * 8):
        seen(race, "exploiter", *means)
        assert decide(race, "exploiter", 8999, **BY_RETURNS)[0] is False
        assert decide(race, "exploiter", 9000, **BY_RETURNS) == (True, True)
    seen(race, "exploiter", *[0.1] * 8, games=2047)
    assert decide(race, "exploiter", 8999, **BY_RETURNS)[0] is False


def test_looks_before_a_snapshot_or_a_reset_do_not_count(race: LeagueState) -> None:
    seen(race, "left", -0.5, 0.3, 0.2, 0.3)
    race.progress["left"].snapshot_steps = 2000
    assert decide(race, "left", 3000, **BY_RETURNS)[0] is False
    race.progress["left"].snapshot_steps = 0
    race.apply({"event": "reset", "player": "left", "generation": "1", "start": ""})
    assert decide(race, "left", 4000, **BY_RETURNS)[0] is False


def test_main_exploiters_aim_at_main_agents_and_league_exploiters_at_the_mixture(race: LeagueState) -> None:
    assert not kind_of("main_exploiter").wants_looks and not kind_of("main_agent").wants_looks
    hunter, left = kind_of("main_exploiter", BY_RETURNS), kind_of("league_exploiter", {**BY_RETURNS, "look_games": 64})
    assert hunter.wants_looks and left.wants_looks
    main = hunter.to_beat(race)
    assert (
        main is not None and main.slots.tolist() == [race.players["main"].slot] and main.shares.tolist() == [[1], [1]]
    )
    set_return(race, "main@1", "main@0", 0.5)
    set_return(race, "main@1", "exploiter@1", 0.5)
    set_return(race, "main@1", "left@1", 0.5)
    mixture = left.to_beat(race)
    assert mixture is not None and mixture.games == 64
    assert mixture.slots.tolist() == race.roster.historical.tolist()
    best = mixture.slots.tolist().index(race.players["main@1"].slot)
    assert mixture.shares[:, best].tolist() == [1.0, 1.0]
    assert hunter.to_beat(league()) is None and left.to_beat(league()) is None


def test_every_constant_can_be_configured(race: LeagueState) -> None:
    rates(race, "main", main_at_0=0.5, main_at_1=0.5, exploiter_at_1=0.5, left_at_1=0.5)
    assert play(race, "main", pfsp_share=0.0, verification_share=0.0) == {"main": 1.0}
    assert play(race, "main", pfsp_share=0.0, verification_share=1.0, exploited_win_rate=0.6) == {"exploiter@1": 1.0}
    rates(race, "main", main_at_1=0.6)
    assert play(race, "main", pfsp_share=0.0, verification_share=1.0, forgotten_win_rate=0.4) == {"main": 1.0}
    assert "main" not in play(race, "main", pfsp_share=0.0, verification_share=0.0, too_strong_win_rate=0.6)
    assert "main" not in play(race, "exploiter", too_strong_win_rate=0.6)
    assert decide(race, "main", 20, checkpoint_min_steps=10, checkpoint_max_steps=15) == (True, False)
    assert decide(race, "main", 15, checkpoint_min_steps=10, checkpoint_max_steps=15) == (True, False)
    assert decide(race, "main", 14, checkpoint_min_steps=10, checkpoint_max_steps=15) == (False, False)
    assert decide(race, "main", 12, checkpoint_min_steps=10, checkpoint_win_rate=0.4) == (True, False)
    assert decide(race, "main", 5_000_000_000, reset_probability=1.0) == (True, True)


# Mistakes of other implementations.


def test_a_main_exploiter_does_not_play_as_a_main_agent(race: LeagueState) -> None:
    rates(race, "main", main_at_0=0.4, main_at_1=0.4, exploiter_at_1=0.4, left_at_1=0.4)
    rates(race, "exploiter", main=0.4, main_at_0=0.4, main_at_1=0.4, exploiter_at_1=0.4, left_at_1=0.4)
    assert not issubclass(KINDS["main_exploiter"], KINDS["main_agent"])
    assert set(play(race, "main")) > set(play(race, "exploiter")) == {"main"}


def test_own_snapshots_that_beat_a_main_agent_do_not_count_as_exploiters(race: LeagueState) -> None:
    # Its own snapshots beat it, but are no exploiters; nor are they forgotten, as its win rates do not rise.
    rates(race, "main", exploiter_at_1=0.9, left_at_1=0.0, main_at_0=0.2, main_at_1=0.1)
    assert branch(race, "main", "verification") == {"main": 1.0}


def test_verification_ignores_league_exploiters_and_players_frozen_by_hand(
    race: LeagueState,
) -> None:
    add(race, "reference", "main_exploiter", frozen=True)
    rates(race, "main", exploiter_at_1=0.2, left_at_1=0.0, reference=0.0)
    assert branch(race, "main", "verification") == {"exploiter@1": 1.0}


def test_forgotten_snapshots_exclude_the_monotonic_suffix(race: LeagueState) -> None:
    add(race, "main@2", "main_agent")
    rates(race, "main", exploiter_at_1=0.9, main_at_0=0.5, main_at_1=0.9, main_at_2=0.1)
    assert set(branch(race, "main", "verification")) == {"main@0", "main@1"}


def test_a_league_exploiters_pfsp_is_capped_and_not_squared(race: LeagueState) -> None:
    rates(race, "left", main_at_0=0.0, main_at_1=0.4, exploiter_at_1=0.5, left_at_1=0.5)
    assert list(play(race, "left").values()) == pytest.approx([0.25] * 4)


def test_a_league_exploiter_without_matches_is_snapshotted_after_its_most_steps(race: LeagueState) -> None:
    add(race, "fresh", "league_exploiter")
    assert decide(race, "fresh", 0) == (False, False)
    assert decide(race, "fresh", 4_000_000_001)[0] is True


def test_before_any_snapshot_a_main_agent_plays_itself() -> None:
    state = league()
    add(state, "main", "main_agent")
    assert play(state, "main") == {"main": 1.0}


def test_an_exploiter_without_a_main_agent_says_what_is_missing() -> None:
    state = league()
    add(state, "exploiter", "main_exploiter")
    with pytest.raises(MatchmakingError, match=r"'exploiter' .* needs a main agent to play; add one"):
        play(state, "exploiter")


def test_a_frozen_main_agent_is_history_and_no_longer_picked_as_a_main_agent(race: LeagueState) -> None:
    add(race, "second", "main_agent")
    race.apply({"event": "changed", "name": "main", "field": "frozen", "value": "1", "by": "test"})
    assert play(race, "exploiter") == {"second": 1.0}
    assert "main" in play(race, "left")


@pytest.mark.parametrize("kind", ["main_agent", "main_exploiter", "league_exploiter"])
def test_snapshot_every_is_refused_by_kinds_that_ignore_it(kind: str) -> None:
    with pytest.raises(ConfigurationError, match=r"snapshot_every=1000 is not heeded .* set checkpoint_min_steps"):
        kind_of(kind, {"snapshot_every": 1000})
