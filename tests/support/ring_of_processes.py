"""Ranks as processes of their own: `python ring_of_processes.py REDIS_URL PREFIX LEARNER EXPECTED BACKEND`.

Each takes part in collectives again and again, and pushes a line to PREFIX:seen:LEARNER for each ring that it joined:
its rank there, and whether all collectives gave the right results. It ends once the key PREFIX:end is set.
"""

from __future__ import annotations

import json
import sys

import numpy as np
import redis
import torch

from workers.learning.allreduce.compression import NAMES, NOT_BY_HOROVOD, Compression, Half, build
from workers.learning.allreduce.ranks import Ranks
from workers.learning.allreduce.ring import RanksChanged


def averages(ranks: Ranks, how: Compression) -> bool:
    """Return whether the ranks' compressed gradients become their mean."""
    ranks.compression = how
    gradient = torch.cat([torch.full((1000,), float(ranks.rank + 1)), torch.ones(3)])
    loss = ranks.average(gradient, torch.tensor(float(ranks.rank)), weight=ranks.rank + 1)
    whole = sum(range(1, ranks.size + 1))
    squares = sum(rank * rank for rank in range(1, ranks.size + 1))
    allowed = 1e-2 if isinstance(how, Half) else 1e-6
    good = torch.allclose(gradient[:1000], torch.tensor(squares / whole), rtol=allowed)
    good &= torch.allclose(gradient[1000:], torch.ones(3), rtol=allowed)
    return good and abs(loss.item() - (squares - whole) / whole) < 1e-6


def main(url: str, prefix: str, learner: str, expected: str, backend: str) -> None:
    client = redis.Redis.from_url(url)
    server = client.connection_pool.connection_kwargs["host"]
    ranks = Ranks(client, prefix, int(learner), int(expected), backend, server)
    ranks.begin(0)
    state = {"updates": 0}
    joined = False
    ways = [build(name, 1.0) for name in NAMES if backend != "horovod" or name != NOT_BY_HOROVOD]

    def take(data: bytes) -> None:
        state.update(json.loads(data))

    while not client.exists(f"{prefix}:end"):
        try:
            figures, rows = ranks.enter((float(learner), 1.0), np.full((int(learner), 2), float(learner)))
            means = [averages(ranks, how) for how in ways]  # collectives: no rank may skip one
            good = all(means)
            good &= ranks.least(5 - ranks.rank) == 6 - ranks.size
            good &= [len(one) for one in rows] == [int(one[0]) for one in figures]
            state["updates"] += 1
        except RanksChanged:
            ranks.join(lambda: (state["updates"], 0), lambda: json.dumps(state).encode(), take)
            joined = True
            continue
        if joined:
            joined = False
            line = {"rank": ranks.rank, "size": ranks.size, "good": good, "updates": state["updates"]}
            client.sadd(f"{prefix}:backends:{ranks.size}", ranks.backend)
            client.rpush(f"{prefix}:seen:{learner}", json.dumps(line))
    ranks.leave()


if __name__ == "__main__":
    main(*sys.argv[1:])
