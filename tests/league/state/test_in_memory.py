import numpy as np
import pytest

from league.rules.ratings import Skill, Skills
from league.rules.settings import Settings
from league.state.commands import Change
from league.state.in_memory import MemoryLeague
from league.state.league_state import LeagueState
from league.state.replay import fold
from warren.errors import ConfigurationError, MatchmakingError, PlayerError, PlayerUnavailable

NOW = {"checkpoint_min_steps": 0, "checkpoint_max_steps": 0}  # a snapshot at the end of every period


def league(**settings):
    events = []
    made = MemoryLeague(Settings(**settings), seed=1, on_event=events.append)
    return made, events


def test_recorded_events_fold_into_the_same_league():
    league_, events = league()
    league_.add_player("main", "main_agent", NOW, rules={"learning_rate": {"rule": "perturb", "value": 0.1}})
    league_.snapshot("main", 0)
    league_.add_player("exploiter", "main_exploiter", NOW)
    for round_ in range(20):
        for name in ("main", "exploiter"):
            league_.open_period(name)
            for _ in range(3):
                league_.report(league_.request(name), "wld")
            league_.progress(name, 100 * round_ + 50)
            league_.close_period(name, 100 * round_ + 100, round_ + 1)
    state = LeagueState()
    for event in events:
        state.apply(event)
    assert state.differences(league_.state) == []
    assert state.counters["issued"] == state.counters["counted"] == 120
    assert len(state.roster.historical) == 41


def test_a_snapshot_is_taken_before_the_reset_and_the_payoff_begins_anew():
    league_, events = league()
    league_.add_player("main", "main_agent")
    exploiter = league_.add_player("exploiter", "main_exploiter", NOW)
    league_.open_period("exploiter")
    league_.report(league_.request("exploiter"), "ww")
    decision = league_.close_period("exploiter", 10, 3)
    assert decision.snapshot and decision.reset
    assert [event["event"] for event in events[-3:]] == ["period_closed", "added", "reset"]
    assert league_.state.players["exploiter@3"].parent == "exploiter"
    assert league_.state.games(exploiter.slot, np.array([0])) == 0
    assert league_.state.players["exploiter"].generation == 1


@pytest.mark.parametrize(("rule", "ended"), [("drop", "aborted"), ("count", "counted")])
def test_results_of_a_player_reset_during_the_match_follow_on_reset(rule, ended):
    league_, _ = league(on_reset=rule)
    league_.add_player("main", "main_agent")
    league_.add_player("exploiter", "main_exploiter", NOW)
    league_.open_period("exploiter")
    match = league_.request("exploiter")
    league_.close_period("exploiter", 10, 1)
    assert league_.report(match, "w") == ended
    assert league_.state.counters[ended] == 1 and not league_.state.matches


def test_results_of_a_player_frozen_during_the_match_are_dropped_by_on_frozen():
    league_, _ = league(on_frozen="drop")
    league_.add_player("main", "self_play")
    match = league_.request("main")
    fields = {"player": "main", "name": "main", "field": "frozen", "value": "1"}
    league_.state.apply({"event": "changed", **fields})
    assert league_.report(match, "w") == "aborted"
    assert league_.state.counters["aborted:frozen"] == 1


def test_an_aborted_match_has_no_result():
    league_, _ = league()
    league_.add_player("main", "self_play")
    league_.abort(league_.request("main"), "shutdown")
    assert league_.state.counters["aborted:shutdown"] == 1 and league_.state.counted == 0


def test_elo_moves_with_results_but_not_against_oneself():
    league_, _ = league()
    league_.add_player("main", "self_play")
    league_.report(league_.request("main"), "www")
    assert league_.state.ratings == [1200.0]
    league_.add_player("rival", "fixed", {"opponent": "main"})
    league_.report(league_.request("rival"), "w")
    assert league_.state.ratings == [1192.0, 1208.0]


def test_an_exploit_copies_mutated_hyperparameters_and_the_start_model():
    league_, _ = league()
    rules = {"learning_rate": {"rule": "perturb", "value": 1.0, "factors": [2.0]}}
    for name, threshold in (("weak", 0.9), ("strong", 0.1)):
        league_.add_player(name, "pbt_elo", {"exploit_below": threshold}, rules=rules)
        league_.open_period(name)
    league_.close_period("strong", 5, 7)
    assert league_.close_period("weak", 5, 7).exploit == "strong"
    assert league_.hyperparameters("weak") == {"learning_rate": 2.0}
    assert league_.state.progress["weak"].start == league_.state.progress["strong"].start != ""


def test_hyperparameters_follow_their_schedule_through_a_period():
    league_, _ = league()
    schedule = {"rule": "schedule", "points": [[0, 1.0], [1, 0.0]]}
    league_.add_player("main", "self_play", rules={"entropy_coefficient": schedule, "gamma": 0.9})
    assert league_.open_period("main") == {"entropy_coefficient": 1.0, "gamma": 0.9}
    assert league_.hyperparameters("main", 0.75)["entropy_coefficient"] == 0.25


def test_wrong_players_are_refused():
    league_, _ = league()
    with pytest.raises(ConfigurationError, match="main_agnt"):
        league_.add_player("main", "main_agnt")
    assert not league_.state.players


def test_a_match_of_a_player_that_is_paused_or_gone_is_refused_as_on_redis():
    league_, _ = league()
    league_.add_player("main", "self_play")
    league_.execute(Change("main", "test", ("paused", "1")))
    with pytest.raises(PlayerUnavailable, match="player 'main' is paused; ask again once it is resumed"):
        league_.request("main")
    league_.execute(Change("main", "test", ("removed", "1")))
    with pytest.raises(PlayerError, match="player 'main' does not exist or was removed"):
        league_.request("main")


def test_a_request_for_a_match_against_a_removed_strategy_says_so():
    league_, _ = league()
    league_.add_player("strategy", "self_play")
    league_.add_player("answer", "anytime_psro", {"strategy": "strategy", "strategy_share": 1.0})
    league_.execute(Change("strategy", "test", ("removed", "1")))
    with pytest.raises(MatchmakingError, match="player 'answer' plays 'strategy', which was removed; name another"):
        league_.request("answer")


def test_skills_follow_the_weights_as_elo_does():
    league_, events = league()
    for name in ("main", "hunter"):
        league_.add_player(name, "main_agent" if name == "main" else "main_exploiter", NOW)
    for _ in range(20):
        league_.report(league_.request("hunter"), "w")
    entries = [(f"{number}-0", event) for number, event in enumerate(events, 1)]
    before = Skills()
    fold(entries, before)
    assert before["hunter"].mu > 30.0
    league_.open_period("hunter")
    league_.close_period("hunter", 10, 3)  # a snapshot, then a reset
    after = Skills()
    state = fold([(f"{number}-0", event) for number, event in enumerate(events, 1)], after)
    assert after["hunter@3"] == before["hunter"] and after["hunter"] == Skill()
    hunter, frozen = (state.players[name].slot for name in ("hunter", "hunter@3"))
    assert state.ratings[hunter] == 1200.0 < state.ratings[frozen]
