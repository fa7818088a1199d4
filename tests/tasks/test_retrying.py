"""Tests of RetryOn: which exceptions are retried, the waits, and refused settings."""

from __future__ import annotations

import pytest

from tasks.retrying import LONGEST, RetryOn
from tasks.service import service
from warren.errors import ConfigurationError


def test_waits_double_up_to_the_longest_and_end_after_the_last_time():
    policy = RetryOn(ConnectionError, times=4, backoff=1.0, longest=5.0, jitter=False)
    assert [policy.wait(ConnectionError(), tried) for tried in range(5)] == [1.0, 2.0, 4.0, 5.0, None]


def test_jitter_takes_up_to_half_of_a_wait():
    policy = RetryOn(ConnectionError, backoff=1.0)
    waits = [policy.wait(ConnectionError(), 1) for _ in range(200)]
    assert all(wait is not None and 1.0 <= wait <= 2.0 for wait in waits) and len(set(waits)) > 100


def test_subclasses_count_and_other_exceptions_do_not():
    policy = RetryOn(ConnectionError, TimeoutError)
    assert policy.wait(ConnectionResetError(), 0) and policy.wait(TimeoutError(), 0)
    assert policy.wait(ValueError(), 0) is None and policy.wait(KeyboardInterrupt(), 0) is None


def test_when_decides_by_the_exception_and_the_number_of_tries():
    policy = RetryOn(when=lambda error, tried: "soon" in str(error) and tried < 2, times=9)
    assert policy.wait(ValueError("soon"), 1) and policy.wait(ValueError("soon"), 2) is None
    assert policy.wait(ValueError("never"), 0) is None


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: RetryOn(), "name classes of exceptions"),
        (lambda: RetryOn("ConnectionError"), "'ConnectionError' is not a class"),  # type: ignore[arg-type]
        (lambda: RetryOn(OSError, times=0), "leave retry_on out"),
        (lambda: RetryOn(OSError, backoff=0.0), "waits are over 0"),
        (lambda: RetryOn(OSError, backoff=9.0, longest=3.0), "backoff=9.0, longest=3.0"),
        (lambda: RetryOn(OSError, longest=LONGEST + 1), "at most 900"),
        (lambda: service(retry_on=int), "<class 'int'> is not a class of exceptions"),  # type: ignore[arg-type]
    ],
)
def test_invalid_retry_settings_are_one_clear_error(make, told):
    with pytest.raises(ConfigurationError, match="retry_on: .*" + told):
        make()
