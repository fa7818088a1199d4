"""Ray's actor calls, for `benchmarks.calls`. Runs by the Python of an environment that has Ray; imports nothing else.

It reads lines "sync N", "pipelined N" and "submitted N", and answers each with a line of JSON: latencies in s, or
calls/s.
"""

import json
import sys
import time
from collections import deque

import numpy as np
import ray

ray.init(num_cpus=2, log_to_driver=False, include_dashboard=False)
weights = np.random.randn(4, 64).astype("f4")


@ray.remote
class Actor:
    def infer(self, observation):
        return (observation @ weights).argmax(-1)

    def push(self, observation):
        return None


actor, observation = Actor.remote(), np.random.randn(32, 4).astype("f4")


def sync(number):
    latencies = []
    for _ in range(number):
        started = time.perf_counter()
        ray.get(actor.infer.remote(observation))
        latencies.append(time.perf_counter() - started)
    return latencies


def pipelined(number):
    flying, started = deque(), time.perf_counter()
    for _ in range(number):
        flying.append(actor.infer.remote(observation))
        if len(flying) >= 16:
            ray.get(flying.popleft())
    while flying:
        ray.get(flying.popleft())
    return number / (time.perf_counter() - started)


def submitted(number):
    started = time.perf_counter()
    ray.get([actor.push.remote(observation) for _ in range(number)])
    return number / (time.perf_counter() - started)


sync(200)
print("ready", flush=True)
for line in sys.stdin:
    what, count = line.split()
    print(json.dumps({"sync": sync, "pipelined": pipelined, "submitted": submitted}[what](int(count))), flush=True)
ray.shutdown()
