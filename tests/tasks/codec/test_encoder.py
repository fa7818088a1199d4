"""Tests of tasks.codec.encoder: errors name an invalid value's path, and valid values are written once."""

from __future__ import annotations

import collections
import dataclasses
from typing import Any

import msgpack
import numpy as np
import pytest
import torch
from support.wire_values import extension, message, peak_memory

from tasks.codec.encoder import ARRAY, MAX_DEPTH, MAX_FRAMES, TUPLE
from tasks.codec.serializer import decode, encode
from warren.errors import CodecError

Transition = collections.namedtuple("Transition", ["observation", "reward"])


@dataclasses.dataclass
class Config:
    rate: float = 0.1


def nested(depth: int, container: type = list) -> Any:
    value: Any = container()
    for _ in range(depth - 1):
        value = container([value])
    return value


@pytest.mark.parametrize(
    "value",
    [np.ones(2**20), np.ones((2**10, 2**10)).T, torch.ones(2**20, dtype=torch.float64), b"x" * 2**23, bytearray(2**23)],
    ids=["array", "transposed", "tensor", "bytes", "bytearray"],
)
def test_encoding_allocates_the_message_and_no_copy_beside_it(value: Any) -> None:
    peak, body = peak_memory(lambda: encode({"payload": value}))
    assert len(body) > 2**23
    assert peak < len(body) + 2**16


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (({"obs": Config()},), r"value\[0\]\['obs'\]: cannot encode <class '.*Config'>; send dataclasses.asdict"),
        ([1, {"a": Transition(1, 2)}], r"value\[1\]\['a'\]: .*Transition'>; send its _asdict\(\)"),
        ({"seen": {1, 2}}, r"value\['seen'\]: .*'set'>; send a sorted list"),
        ([object], r"value\[0\]: cannot encode <class 'type'>"),
        ([1j], r"value\[0\]: cannot encode <class 'complex'>"),
        ({"a": np.array(["x", None])}, r"value\['a'\]: cannot encode an array of dtype object"),
        ([np.zeros(2, "f4,i4")], r"value\[0\]: cannot encode an array of dtype \[\('f0'"),
        ([np.zeros(2, "M8[s]")], r"value\[0\]: cannot encode an array of dtype datetime64"),
        ([np.longdouble(1)], r"value\[0\]: cannot encode <class 'numpy.longdouble'>"),
        ([np.ma.masked_array([1, 2], [0, 1])], r"value\[0\]: .*MaskedArray'>; send np.asarray"),
        ({"a": torch.eye(2).to_sparse()}, r"value\['a'\]: cannot encode a torch.sparse_coo tensor"),
        ([torch.ones(2, device="meta")], r"value\[0\]: .* on meta; send a dense one that holds data"),
        ([torch.ones(2, dtype=torch.float8_e5m2)], r"value\[0\]: .*torch.float8_e5m2"),
        ({"name": ["ok", "\udcff"]}, r"value\['name'\]\[1\]: '\\udcff' holds half a surrogate pair"),
        ([{"\ud800": 1}], r"value\[0\]: \{'\\ud800': 1\} holds half a surrogate pair"),
        ([{frozenset(): 1}], r"value\[0\]: cannot encode the key frozenset\(\)"),
        ({(1, Config): 2}, r"value: cannot encode the key <class '.*Config'>"),
    ],
    ids=lambda part: f"{part!a:.30}",
)
def test_a_value_that_cannot_be_encoded_is_refused_with_its_path(value: Any, complaint: str) -> None:
    with pytest.raises(CodecError, match=complaint):
        encode(value)


def test_a_tasks_argument_is_named_as_an_argument() -> None:
    embed = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
    with pytest.raises(CodecError, match=r"^args\[0\]\['obs'\]: "):
        encode((({"obs": Config()},), {}, embed))
    with pytest.raises(CodecError, match=r"^kwargs\['mode'\]: "):
        encode(((), {"mode": {1}}, embed))


@pytest.mark.parametrize("container", [list, tuple])
def test_depth_is_bounded_alike_on_both_ends(container: type) -> None:
    deepest = nested(MAX_DEPTH, container)
    assert decode(encode(deepest)) == deepest
    with pytest.raises(CodecError, match="nest deeper than 64"):
        encode(nested(MAX_DEPTH + 1, container))
    deeper = message(b"\x91" * MAX_DEPTH + b"\x90")
    with pytest.raises(CodecError, match="nest deeper than 64"):
        decode(deeper)
    assert decode(message(b"\x91" * (MAX_DEPTH - 1) + b"\x90")) == nested(MAX_DEPTH)


def test_depth_counts_dicts_and_tuples_in_keys() -> None:
    key: Any = 1
    for _ in range(MAX_DEPTH - 1):
        key = (key,)
    assert decode(encode({key: 1})) == {key: 1}
    with pytest.raises(CodecError, match="nest deeper"):
        encode({(key,): 1})
    mark = extension(TUPLE, b"")
    with pytest.raises(CodecError, match="nest deeper"):
        decode(message(b"\x81" + (b"\x92" + mark) * MAX_DEPTH + b"\x01\x01"))
    with pytest.raises(CodecError, match="nest deeper"):
        decode(message(b"\x81\x01" * MAX_DEPTH + b"\x80"))


def test_a_container_that_holds_itself_is_refused() -> None:
    ring: dict[str, Any] = {"rounds": []}
    ring["rounds"].append(ring)
    with pytest.raises(CodecError, match="does one hold itself"):
        encode(ring)


def test_too_many_arrays_are_refused_on_both_ends() -> None:
    most = [np.zeros(1, np.uint8)] * MAX_FRAMES
    assert len(decode(encode(most))) == MAX_FRAMES
    with pytest.raises(CodecError, match="a message of 65537 arrays"):
        encode([*most, most[0]])
    one = extension(ARRAY, b"\x01")
    body = message(msgpack.packb([0] * (MAX_FRAMES + 1)).replace(b"\0" * (MAX_FRAMES + 1), one * (MAX_FRAMES + 1)))
    with pytest.raises(CodecError, match="at most 65536"):
        decode(body + bytes(-len(body) % 16 + 16 * (MAX_FRAMES + 1)))


def test_keys_that_would_collide_are_refused() -> None:
    with pytest.raises(CodecError, match="two keys of a dict have the same encoded form"):
        encode({np.float32("nan"): 1, np.float32("nan"): 2})
