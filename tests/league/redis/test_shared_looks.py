"""league.redis.shared_looks: looks are read back as they were added, including their members."""

from __future__ import annotations

import redis

from league.redis.shared_looks import SharedLooks
from league.rules.plateau import Look


def test_looks_are_read_back_without_those_of_earlier_weights(redis_url: str, run_name: str) -> None:
    looks = SharedLooks(redis.Redis.from_url(redis_url), run_name)
    earlier, first = (
        Look(0, 10, 64, 0.1, -0.2, 0.3),
        Look(1, 20, 64, 0.2, -0.1, 0.4, ((3, 0.5, None), (7, None, -1.25))),
    )
    second = Look(1, 30, 64, 0.3, 0.1, 0.5, ((3, -0.5, 0.0),))
    looks.add("answer", earlier)
    assert looks.of("answer") == [earlier] and looks.of("other") == []
    for one in (first, second):
        looks.add("answer", one)
    assert looks.of("answer") == [first, second]


def test_looks_are_read_again_only_after_one_was_added(redis_url: str, run_name: str) -> None:
    client = redis.Redis.from_url(redis_url)
    evaluator, reader = SharedLooks(client, run_name), SharedLooks(client, run_name)
    first, second = Look(0, 10, 64, 0.1, -0.2, 0.3), Look(0, 20, 64, 0.2, -0.1, 0.4)
    evaluator.add("answer", first)
    assert reader.of("answer") == [first]
    client.hset(f"{run_name}looks", "answer", "not read")
    assert reader.of("answer") == [first]
    client.hset(f"{run_name}looks", "answer", "[]")
    evaluator.add("answer", second)
    assert reader.of("answer") == [second]
    client.delete(*client.keys(f"{run_name}*"))
    assert reader.of("answer") == []
