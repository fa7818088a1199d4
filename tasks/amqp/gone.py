"""The errors of a connection that is gone, or does not answer in time."""

from __future__ import annotations

from amqp.exceptions import AMQPError
from kombu.exceptions import OperationalError


class LinkLost(ConnectionError):
    """Raised when the connection is lost; messages under way on it may or may not have arrived."""


class Unanswered(Exception):
    """Raised when the broker has not answered by the time that its caller needs the answer; the connection stays."""


GONE = (OSError, AMQPError, OperationalError)  # raised by a connection that is lost, or cannot be made
