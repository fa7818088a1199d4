"""A peer's replay, for `benchmarks.replay`: `python replay_peer.py torchrl|sb3|cpprb CASE full|quick SECONDS`.

It runs by the Python of an environment with torchrl, stable-baselines3 and cpprb. It prints a line of JSON: transitions
per second that are inserted, drawn evenly, and (torchrl, cpprb) drawn by priority with new priorities for those drawn.
Each library is given data in its fastest form: torchrl a segment's transitions at once, Stable-Baselines3 a step of all
environments, cpprb the same as torchrl. For images cpprb is given a segment of one environment, whose observations it
keeps once.
"""

import itertools
import json
import runpy
import sys
from functools import partial
from pathlib import Path

import numpy as np
import torch

cases = runpy.run_path(str(Path(__file__).parents[1] / "replay" / "cases.py"))
library, name, size, seconds = sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4])
case, rate = cases["CASES" if size == "full" else "QUICK"][name], cases["rate"]
torch.set_num_threads(1)
generator = np.random.default_rng(1)
at_once, found = case.steps * case.slots, {}
seen = [case.observations(generator) for _ in range(4)]
shape = (case.steps, case.slots)

if library == "sb3":
    from gymnasium import spaces
    from stable_baselines3.common.buffers import ReplayBuffer

    images = len(case.shape) == 3
    space = spaces.Box(0, 255, case.shape, np.uint8) if images else spaces.Box(-9, 9, case.shape, np.float32)
    # Keep each observation once, as Warren does, if two copies would not fit.
    once = {"optimize_memory_usage": True, "handle_timeout_termination": False} if images else {}
    buffer = ReplayBuffer(case.capacity, space, spaces.Discrete(4), device="cpu", n_envs=case.slots, **once)
    action, reward = generator.integers(0, 4, (case.slots, 1)), generator.normal(size=case.slots)
    done, infos = np.zeros(case.slots), [{} for _ in range(case.slots)]
    steps = itertools.cycle([(each[t], each[t + 1]) for each in seen for t in range(case.steps)])

    def insert():
        before, after = next(steps)
        buffer.add(before, after, action, reward, done, infos)

    while not buffer.full:
        insert()
    found["insert"] = rate(insert, case.slots, seconds)
    found["sample"] = rate(lambda: buffer.sample(case.batch), case.batch, seconds)
elif library == "cpprb":
    import cpprb

    images = len(case.shape) == 3
    kinds = {"act": {"dtype": np.int64}, "rew": {}, "done": {}}
    seen_as = {"shape": case.shape, "dtype": np.dtype(case.dtype)}
    if images:
        names, once = {"obs": seen_as, **kinds}, {"next_of": "obs"}
    else:
        names, once = {"obs": seen_as, "next_obs": seen_as, **kinds}, {}
    length = case.steps if images else at_once
    act, rew = generator.integers(0, 4, length), generator.normal(size=length).astype(np.float32)
    done = np.zeros(length, np.float32)

    def parts(each):
        if not images:
            return [(each[:-1].reshape(-1, *case.shape), each[1:].reshape(-1, *case.shape))]
        return [(each[:-1, slot].copy(), each[1:, slot].copy()) for slot in range(case.slots)]

    segments = itertools.cycle([part for each in seen for part in parts(each)])

    def insert(to):
        before, after = next(segments)
        to.add(obs=before, next_obs=after, act=act, rew=rew, done=done)
        if images:
            to.on_episode_end()  # the next segment belongs to another environment

    def filled(buffer):
        while buffer.get_stored_size() < case.capacity - length:
            insert(buffer)
        return buffer

    even = filled(cpprb.ReplayBuffer(case.capacity, names, **once))
    found["insert"] = rate(partial(insert, even), length, seconds)
    found["sample"] = rate(lambda: even.sample(case.batch), case.batch, seconds)
    even = None  # makes room before the next is filled
    ranked = filled(cpprb.PrioritizedReplayBuffer(case.capacity, names, alpha=0.6, **once))
    priorities = generator.random(case.batch)

    def by_priority():
        drawn = ranked.sample(case.batch, beta=0.4)
        ranked.update_priorities(drawn["indexes"], priorities)

    found["prioritized"] = rate(by_priority, case.batch, seconds)
else:
    from tensordict import TensorDict
    from torchrl.data import LazyTensorStorage, PrioritizedSampler, TensorDictReplayBuffer
    from torchrl.data.replay_buffers.samplers import RandomSampler

    def of(each):
        flat = torch.from_numpy(each[:-1].reshape(-1, *case.shape)), torch.from_numpy(each[1:].reshape(-1, *case.shape))
        more = {
            "action": torch.from_numpy(generator.integers(0, 4, at_once)),
            "reward": torch.from_numpy(generator.normal(size=at_once).astype(np.float32)),
            "terminated": torch.zeros(at_once, dtype=torch.bool),
            "truncated": torch.zeros(at_once, dtype=torch.bool),
        }
        return TensorDict({"observation": flat[0], "next": flat[1], **more}, [at_once])

    segments = itertools.cycle([of(each) for each in seen])
    priorities = torch.rand(case.batch)

    def filled(sampler):
        storage = LazyTensorStorage(case.capacity)
        made = TensorDictReplayBuffer(storage=storage, sampler=sampler, batch_size=case.batch)
        for _ in range(case.capacity // at_once):
            made.extend(next(segments))
        return made

    def by_priority(replay):
        drawn = replay.sample()
        replay.update_priority(drawn["index"], priorities)

    replay = filled(RandomSampler())
    found["insert"] = rate(partial(lambda to: to.extend(next(segments)), replay), at_once, seconds)
    found["sample"] = rate(replay.sample, case.batch, seconds)
    replay = None  # makes room before the next is filled
    try:
        sampler = PrioritizedSampler(case.capacity, 0.6, 0.4)
    except RuntimeError as error:  # its C++ was built for another torch
        print(f"torchrl draws by no priority here: {error}", file=sys.stderr)
    else:
        replay = filled(sampler)
        found["prioritized"] = rate(partial(by_priority, replay), case.batch, seconds)
print(json.dumps(found))
