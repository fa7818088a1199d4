"""Tests of actors' counts of groups: an actor that comes later gets its share."""

from __future__ import annotations

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from workers.leagues import group_counts
from workers.leagues.group_counts import GroupCounts


def test_groups_go_to_the_actor_with_the_fewest_until_counts_are_even(
    redis_url: str, run_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_counts, "SAY_EVERY", 0.0)
    client = redis.Redis.from_url(redis_url)
    first, second, third = (GroupCounts(client, f"{run_name}:", actor) for actor in (0, 1, 7))
    assert first.fewer(4) is None, "it is alone"
    first.say(4)
    second.say(2)
    third.say(1)
    assert (first.fewer(4), second.fewer(2), third.fewer(1)) == (7, None, None)
    client.delete(f"{run_name}:groups:7")  # it said nothing for too long
    assert first.fewer(4) == 1
    second.say(3)
    assert first.fewer(4) is None


def test_groups_stay_while_redis_is_away() -> None:
    counts = GroupCounts(redis.Redis(port=1, retry=Retry(NoBackoff(), 0)), "r:", 0)
    counts.say(4)
    assert counts.fewer(4) is None
