"""Rewards of games that a deployed policy answers in JSON: left out, in channels, or of refused ticks."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space
from support.deployed import SHAPES
from support.waiting import until

from agents import build_policy
from envs.rewards import Rewards
from workers.deployment.json_actor import json_actor
from workers.deployment.player import DeployedPlayer
from workers.gateway.actor import Unreadable
from workers.gateway.limits import Limits
from workers.gateway.protocol import Kind, Refusal, Request
from workers.gateway.server import opener
from workers.gateway.sessions import Sessions
from workers.models.backends import build_backend

CHANNELS = {"score": 1.0, "safety": 0.5}
OBSERVATION = {"observation": [0.0, 1.0, 2.0, 3.0]}


class Served:
    """Deployed policy that is called without a port."""

    def __init__(self, rewards: Rewards, actions: Space[Any] = SHAPES[1]) -> None:
        policy = build_policy({"hidden_sizes": [4]}, SHAPES[0], actions, 0)
        self.player = DeployedPlayer(rewards, "sample", seed=0)
        self.player.swap(build_backend("pytorch", policy), 1)
        self._opener = opener(json_actor(policy), {}, self.player, rewards)

    def play(self, game: Callable[[Callable[..., Any]], Coroutine[Any, Any, None]]) -> None:
        """Run `game` with a function of session, kind and message that returns the reply or the status of a refusal."""

        async def run() -> None:
            sessions = Sessions(self._opener, Limits())

            async def ask(session: str, kind: Kind, message: Any = None) -> Any:
                given = message if isinstance(message, bytes) else json.dumps(message).encode()
                body = b"" if message is None else given
                try:
                    return await sessions.answer(Request(session, kind, body))
                except Refusal as refusal:
                    return refusal.status

            await game(ask)

        asyncio.run(run())


@pytest.fixture
def serve() -> Iterator[Callable[..., Served]]:
    made: list[Served] = []

    def make(rewards: Rewards = Rewards(), actions: Space[Any] = SHAPES[1]) -> Served:  # noqa: B008
        made.append(Served(rewards, actions))
        return made[-1]

    yield make
    for one in made:
        one.player.close()


@pytest.mark.parametrize(
    ("actions", "mask", "legal"),
    [
        (MultiDiscrete([3, 2]), [[0, 0, 1], [1, 0]], [2, 0]),
        (MultiDiscrete([3, 2]), [False, False, True, True, False], [2, 0]),
        (MultiBinary(2), [0, 1], [0, 1]),
        (Dict({"hit": Box(-1, 1, (2,)), "move": Discrete(3)}), {"move": [0, 1, 0]}, 1),
    ],
)
def test_masks_of_several_choices_are_obeyed(serve: Any, actions: Space[Any], mask: Any, legal: Any) -> None:
    served, found = serve(actions=actions), []

    async def game(ask: Any) -> None:
        for number in range(20):
            reply = await ask("a", Kind.tick if number else Kind.auto, {**OBSERVATION, "action_mask": mask})
            found.append(json.loads(reply)["action"])
        assert await ask("a", Kind.tick, {**OBSERVATION, "action_mask": [1]}) == 422
        assert await ask("a", Kind.tick, {**OBSERVATION, "action_mask": {"move": {"x": 1}}}) == 422

    served.play(game)
    assert [one["move"] if isinstance(one, dict) else one for one in found] == [legal] * 20


def test_reward_channels_may_be_left_out_of_every_message(serve: Any) -> None:
    served = serve(Rewards(channels=CHANNELS))

    async def game(ask: Any) -> None:
        assert isinstance(await ask("a", Kind.auto, OBSERVATION), bytes)
        assert isinstance(await ask("a", Kind.tick, OBSERVATION), bytes)
        assert await ask("a", Kind.end) == b""
        # The end of a game that never sent a reward fails no other game's decision.
        assert isinstance(await ask("b", Kind.auto, OBSERVATION), bytes)
        assert await ask("b", Kind.end) == b""

    served.play(game)
    until(lambda: served.player.episodes == 2)
    assert served.player.mean_return == 0.0


def test_reward_channels_are_weighted_in_the_mean_return(serve: Any) -> None:
    served = serve(Rewards(channels=CHANNELS))

    async def game(ask: Any) -> None:
        await ask("a", Kind.auto, OBSERVATION)
        await ask("a", Kind.tick, {**OBSERVATION, "reward": {"score": 3.0, "safety": 4.0}})
        await ask("a", Kind.end, {"reward": [1.0, 2.0]})
        await ask("b", Kind.auto, OBSERVATION)  # the next pass: by then the end of a has been counted

    served.play(game)
    assert served.player.mean_return == 3.0 + 2.0 + 1.0 + 1.0


@pytest.mark.parametrize("rewards", [Rewards(), Rewards(channels={"score": 1.0})])
def test_a_body_that_cannot_be_read_leaves_the_session_open(serve: Any, rewards: Rewards) -> None:
    served = serve(rewards)
    huge = 10**400  # no float holds it
    nested = b"[" * 100_000
    too_large = {**OBSERVATION, "reward": [huge] if rewards.channels else huge}

    async def game(ask: Any) -> None:
        await ask("a", Kind.auto, OBSERVATION)
        for kind, wrong in ((Kind.tick, nested), (Kind.tick, too_large), (Kind.end, nested)):
            assert await ask("a", kind, wrong) == 422
            assert isinstance(await ask("a", Kind.tick, OBSERVATION), bytes)

    served.play(game)


@pytest.mark.parametrize("wrong", [{"observation": [1.0]}, {**OBSERVATION, "action_mask": [False, False]}])
def test_a_refused_tick_counts_no_reward(serve: Any, wrong: dict[str, Any]) -> None:
    served = serve()

    async def game(ask: Any) -> None:
        await ask("a", Kind.auto, OBSERVATION)
        for _ in range(2):
            assert await ask("a", Kind.tick, {**wrong, "reward": 5.0}) == 422
        assert isinstance(await ask("a", Kind.tick, {**OBSERVATION, "reward": 5.0}), bytes)
        await ask("a", Kind.end, {"reward": 1.0})
        await ask("b", Kind.auto, OBSERVATION)

    served.play(game)
    assert served.player.mean_return == 6.0


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"agent": 5}, "agent: must be a text, is int; leave it out"),
        ({"agent": None}, "agent: must be a text, is NoneType; leave it out"),
        ({"action_mask": [True]}, "action_mask: Box(-1.0, 1.0, (2,), float32) has no actions to forbid; leave it out"),
    ],
)
def test_a_field_of_another_kind_is_named(wrong: dict[str, Any], said: str) -> None:
    actor = json_actor(build_policy({"hidden_sizes": [4]}, SHAPES[0], Box(-1, 1, (2,)), 0))()
    with pytest.raises(Unreadable, match=re.escape(said)):
        asyncio.run(actor.tick(json.dumps({**OBSERVATION, **wrong}).encode()))
