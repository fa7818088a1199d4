"""Tests of tasks.amqp.frames and messages against py-amqp: each reads frames that the other writes."""

from __future__ import annotations

import contextlib
import datetime
import struct
import uuid

import pytest
from amqp.basic_message import Message
from amqp.serialization import loads
from hypothesis import given
from hypothesis import strategies as st

from tasks.amqp import frames
from tasks.amqp.messages import EXPIRES_BYTES, FAILED, Envelope, Ids, Replies, expires_at

FRAME_MAX = 4096

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text(max_size=50),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=20), inner, max_size=4),
    max_leaves=12,
)


def split(data: bytes) -> list[tuple[int, int, bytes]]:
    """Return the frames in `data`: (type, channel, payload)."""
    found, position = [], 0
    while position < len(data):
        kind, channel, size = struct.unpack_from(">BHI", data, position)
        assert data[position + 7 + size] == 0xCE
        found.append((kind, channel, data[position + 7 : position + 7 + size]))
        position += 8 + size
    return found


def message_of(parts: list[tuple[int, int, bytes]]) -> Message:
    """Return the message that py-amqp makes of a header frame and body frames."""
    message = Message()
    message.inbound_header(parts[0][2])
    for _, _, payload in parts[1:]:
        message.inbound_body(payload)
    return message


@given(st.dictionaries(st.text(max_size=30), values, max_size=8))
def test_header_tables_are_read_equal_by_pyamqp(table):
    fields = frames.table(table)
    raw = struct.pack(">HI", frames.HEADERS, len(fields)) + fields
    message = Message()
    message.inbound_header(struct.pack(">HHQ", 60, 0, 0) + raw)
    assert message.properties["application_headers"] == table
    assert frames.read_properties(raw).headers == table


@given(
    st.dictionaries(st.text(max_size=30), values, max_size=8),
    st.text(max_size=40),
    st.text(max_size=40),
    st.text(max_size=40),
)
def test_properties_written_by_pyamqp_are_read_equal(headers, correlation_id, reply_to, kind):
    message = Message(
        b"",
        content_type="application/x-warren",
        content_encoding="binary",
        application_headers=headers,
        delivery_mode=2,
        priority=3,
        correlation_id=correlation_id,
        reply_to=reply_to,
        expiration="1000",
        message_id="m",
        timestamp=1_767_225_600,
        type=kind,
    )
    read = frames.read_properties(message._serialize_properties())
    assert read == ("application/x-warren", headers, correlation_id, reply_to, kind, 3)


@given(st.binary(max_size=200))
def test_any_bytes_give_properties_or_malformed(raw):
    with contextlib.suppress(frames.Malformed):
        frames.read_properties(raw)


@pytest.mark.parametrize("size", [0, 1, FRAME_MAX - 8, FRAME_MAX - 7, 3 * FRAME_MAX])
def test_a_call_is_a_celery_message_that_pyamqp_can_read(size):
    envelope = Envelope(7, FRAME_MAX, "warren.r.service", "actor.add", reply_to="back", time_to_live=1.5, retries=2)
    call_id, body = Ids().new(), bytes(range(256)) * (size // 256 + 1)
    before = datetime.datetime.now(datetime.UTC)
    data = envelope.write(call_id, expires_at(1.5), body[:size])
    after = datetime.datetime.now(datetime.UTC)
    method, *content = split(data)
    assert {channel for _, channel, _ in split(data)} == {7}
    assert len(content) == 1 + -(-size // (FRAME_MAX - 8)), "an empty body has no body frame"
    assert all(len(payload) <= FRAME_MAX - 8 for _, _, payload in content)
    (_, exchange, key, flags), _ = loads("Bsso", method[2], 4)
    assert (exchange, key, flags) == ("warren.r.service", "actor.add", 1)
    message = message_of(content)
    assert message.body == body[:size] or (size == 0 and not message.body)
    headers = message.properties["application_headers"]
    assert headers["task"] == "actor.add" and headers["retries"] == 2 and headers["lang"] == "py"
    assert headers["id"] == headers["root_id"] == message.properties["correlation_id"] == call_id
    sent, rounding = datetime.datetime.fromisoformat(headers["expires"]) - datetime.timedelta(seconds=1.5), 1e-5
    assert (sent - before).total_seconds() > -rounding and (sent - after).total_seconds() < rounding
    assert message.properties["expiration"] == "1500" and message.properties["reply_to"] == "back"


def test_a_call_without_a_time_to_live_has_no_header_or_property_for_it():
    envelope = Envelope(1, FRAME_MAX, "x", "actor.push", persistent=True)
    message = message_of(split(envelope.write(Ids().new(), b"", b"body"))[1:])
    assert "expires" not in message.properties["application_headers"]
    assert "expiration" not in message.properties and message.properties["delivery_mode"] == 2


def test_replies_bear_the_id_of_their_call_and_failures_their_type():
    replies = Replies(1, FRAME_MAX)
    result = message_of(split(b"".join(replies.write("caller", "id-1", b"result")))[1:])
    failure = message_of(split(b"".join(replies.write("caller", "id-2", b"error", FAILED)))[1:])
    assert result.properties == {"correlation_id": "id-1"} and result.body == b"result"
    assert failure.properties == {"correlation_id": "id-2", "type": FAILED}


def test_ids_are_uuids_and_no_two_are_alike():
    one, other = Ids(), Ids()
    made = [ids.new() for _ in range(1000) for ids in (one, other)]
    assert len(set(made)) == 2000
    assert all(str(uuid.UUID(made_id)) == made_id and len(made_id) == 36 for made_id in made)


def test_the_moment_of_expiry_always_has_the_same_length():
    assert {len(expires_at(seconds)) for seconds in (0.0, 0.5, 3600.0, 1e6)} == {EXPIRES_BYTES}
