"""A league's run as a user starts it, observed from outside, and a check of its books for any moment."""

from __future__ import annotations

import random
from typing import Any

import psutil
import redis

from league.redis.store import Store
from league.state.league_state import LeagueState
from league.state.replay import fold
from support.training_run import TrainingRun
from workers.evaluation.scores import read_scores

# Rock, paper, scissors with small numbers: many periods and matches in a few seconds.
SMALL = (
    "experiment=rps",
    "league.games=64",
    "league.tables=2",
    "league.lanes=64",
    "league.match_games=32",
    "league.period_steps=1000",
    "league.algorithm.minibatch_size=128",
    "league.players.main.config={checkpoint_min_steps: 1000, checkpoint_max_steps: 2000}",
    "league.players.main_exploiter.config={checkpoint_min_steps: 1000, checkpoint_max_steps: 2000}",
    "league.cell_least=256",
    "league.cell_error=0.05",
    "league.evaluation_games=128",
    "league.reference_games=128",
    "league.evaluation_every=2",
    "league.snapshot_every=2",
)


class LeagueOfRun(TrainingRun):
    """A small `python -m workers.train experiment=rps`."""

    def __init__(self, folder: Any, *overrides: str, **given: Any) -> None:
        resumes = any(override.startswith("resume=") for override in overrides)
        limited = resumes or any(override.startswith("total_steps=") for override in overrides)
        endless = () if limited else ("total_steps=1000000000",)  # a slow test may outlast four million
        super().__init__(folder, *(() if resumes else SMALL), *endless, *overrides, **given)

    def store(self, redis_url: str) -> Store:
        """Return the store of the league's state."""
        return Store(redis.Redis.from_url(redis_url), f"warren.{self.name}:league:")

    def processes(self, *roles: str) -> list[psutil.Process]:
        """Return the processes of these roles, without guards."""
        return self.children(lambda line: any(f"workers.{role}" in line for role in roles))

    def kill_one(self, rng: random.Random, *roles: str) -> str:
        """Kill -9 one process of one of these roles; return the role."""
        role = rng.choice(roles)
        for process in rng.sample(found := self.processes(role), len(found))[:1]:
            process.kill()
        return role

    def scores(self) -> list[dict[str, Any]]:
        """Return the evaluator's scores so far."""
        return read_scores(self.folder)


def check_books(store: Store) -> dict[str, int]:
    """Check that no match ended twice and that the live league is what its stream says; return the counters."""
    state = store.load()
    events = list(store.events(until=state.last_event))
    assert fold(events).differences(state) == []
    before = LeagueState()  # the state before the stream's first event, once it was trimmed or restored
    if events and events[0][1]["event"] == "checkpoint":
        before.apply(events[0][1])
    issued = [*before.matches] + [event["match"] for _, event in events if event["event"] == "issued"]
    ended = [event["match"] for _, event in events if event["event"] == "ended"]
    assert len(issued) == len(set(issued)), "a match was issued twice"
    assert len(ended) == len(set(ended)), "a match ended twice"
    assert set(issued) - set(ended) == set(state.matches)
    assert set(ended) <= set(issued)
    counters = state.counters
    endings = [counters[how] for how in ("counted", "expired", "aborted")]
    assert counters["issued"] == sum(endings) + len(state.matches)
    counted = [event["outcomes"] for _, event in events if event["event"] == "ended" and event["as"] == "counted"]
    assert counters["counted"] == before.counters["counted"] + len(counted)
    assert counters["games"] == before.counters["games"] + sum(map(len, counted))
    return dict(counters)
