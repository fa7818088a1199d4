"""Decisions that are asked for together share a forward pass."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from workers.gateway.game import Agent
from workers.gateway.passes import Decide, End, Passes


class Counting(Passes):
    """Answers with the observation and records the size of each pass."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []
        self.ended: list[Agent] = []

    def decide_all(self, asked: Sequence[Decide]) -> Sequence[Any]:
        self.sizes.append(len(asked))
        if any(one.observation is None for one in asked):
            raise ValueError("nothing to see")
        return [one.observation for one in asked]

    def end_all(self, ends: Sequence[End]) -> None:
        self.ended += [one.agent for one in ends]


@pytest.fixture
def passes():
    made = Counting()
    made.start()
    yield made
    made.close()


def test_decisions_of_one_turn_of_the_event_loop_share_a_pass(passes):
    async def turns():
        for turn in range(20):
            answers = [passes.decide(Agent(), (turn, game), 0.0) for game in range(30)]
            assert await asyncio.gather(*answers) == [(turn, game) for game in range(30)]

    asyncio.run(turns())
    assert passes.sizes == [30] * 20


def test_an_agent_that_ends_after_its_question_is_still_answered(passes):
    agent = Agent()

    async def ask():
        answer = passes.decide(agent, 1, 0.0)
        passes.end(agent, 0.0, None)
        other = passes.decide(Agent(), 2, 0.0)
        return await asyncio.gather(answer, other)

    assert asyncio.run(ask()) == [1, 2]
    assert passes.ended == [agent]


def test_a_failed_pass_raises_for_its_agents_and_the_next_goes_on(passes):
    async def ask(observation):
        return await passes.decide(Agent(), observation, 0.0)

    with pytest.raises(RuntimeError, match="nothing to see"):
        asyncio.run(ask(None))
    assert asyncio.run(ask(3)) == 3


def test_a_failed_end_fails_no_decision_of_another_game(passes, monkeypatch, caplog):
    def fail(ends):
        if ends:
            raise ValueError("no return")

    monkeypatch.setattr(passes, "end_all", fail)

    async def ask():
        passes.end(Agent(), 0.0, None)
        return await passes.decide(Agent(), 1, 0.0)

    assert asyncio.run(ask()) == 1
    assert "the ends of 1 episodes could not be taken down" in caplog.text
