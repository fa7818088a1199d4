"""Tests of tasks.codec.serializer: values survive a round trip in format version one, also by kombu and Celery."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import enum
import subprocess
import sys
import threading
import uuid
from typing import Any

import kombu.exceptions
import numpy as np
import pytest
import torch
from celery import Celery, chord
from kombu import serialization
from support.wire_values import same

from tasks import codec
from tasks.codec.encoder import DTYPES
from tasks.codec.serializer import decode, encode
from warren.errors import CodecError

TORCH_DTYPES = [
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32),
    *(torch.uint64, torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128),
]


class Side(str, enum.Enum):  # noqa: UP042 (a StrEnum's str() would be its value)
    HOME = "home"


class Mode(enum.IntEnum):
    SOLO = 3


@dataclasses.dataclass
class Config:
    rate: float = 0.1


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, False, 0, -1, 2**63, -(2**63), 2**64 - 1, 2**64, -(2**63) - 1, 3**500, -(3**500)),
        *(0.0, -0.0, 1e-320, float("inf"), float("-inf"), float("nan")),
        *("", "Füchse 🦊\0", "long " * 5000, b"", b"\x00\xff", b"x" * 4095, b"x" * 4096, b"x" * 100_001),
        *({}, [], (), [()], ((),), {"a": (1, [2, {"b": ()}])}, list(range(70_000)), tuple(range(20))),
        {
            1: "int",
            -(2**70): "long",
            2.5: "float",
            None: "none",
            False: "bool",
            b"k" * 5000: "bytes",
            b"j" * 5000: "twin",
        },
        {("home", 3): 0.5, ((), (b"",)): 1, np.float32(2): 2, uuid.UUID(int=7): 3},
        datetime.datetime(2031, 2, 3, 4, 5, 6, 7),
        datetime.datetime(1, 1, 1, tzinfo=datetime.UTC),
        datetime.datetime(2031, 2, 3, tzinfo=datetime.timezone(datetime.timedelta(hours=-3, minutes=-30))),
        *(datetime.timedelta(-3, 5, 7), datetime.timedelta.max, datetime.timedelta.min, uuid.UUID(int=2**128 - 1)),
    ],
    ids=lambda value: f"{value!a:.40}",
)
def test_plain_values_come_back_as_they_were(value: Any) -> None:
    assert same(value, decode(encode(value)))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_array_dtype_comes_back_in_every_layout(dtype: np.dtype) -> None:
    whole = np.random.default_rng(0).integers(0, 2, (4, 6, 2)).astype(dtype)
    layouts = [whole, whole.T, np.asfortranarray(whole), whole[::2, ::-1], whole.transpose(1, 0, 2), whole[0, 0, 0]]
    layouts += [
        np.array(1, dtype),
        np.empty((0,), dtype),
        np.empty((3, 0, 2), dtype),
        np.broadcast_to(whole[0], (5, 6, 2)),
    ]
    received = decode(encode(layouts))
    for sent, came in zip(layouts, received, strict=True):
        assert same(sent, came), (sent.shape, sent.strides)
        assert came.dtype.byteorder == sent.dtype.byteorder
    assert received[1].flags.f_contiguous


@pytest.mark.parametrize("dtype", TORCH_DTYPES, ids=str)
def test_every_tensor_dtype_comes_back_in_every_layout(dtype: torch.dtype) -> None:
    whole = torch.randint(0, 2, (4, 6, 2)).to(dtype)
    layouts = [whole, whole.permute(2, 0, 1), whole[::2, 1:], whole[0, 0, 0], torch.empty((3, 0), dtype=dtype)]
    assert same(layouts, decode(encode(layouts)))


def test_scalars_keep_their_numpy_type() -> None:
    scalars = [dtype.newbyteorder("=").type(1) for dtype in DTYPES]
    assert same(scalars, decode(encode(scalars)))
    assert type(decode(encode(np.float64(0.5)))) is np.float64


def test_parameters_and_lazily_conjugated_tensors_come_back_as_plain_ones() -> None:
    weights = torch.nn.Linear(3, 2).weight
    for sent in (weights, weights * 2, torch.nn.Parameter(weights.bfloat16())):
        received = decode(encode(sent))
        assert type(received) is torch.Tensor
        assert not received.requires_grad
        assert torch.equal(received, sent)
    waves = torch.tensor([1 + 2j, 3 - 1j])
    assert torch.equal(decode(encode(waves.conj())), waves.conj())


def test_subclasses_come_back_as_their_base() -> None:
    sent = [
        Side.HOME,
        Mode.SOLO,
        collections.OrderedDict(a=1),
        collections.Counter("aab"),
        np.str_("x"),
        torch.Size([2]),
    ]
    assert same(["home", 3, {"a": 1}, {"a": 2, "b": 1}, "x", (2,)], decode(encode(sent)))


@pytest.mark.parametrize("size", [10, 100_000])
def test_buffers_come_back_as_bytes(size: int) -> None:
    data = bytes(range(256)) * (size // 256 + 1)
    assert decode(encode([bytearray(data), memoryview(data), memoryview(data)[::2]])) == [data, data, data[::2]]


def test_a_memory_mapped_array_comes_back_as_an_array(tmp_path: Any) -> None:
    mapped = np.memmap(tmp_path / "replay", np.float32, "w+", shape=(3, 5))
    mapped[:] = np.arange(15).reshape(3, 5)
    assert same(np.asarray(mapped), decode(encode(mapped)))


def test_a_celery_signature_survives() -> None:
    app = Celery(set_as_current=False)

    @app.task(name="rollout")
    def rollout(part: Any) -> None: ...

    @app.task(name="learn")
    def learn(parts: Any) -> None: ...

    signature = chord([rollout.s(np.ones(3)), rollout.s(1)], learn.s())
    received = decode(encode((([1],), {}, {"chord": signature})))
    again = app.signature(received[2]["chord"])
    assert [task.task for task in again.tasks] == ["rollout", "rollout"]
    assert same(np.ones(3), again.tasks[0].args[0])


def test_the_format_of_version_one_never_changes() -> None:
    """Messages wait in queues during upgrades, so a change of the bytes needs a new version."""
    array = np.array([[1, 2]], ">i2")
    value = ({"obs": array, "f": np.float32(1)}, [2**64, torch.ones(1, dtype=torch.bfloat16)], b"z" * 4096)
    expected = (
        b"WRN\x01\x4a\x00\x00\x00"
        b"\x94\xc7\x00\x04\x82\xa3obs\xc7\x11\x01\x04\x01\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00"
        b"\xa1f\xc7\x05\x05\x11\x00\x00\x80\x3f\x92\xc7\x09\x06\x00\x00\x00\x00\x00\x00\x00\x00\x01"
        b"\xc7\x09\x02\x40\x01\x00\x00\x00\x00\x00\x00\x00\xd7\x03\x00\x10\x00\x00\x00\x00\x00\x00"
    )
    frames = b"\x00\x01\x00\x02" + bytes(12) + b"\x80\x3f" + bytes(14) + b"z" * 4096
    body = encode(value)
    assert body == expected + bytes(14) + frames
    assert same(value, decode(body))


def test_registering_twice_is_harmless() -> None:
    codec.register()
    codec.register()
    content_type, encoding, body = serialization.dumps({"a": 1}, serializer="warren")
    assert (content_type, encoding) == ("application/x-warren", "binary")
    assert serialization.loads(body, content_type, encoding, accept={"application/x-warren"}) == {"a": 1}


def test_kombus_errors_carry_those_of_the_codec() -> None:
    codec.register()
    with pytest.raises(kombu.exceptions.EncodeError, match=r"value\['a'\]: cannot encode") as refusal:
        serialization.dumps({"a": {1}}, serializer="warren")
    assert isinstance(refusal.value.args[0], CodecError)
    with pytest.raises(kombu.exceptions.DecodeError, match="begins with") as refusal:
        serialization.loads(b"nonsense", codec.CONTENT_TYPE, "binary")
    assert isinstance(refusal.value.args[0], CodecError)


def test_a_failed_tasks_exception_comes_back_by_name_and_arguments() -> None:
    codec.register()
    app = Celery(set_as_current=False, backend="cache+memory://")
    app.conf.update(result_serializer="warren", accept_content=["warren"])
    app.backend.mark_as_failure("one", CodecError("no such policy", 7), traceback="...")
    with pytest.raises(CodecError) as failure:
        app.AsyncResult("one").get(timeout=5)
    assert failure.value.args == ("no such policy", 7)
    app.backend.mark_as_failure("two", ValueError(Config(0.5), np.arange(2)))
    with pytest.raises(ValueError, match="Config") as failed:
        app.AsyncResult("two").get(timeout=5)
    assert failed.value.args[0] == "Config(rate=0.5)"
    assert same(np.arange(2), failed.value.args[1])


def test_threads_encode_at_once_without_mixing_messages() -> None:
    values = [{"who": who, "seed": 2**70 + who, "obs": np.full((50, 3), who)} for who in range(4)]
    failures: list[int] = []

    def work(who: int) -> None:
        if not all(same(values[who], decode(encode(values[who]))) for _ in range(300)):
            failures.append(who)

    threads = [threading.Thread(target=work, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_a_process_that_handles_no_tensors_never_loads_torch() -> None:
    program = (
        "import sys, numpy as np; from tasks.codec import decode, encode;"
        "decode(encode({'obs': np.ones(3), 'n': np.float32(1)})); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
