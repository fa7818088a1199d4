"""A process that plays a league's matches until it is killed, requesting them from the store itself.

It appends the id of each match whose result was acknowledged as counted to a file, one per line.
"""

from __future__ import annotations

import sys
import time

import redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry

from league.redis.store import Store


def main() -> None:
    url, prefix, path, seed = sys.argv[1:]
    # Requests and reports may be repeated safely, so a lost connection is retried.
    retry = Retry(ConstantBackoff(0.05), 600)
    errors = [redis.ConnectionError, redis.TimeoutError, redis.BusyLoadingError]
    client = redis.Redis.from_url(url, retry=retry, retry_on_error=errors)
    store = Store(client, prefix, seed=int(seed))
    with open(path, "a", buffering=1) as acknowledged:  # noqa: PTH123 (line-buffered, so that a kill loses nothing)
        number = 0
        while True:
            number += 1
            player = ("main", "hunter")[number % 2]
            match = store.request(player, f"actor-{seed}", 0.5, match=f"{seed}-{time.time_ns()}")
            if number % 10 == 0:
                store.abort(match.id)
                continue
            for _ in range(1 + number % 2):
                if store.report(match.id, "wdl"[number % 3]).status == "counted":
                    acknowledged.write(match.id + "\n")


if __name__ == "__main__":
    main()
