"""Sessions as games of a league's matches: seats, results, and decisions to learn from."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from support.sessions_in_matches import (
    ACTIONS,
    OBSERVATIONS,
    PAPER,
    ROCK,
    SCISSORS,
    Hall,
    always,
    throw,
    whole,
)
from support.waiting import until

from agents import build_policy
from envs.rewards import Rewards
from workers.gateway import Actor
from workers.gateway.limits import Limits
from workers.gateway.matches.seating import NO_MATCH
from workers.gateway.protocol import Refusal, Request, read
from workers.gateway.server import opener
from workers.gateway.sessions import Sessions

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def hall() -> Iterator[Callable[..., Hall]]:
    made: list[Hall] = []

    def make(**settings: Any) -> Hall:
        made.append(Hall(**settings))
        return made[-1]

    yield make
    for one in made:
        one.player.close()


def test_each_match_is_counted_once_with_the_results_of_its_sessions(hall) -> None:
    here = hall(tables=2, match_games=3)

    async def play() -> None:
        here.matches.prepare()
        for _ in range(6):
            await asyncio.gather(*(whole(here.session(number)) for number in range(5)))
            here.matches.prepare()

    asyncio.run(play())
    here.matches.leave()
    outcomes = "".join(here.host.reported.values())
    assert outcomes == "w" * 30, "paper beats rock in every session"
    counters = here.counters()
    assert counters["counted"] >= 4 and counters["games"] == 30 and not here.league.state.matches


def test_the_home_player_takes_each_side_in_turn_against_fixed_weights(hall) -> None:
    here = hall(match_games=100)

    async def play() -> list[dict[str, int]]:
        here.matches.prepare()
        return [await whole(here.session(number)) for number in range(10)]

    thrown = asyncio.run(play())
    sides = Counter(side for one in thrown for side in one if one[side] == PAPER)
    assert sides == {"red": 5, "blue": 5}
    assert all(sorted(one.values()) == [ROCK, PAPER] for one in thrown)


def test_only_the_home_players_decisions_are_learned_from(hall) -> None:
    here = hall(length=4, match_games=100)

    async def play() -> None:
        here.matches.prepare()
        for number in range(4):
            await whole(here.session(number))

    asyncio.run(play())
    until(lambda: here.experience.ready == 1, "a trajectory of four games of one decision")
    trajectory = here.player.take(here.experience, 1)
    assert trajectory.action.ravel().tolist() == [PAPER] * 4 and trajectory.reward.ravel().tolist() == [1.0] * 4
    assert trajectory.terminated.all() and trajectory.action_mask is not None and trajectory.action_mask.all()
    assert here.experience.decisions == 4


def test_a_match_against_itself_teaches_from_both_sides(hall) -> None:
    here = hall(opponent=None, length=4, match_games=100)

    async def play() -> None:
        here.matches.prepare()
        for number in range(2):
            await whole(here.session(number))

    asyncio.run(play())
    until(lambda: here.experience.ready == 1, "a trajectory of two games of two decisions each")
    assert here.experience.decisions == 4
    here.matches.leave()
    assert list(here.host.reported.values()) == ["dd"]


def test_an_abandoned_session_has_no_result_and_its_match_is_returned(hall) -> None:
    here = hall(match_games=100)

    async def play() -> None:
        here.matches.prepare()
        gone = here.session()
        await throw(gone)
        gone.abandon()

    asyncio.run(play())
    here.matches.prepare()
    here.matches.leave()
    assert list(here.host.reported.values()) == [""]
    counters = here.counters()
    assert counters["aborted"] == counters["issued"] == 1 and not counters.get("counted")


def test_a_match_ends_only_with_the_last_session_that_was_seated_in_it(hall) -> None:
    here = hall(match_games=1)

    async def play() -> None:
        here.matches.prepare()
        slow = here.session(0)
        await throw(slow)
        await whole(here.session(1))
        here.matches.prepare()  # the match has all its games, so the table gets another
        assert not here.host.reported and here.counters()["issued"] == 2
        await whole(here.session(2))
        here.matches.prepare()
        assert list(here.host.reported.values()) == ["w"], "only the second match has ended"
        slow.finish()
        here.matches.prepare()
        assert sorted(here.host.reported.values()) == ["w", "ww"]

    asyncio.run(play())


def test_games_under_way_at_a_reset_of_the_player_do_not_count(hall) -> None:
    here = hall(length=3, match_games=100)

    async def play() -> None:
        here.matches.prepare()
        before = here.session(0)
        await throw(before)
        await throw(before)
        here.matches.load(always(SCISSORS).state_dict(), 1)
        here.matches.restart()
        here.matches.prepare()
        assert list(here.host.reported.values()) == [""] and here.counters()["issued"] == 2
        assert SCISSORS in (await throw(before)).values(), "the session goes on with the new weights"
        before.finish()
        for number in range(3):
            await whole(here.session(number + 1))

    asyncio.run(play())
    until(lambda: here.experience.ready == 1, "a trajectory of three decisions")
    trajectory = here.player.take(here.experience, 1)
    assert trajectory.action.ravel().tolist() == [SCISSORS] * 3 and trajectory.version.tolist() == [1]
    here.matches.leave()
    assert list(here.host.reported.values()) == ["", "lll"]


def test_a_paused_player_returns_its_matches_and_is_seated_again_later(hall) -> None:
    here = hall(match_games=100)

    async def play() -> None:
        here.matches.prepare()
        under_way = here.session(0)
        await throw(under_way)
        await whole(here.session(1))
        here.matches.pause()
        assert list(here.host.reported.values()) == ["w"] and not here.league.state.matches
        assert not here.player.ready
        with pytest.raises(Refusal, match="no match"):
            await throw(here.session(2))
        under_way.finish()
        here.matches.prepare()
        assert here.player.ready
        await whole(here.session(3))

    asyncio.run(play())
    here.matches.leave()
    assert list(here.host.reported.values()) == ["w", "w"]


def test_a_match_with_an_expired_lease_is_replaced_and_not_reported(hall) -> None:
    here = hall(match_games=100)

    async def play() -> None:
        here.matches.prepare()
        under_way = here.session(0)
        await throw(under_way)
        here.matches.lose(here.matches.held)
        here.matches.prepare()
        under_way.finish()
        await whole(here.session(1))
        here.matches.prepare()

    asyncio.run(play())
    here.matches.leave()
    assert list(here.host.reported.values()) == ["w"] and here.counters()["issued"] == 2


def test_a_table_keeps_its_match_while_no_other_is_available(hall) -> None:
    here = hall(match_games=1)

    async def play() -> None:
        here.matches.prepare()
        here.host.away = True
        for number in range(3):
            await whole(here.session(number))
            here.matches.prepare()
        assert not here.host.reported
        here.host.away = False
        await whole(here.session(3))
        here.matches.prepare()

    asyncio.run(play())
    assert list(here.host.reported.values()) == ["wwww"]


def test_rewards_outside_of_decisions_count_for_the_result(hall) -> None:
    here = hall(match_games=100)

    async def play() -> None:
        here.matches.prepare()
        early = here.session(0)  # home is red
        early.reward(-5.0, "red")  # before any decision
        await throw(early)
        early.finish()
        late = here.session(1)  # home is blue
        await throw(late)
        late.over("blue", None)
        late.reward(-5.0, "blue")
        late.finish()
        once = here.session(2)  # home is red
        await once.act([0.0, 0.0], "blue")
        await once.act([0.0, 0.0], "red", None, -5.0)  # with its first decision
        once.finish()
        hurried = here.session(3)  # home is blue
        unheard = asyncio.ensure_future(hurried.act([0.0, 0.0], "blue"))
        await asyncio.sleep(0)
        hurried.reward(-5.0, "blue")  # while it is still deciding
        hurried.finish()
        await asyncio.gather(unheard, return_exceptions=True)

    asyncio.run(play())
    here.matches.leave()
    assert list(here.host.reported.values()) == ["llll"]


def test_several_games_of_one_session_each_count(hall) -> None:
    here = hall(length=3, match_games=100)

    async def play() -> list[dict[str, int]]:
        here.matches.prepare()
        session, thrown = here.session(), []
        for _ in range(3):
            thrown.append(await throw(session))
            session.begin_anew()
        session.finish()
        return thrown

    thrown = asyncio.run(play())
    assert [one["red"] for one in thrown] == [PAPER, ROCK, PAPER], "each game is seated anew"
    until(lambda: here.experience.ready == 1, "a trajectory of three games")
    assert here.player.take(here.experience, 1).terminated.all()
    here.matches.leave()
    assert list(here.host.reported.values()) == ["www"]


def test_a_game_is_not_over_while_an_agent_is_deciding(hall) -> None:
    here = hall()

    async def play() -> None:
        here.matches.prepare()
        session = here.session()
        asked = asyncio.ensure_future(session.act([0.0, 0.0], "red"))
        await asyncio.sleep(0)
        with pytest.raises(ValueError, match="agent 'red' is still deciding"):
            session.begin_anew()
        await asked

    asyncio.run(play())


def test_an_agent_of_no_side_is_refused_by_its_name(hall) -> None:
    here = hall()

    async def play() -> None:
        here.matches.prepare()
        session = here.session()
        with pytest.raises(ValueError, match="agent '': is of no side; the class declares sides of red, blue"):
            await session.act([0.0, 0.0], "")
        with pytest.raises(ValueError, match="agent 'rde'"):
            session.reward(1.0, "rde")
        await whole(session)

    asyncio.run(play())
    here.matches.leave()
    assert list(here.host.reported.values()) == ["w"]


def test_agents_of_a_team_share_a_policy_and_the_mean_return(hall) -> None:
    here = hall(sides=(("a", "b"), ("c",)), match_games=100, length=2)

    async def play() -> list[int]:
        here.matches.prepare()
        session = here.session()
        thrown = await asyncio.gather(*(session.act([0.0, 0.0], agent) for agent in ("a", "b", "c")))
        session.reward(1.0, "a")
        session.reward(0.0, "b")
        session.reward(0.75, "c")  # more than the team's mean, less than its sum
        session.finish()
        return [int(one) for one in thrown]

    assert asyncio.run(play()) == [PAPER, PAPER, ROCK]
    here.matches.leave()
    assert list(here.host.reported.values()) == ["l"]


class Throws(Actor):
    """Both sides throw in each tick; the body of the end names the winner."""

    observation_space, action_space, sides = OBSERVATIONS, ACTIONS, ("red", "blue")

    async def tick(self, body: bytes) -> str:
        thrown = await asyncio.gather(*(self.act([0.0, 0.0], agent=side) for side in self.sides))
        return " ".join(map(str, thrown))

    async def end(self, body: bytes) -> None:
        winner = body.decode()
        for side in self.sides:
            self.reward(1.0 if side == winner else -1.0, agent=side)


def asked(session: str, kind: str, body: bytes = b"", dialect: bytes = b"session") -> Request:
    """Return a request as it comes over HTTP or TCP."""
    return read([(dialect, session.encode()), (b"step_kind", kind.encode())]).with_body(body)


def test_games_of_both_dialects_count_unless_they_time_out(hall) -> None:
    here, now = hall(match_games=100), [0.0]

    async def play() -> None:
        open_game = opener(Throws, {}, here.player, Rewards())
        sessions = Sessions(
            open_game, Limits(idle=5.0), ready=lambda: here.player.ready, wait=NO_MATCH, clock=lambda: now[0]
        )
        with pytest.raises(Refusal, match="no match of the league has come yet") as refused:
            await sessions.answer(asked("a", "start"))
        assert refused.value.status == 503
        here.matches.prepare()
        for name, dialect, kinds in (("a", b"session", ("auto", "auto", "stop")), ("b", b"game_id", ("start", "tick"))):
            said = [await sessions.answer(asked(name, kind, b"red", dialect)) for kind in kinds]
            assert set(said[1].decode().split()) == {str(ROCK), str(PAPER)}
        now[0] = 6.0
        assert sessions.reap() == 1, "game b has not ended"
        await sessions.answer(asked("c", "auto"))
        await sessions.answer(asked("c", "end", b"red"))
        sessions.close()

    asyncio.run(play())
    here.matches.leave()
    assert list(here.host.reported.values()) == ["ww"], "main was red in the first and the third game"


def test_three_sides_are_ranked_by_their_returns(hall) -> None:
    policies = {"rock": always(ROCK)}
    here = hall(sides=(("a",), ("b",), ("c",)), match_games=100, policies=policies)

    async def play() -> None:
        here.matches.prepare()
        for home in ("a", "b", "c"):  # main takes each side in turn
            session = here.session()
            thrown = dict(zip("abc", await asyncio.gather(*(session.act([0, 0], one) for one in "abc")), strict=True))
            assert [side for side in "abc" if thrown[side] == PAPER] == [home]
            for place, side in enumerate("abc"):
                session.reward(float(place), side)
            session.finish()

    asyncio.run(play())
    here.matches.leave()
    assert list(here.host.reported.values()) == ["210" + "102" + "021"]


def test_games_are_allotted_by_the_players_shares_of_the_decisions(hall) -> None:
    here = hall(match_games=1000)
    other, _ = here.learns("other", always(ROCK))
    seats = []

    def seat(decisions: int) -> None:
        seat = here.seating.take()
        seat.decisions = decisions if seat.tables.home == "main" else 4 * decisions
        seats.append(seat)
        here.seating.leave(seat, np.zeros(2))

    here.matches.prepare()
    other.prepare()
    for _ in range(100):
        seat(1)
    games = Counter(seat.tables.home for seat in seats)
    assert abs(games["main"] - 80) <= 4, "games of the other player have four times the decisions"
    here.seating.share({"main": 1.0, "other": 4.0})
    seats.clear()
    for _ in range(100):
        seat(1)
    assert abs(sum(seat.tables.home == "main" for seat in seats) - 50) <= 4, "its games have a fifth of the decisions"
    here.seating.offer(["other"])
    assert here.seating.take().tables.home == "other"


def test_trajectories_that_no_learner_takes_are_dropped_and_counted(hall) -> None:
    here = hall(length=1, segment=2, match_games=100)

    async def play() -> None:
        here.matches.prepare()
        for number in range(10):
            await whole(here.session(number))

    asyncio.run(play())
    until(lambda: here.experience.dropped == 6, "of ten trajectories two segments of two wait")
    with here.player.changed:
        assert here.experience.ready == 4 and here.experience.pop_expired() == 6
        assert here.experience.pop_expired() == 0
    here.matches.leave()
    assert list(here.host.reported.values()) == ["w" * 10]


def test_each_side_keeps_the_memory_of_its_own_policy(hall) -> None:
    network = {"hidden_sizes": [4], "core": {"name": "lstm", "size": 4}}
    policies = {"rock": build_policy(network, OBSERVATIONS, ACTIONS, 3)}
    here = hall(policy=build_policy(network, OBSERVATIONS, ACTIONS, 5), policies=policies, length=4, match_games=100)

    async def play(seed: int) -> None:
        random = np.random.default_rng(seed)
        session = here.session(seed)
        for _ in range(3):
            await asyncio.gather(*(session.act(random.normal(size=2), side) for side in ("red", "blue")))
        session.finish()

    async def at_once() -> None:
        here.matches.prepare()
        await asyncio.gather(*map(play, range(8)))
        await asyncio.gather(*map(play, range(8, 16)))

    asyncio.run(at_once())
    until(lambda: here.experience.ready == 8, "three decisions of eight sessions and one of the next")
    trajectory = here.player.take(here.experience, 8)
    done = trajectory.terminated
    begins = torch.from_numpy(np.concatenate([np.zeros((1, 8), bool), done[:-1]]))
    memory = {name: torch.from_numpy(part) for name, part in trajectory.memory.items()}
    policy = here.experience.policy
    actions = torch.from_numpy(trajectory.action)
    evaluated, _ = policy.unroll(policy.leaves(trajectory.observation), memory, begins, actions)
    assert evaluated.log_prob.detach().numpy() == pytest.approx(trajectory.extras["log_prob"], abs=1e-5)
    assert begins.any() and policies["rock"].has_memory
