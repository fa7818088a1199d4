"""`python -m benchmarks.codec`: the cost of the wire format, beside MessagePack's own and beside one memory copy.

Large: 6.4 MB of float32 (the weights of a small convolutional policy). Small: one group's observations, as a served
call carries them. Their figures are the median over the repeats of a median (large) or mean (small) within the repeat;
contenders take turns within each repeat, so that other load on the machine falls on all of them. Segments: bytes of 32
steps of 64 CartPoles, with all fields that are collected unasked, and with those that an algorithm asks for. Ends in
one JSON line.
"""

from __future__ import annotations

import argparse
import base64
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import msgpack
import numpy as np
import torch

import envs
from agents import build_policy
from benchmarks.apparatus.report import finish
from tasks.codec.serializer import decode, encode
from workers.rollout.asked import fields_asked
from workers.rollout.vector_sampler import VectorSampler

LARGE_CALLS, SMALL_CALLS = 30, 3000  # in each repeat, per contender
SEGMENT_STEPS = 32
LARGE_MS, LARGE_RATIO = 1.5, 1.1  # targets of this format

Call = Callable[[], Any]


def msgpack_both_ways(array: np.ndarray) -> np.ndarray:
    """Encode and decode by MessagePack's bin type, unchecked: copied into the packer, out of it, out of the message."""
    body = msgpack.packb({"dtype": array.dtype.str, "shape": array.shape, "data": array.data})
    fields = msgpack.unpackb(body)
    return np.frombuffer(fields["data"], fields["dtype"]).reshape(fields["shape"])


def one_copy(array: np.ndarray) -> np.ndarray:
    """Make the least copies of a message of bytes: one copy into it, and a view on it at the other end."""
    head = msgpack.packb((array.dtype.str, array.shape))
    body = b"".join((head, array))
    dtype, shape = msgpack.unpackb(body[: len(head)])
    return np.frombuffer(body, dtype, offset=len(head)).reshape(shape)


def json_both_ways(array: np.ndarray) -> np.ndarray:
    """Encode and decode as Celery's default serializer does."""
    body = json.dumps({"dtype": array.dtype.str, "shape": array.shape, "data": base64.b64encode(array).decode()})
    fields = json.loads(body)
    return np.frombuffer(base64.b64decode(fields["data"]), fields["dtype"]).reshape(fields["shape"])


def large_calls() -> dict[str, Call]:
    array = np.random.default_rng(0).standard_normal(1_600_000).astype(np.float32).reshape(1600, 1000)
    tensor, strided, data = torch.from_numpy(array.copy()), np.repeat(array, 2, axis=1)[:, ::2], array.tobytes()
    return {
        "codec": lambda: decode(encode({"data": array})),
        "msgpack": lambda: msgpack_both_ways(array),
        "one copy": lambda: one_copy(array),
        "codec, tensor": lambda: decode(encode({"data": tensor})),
        "codec, bytes": lambda: decode(encode({"data": data})),
        "codec, strided array": lambda: decode(encode({"data": strided})),
        "json + base64": lambda: json_both_ways(array),
    }


def small_calls() -> dict[str, Call]:
    observations = {"obs": np.zeros((32, 4), np.float32), "mask": np.ones((32, 2), bool)}
    embed = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
    task, body, message = ((observations,), {}, embed), encode(observations), encode(((observations,), {}, embed))
    plain = {"obs": observations["obs"].data, "mask": observations["mask"].data, "shapes": ((32, 4), (32, 2))}
    packed = msgpack.packb(plain)
    return {
        "encode, 2 arrays": lambda: encode(observations),
        "decode, 2 arrays": lambda: decode(body),
        "encode, task of 2 arrays": lambda: encode(task),
        "decode, task of 2 arrays": lambda: decode(message),
        "msgpack.packb, 2 memoryviews": lambda: msgpack.packb(plain),
        "msgpack.unpackb, 2 bytes": lambda: msgpack.unpackb(packed),
    }


def segment_bytes() -> dict[str, int]:
    """Return the bytes of a segment by the algorithm that asked for it; "all fields": as if it had not been asked."""
    found = {}
    for name in (None, "a2c", "ppo", "impala", "dqn"):
        vector = envs.make_vector("CartPole-v1", 64, 1)
        spaces = vector.single_observation_space, vector.single_action_space
        network = {"value": False, "discrete_actions": {"greedy": True}} if name == "dqn" else {}
        policy = build_policy(network, *spaces, 1)
        fields = None if name is None else fields_asked({"name": name}, policy)
        segment = VectorSampler(vector, policy, 1, fields=fields).collect(SEGMENT_STEPS)
        found[name or "all fields"] = len(encode(segment.to_dict()))
        vector.close()
    return found


def median_ms(call: Call, calls: int) -> float:
    times = []
    for _ in range(calls):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e3


def mean_us(call: Call, calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - start) / calls * 1e6


def measure(
    calls: dict[str, Call], timed: Callable[[Call, int], float], count: int, repeats: int
) -> dict[str, list[float]]:
    """Return name -> one figure a repeat; the contenders take turns."""
    for call in calls.values():
        timed(call, max(count // 10, 3))  # warm up: memory gets mapped, buffers grow
    figures: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            figures[name].append(timed(call, count))
    return figures


def show(title: str, unit: str, figures: dict[str, list[float]]) -> None:
    print(f"\n{title:40}{'median':>10}{'least':>10}{'most':>10}  {unit}")
    for name, values in figures.items():
        print(f"{name:40}{statistics.median(values):10.3f}{min(values):10.3f}{max(values):10.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7, help="at least 3 (default %(default)s)")
    repeats = parser.parse_args().repeats
    if repeats < 3:
        parser.error(f"--repeats {repeats} is too few for a median; use 3 or more")
    large = measure(large_calls(), median_ms, LARGE_CALLS, repeats)
    small = measure(small_calls(), mean_us, SMALL_CALLS, repeats)
    show("6.4 MB of float32, there and back", "ms", large)
    show("small messages, one way", "us", small)
    segments = segment_bytes()
    print("\nbytes of a segment: " + ", ".join(f"{name} {size:,}" for name, size in segments.items()))
    # Ratios are taken within each repeat, in which both sides meet the same load.
    ratio = statistics.median(ours / theirs for ours, theirs in zip(large["codec"], large["msgpack"], strict=True))
    floor = statistics.median(ours / theirs for ours, theirs in zip(large["codec"], large["one copy"], strict=True))
    codec_ms = statistics.median(large["codec"])
    kept = codec_ms <= LARGE_MS and ratio <= LARGE_RATIO
    print(f"\n6.4 MB: {codec_ms:.3f} ms (promised {LARGE_MS}), {ratio:.2f} of msgpack's time (promised {LARGE_RATIO}),")
    print(f"{floor:.2f} of the time of the one copy that no message can avoid; {'kept' if kept else 'NOT KEPT'}")
    finish(
        "codec",
        {
            "codec_ms": round(codec_ms, 4),
            "codec_vs_msgpack": round(ratio, 3),
            "codec_vs_one_copy": round(floor, 3),
            "tensor_ms": round(statistics.median(large["codec, tensor"]), 4),
            "bytes_ms": round(statistics.median(large["codec, bytes"]), 4),
            "json_ms": round(statistics.median(large["json + base64"]), 3),
            "small_encode_us": round(statistics.median(small["encode, 2 arrays"]), 2),
            "small_decode_us": round(statistics.median(small["decode, 2 arrays"]), 2),
            "task_encode_us": round(statistics.median(small["encode, task of 2 arrays"]), 2),
            "task_decode_us": round(statistics.median(small["decode, task of 2 arrays"]), 2),
            **{f"segment_bytes_{name.replace(' ', '_')}": size for name, size in segments.items()},
            "repeats": repeats,
        },
    )


if __name__ == "__main__":
    main()
