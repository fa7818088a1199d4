"""Tests of the meeting place of several learners."""

from __future__ import annotations

import socket

import pytest

from workers.learning.allreduce.torch_ring import Rendezvous


def test_torchs_ranks_meet_at_one_address_and_at_no_other() -> None:
    meeting = Rendezvous(2, "127.0.0.1")
    try:
        socket.create_connection(("127.0.0.1", meeting.port), 30).close()
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.2", meeting.port), 30)
    finally:
        meeting.close()
