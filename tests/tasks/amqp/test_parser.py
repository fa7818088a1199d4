"""Tests of the parser with frames of AMQP 0-9-1 and with any bytes, without socket or broker."""

from __future__ import annotations

import struct
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.amqp import frames
from tasks.amqp.frames import Delivery
from tasks.amqp.parser import LONG, LONGEST_BODY, Content, Event, Frame, FrameError, Parser

FRAME_MAX = 4096
LEAST_FRAME_MAX = 64  # small, so that bodies take many frames


def frame(kind: int, channel: int, payload: bytes, end: int = 0xCE) -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + bytes((end,))


def deliver(channel: int, tag: int, consumer: str = "c", redelivered: bool = False) -> bytes:
    fields = frames.short(consumer) + struct.pack(">Q?", tag, redelivered) + frames.short("x") + frames.short("key")
    return frame(frames.METHOD, channel, frames.DELIVER + fields)


def content(channel: int, body: bytes, frame_max: int = FRAME_MAX, properties: bytes = b"\x00\x00") -> list[bytes]:
    """Return header and body frames, each whole."""
    step = frame_max - frames.OVERHEAD
    header = frame(frames.HEADER, channel, struct.pack(">HHQ", 60, 0, len(body)) + properties)
    return [header, *(frame(frames.BODY, channel, body[at : at + step]) for at in range(0, len(body), step))]


def message(channel: int, tag: int, body: bytes, frame_max: int = FRAME_MAX) -> bytes:
    return deliver(channel, tag) + b"".join(content(channel, body, frame_max))


def read(data: bytes, cuts: list[int], frame_max: int = FRAME_MAX) -> list[Event]:
    """Return the events of a parser that gets `data` in pieces, through `room` if it offers any."""
    parser, events, start = Parser(frame_max), list[Event](), 0
    for cut in [*sorted(cuts), len(data)]:
        piece, start = data[start:cut], cut
        while piece:
            room = parser.room()
            if room is None:
                events += parser.feed(piece)
                break
            count = min(len(room), len(piece))
            room[:count] = piece[:count]
            piece = piece[count:]
            events += parser.filled(count)
    assert not parser.midway
    return events


def expected(tag: int, body: bytes, consumer: str = "c") -> Delivery:
    return Delivery(consumer, tag, False, b"\x00\x00", body)


@st.composite
def streams(draw: st.DrawFn) -> tuple[bytes, set[tuple[int, bytes]], list[int]]:
    """Draw interleaved frames of several channels, their deliveries, and the positions of cuts."""
    bodies = draw(st.lists(st.tuples(st.integers(1, 3), st.binary(max_size=300)), max_size=6))
    queues: dict[int, list[bytes]] = {}
    for tag, (channel, body) in enumerate(bodies):
        queues.setdefault(channel, []).extend([deliver(channel, tag), *content(channel, body, LEAST_FRAME_MAX)])
    out = []
    while queues:
        channel = draw(st.sampled_from(sorted(queues)))
        out.append(queues[channel].pop(0))
        if not queues[channel]:
            del queues[channel]
        if draw(st.integers(0, 9)) == 0:
            out.append(frames.HEARTBEAT_FRAME)
    data = b"".join(out)
    cuts = draw(st.lists(st.integers(0, len(data)), max_size=12))
    return data, {(tag, body) for tag, (_, body) in enumerate(bodies)}, cuts


@settings(max_examples=150)
@given(streams())
def test_any_split_of_a_stream_gives_the_same_whole_messages(stream):
    data, bodies, cuts = stream
    events = read(data, cuts, LEAST_FRAME_MAX)
    assert {(event.tag, event.body) for event in events if isinstance(event, Delivery)} == bodies
    whole = read(data, [], LEAST_FRAME_MAX)
    assert sorted(map(repr, events)) == sorted(map(repr, whole))


def feed_all(parser, data, cuts):
    """Feed `data` in pieces that end at `cuts`, up to the first error."""
    start = 0
    with suppress(FrameError):
        for cut in [*sorted(cuts), len(data)]:
            parser.feed(data[start:cut])
            start = max(start, cut)


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=5))
def test_any_bytes_give_frames_or_the_one_error(data, cuts):
    feed_all(Parser(FRAME_MAX), data, cuts)


@settings(max_examples=150)
@given(streams(), st.data())
def test_one_changed_byte_gives_frames_or_the_one_error(stream, draw):
    data, _, cuts = stream
    if not data:
        return
    at = draw.draw(st.integers(0, len(data) - 1))
    data = data[:at] + bytes((draw.draw(st.integers(0, 255)),)) + data[at + 1 :]
    feed_all(Parser(LEAST_FRAME_MAX), data, cuts)


@pytest.mark.parametrize("cut", range(1, 8))
def test_a_body_frame_cut_within_its_own_header_is_read_on(cut):
    data = message(1, 7, b"b" * 3 * LEAST_FRAME_MAX, LEAST_FRAME_MAX)
    second = data.rindex(struct.pack(">BH", frames.BODY, 1))
    assert read(data, [second + cut], LEAST_FRAME_MAX) == [expected(7, b"b" * 3 * LEAST_FRAME_MAX)]


@pytest.mark.parametrize("number", range(3))
def test_a_frame_that_does_not_end_with_the_end_octet_is_an_error(number):
    parts = [deliver(1, 1), *content(1, b"body")]
    parts[number] = parts[number][:-1] + b"\x00"
    with pytest.raises(FrameError, match="instead of 0xce"):
        Parser(FRAME_MAX).feed(b"".join(parts))


def test_a_frame_longer_than_agreed_is_an_error_before_it_has_come():
    with pytest.raises(FrameError, match="4096 bytes"):
        Parser(FRAME_MAX).feed(struct.pack(">BHI", frames.METHOD, 0, FRAME_MAX) + b"x")


@pytest.mark.parametrize(
    "parts",
    [
        content(1, b"body"),
        [deliver(1, 1), deliver(1, 2)],
        [deliver(1, 1), frame(frames.BODY, 1, b"body")],
        [deliver(1, 1), content(2, b"body")[0]],
        [deliver(1, 1), content(1, b"body")[0], content(1, b"body")[0]],
        [deliver(1, 1), content(1, b"body")[0], frame(frames.BODY, 1, b"longer body")],
        [deliver(1, 1), frame(frames.HEADER, 1, struct.pack(">HHQ", 60, 0, 4))],
        [deliver(1, 1), frame(frames.HEADER, 1, struct.pack(">HHQ", 50, 0, 4) + b"\0\0")],
        [deliver(1, 1), frame(frames.HEADER, 1, struct.pack(">HHQ", 60, 0, LONGEST_BODY + 1) + b"\0\0")],
        [frame(frames.METHOD, 1, frames.DELIVER + b"\xffc"), *content(1, b"body")],
        [frame(frames.METHOD, 1, b"\x00")],
        [frame(4, 1, b"")],
    ],
    ids=[
        "content without a method", "method within a content", "body before its header", "header on another channel",
        "two headers", "more body than said", "header too short", "header of another class", "endless body",
        "deliver too short", "method too short", "unknown type",
    ],
)  # fmt: skip
def test_frames_out_of_their_order_are_an_error(parts):
    with pytest.raises(FrameError):
        Parser(FRAME_MAX).feed(b"".join(parts))


def test_messages_of_channels_with_interleaved_frames_are_assembled():
    one, two = (
        [deliver(channel, channel), *content(channel, bytes([channel]) * 150, LEAST_FRAME_MAX)] for channel in (1, 2)
    )
    data = b"".join(part for pair in zip(one, two, strict=True) for part in pair)
    assert read(data, [], LEAST_FRAME_MAX) == [expected(1, b"\x01" * 150), expected(2, b"\x02" * 150)]


def test_methods_returned_messages_and_heartbeats_are_passed_on():
    returned = b"\x00\x3c\x00\x32" + struct.pack(">H", 312) + frames.short("NO_ROUTE") + b"\x00\x00"
    data = frame(frames.METHOD, 0, b"\x00\x0a\x00\x3d") + frame(frames.METHOD, 3, returned)
    data += b"".join(content(3, b"back")) + frames.HEARTBEAT_FRAME
    assert read(data, []) == [
        Frame(frames.METHOD, 0, b"\x00\x0a\x00\x3d"),
        Content(3, returned, b"\x00\x00", b"back"),
        Frame(frames.HEARTBEAT, 0, b""),
    ]


def test_a_long_message_is_read_into_its_final_buffer():
    body = bytes(range(256)) * (3 * LONG // 256)
    parser = Parser(1 << 17)
    assert parser.room() is None
    assert parser.feed(message(1, 1, body, 1 << 17)[:500]) == []
    rest = message(1, 1, body, 1 << 17)[500:]
    room = parser.room()
    assert room is not None and len(room) == len(rest)
    room[:1000] = rest[:1000]
    assert parser.filled(1000) == [] and parser.midway
    assert parser.feed(rest[1000:] + message(1, 2, b"next")) == [expected(1, body), expected(2, b"next")]
