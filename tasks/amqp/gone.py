"""The errors of a connection that is gone."""

from __future__ import annotations

from amqp.exceptions import AMQPError
from kombu.exceptions import OperationalError


class LinkLost(ConnectionError):
    """Raised when the connection is lost; messages under way on it may or may not have arrived."""


GONE = (OSError, AMQPError, OperationalError)  # raised by a connection that is lost, or cannot be made
