"""Checks of the settings of a replay, by what the run's algorithm draws from it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import fields

from agents.algorithms.contract import QUEUE, Needs
from workers.config import roles
from workers.config.replay_settings import ReplayConfig
from workers.config.schema import Config, Sampling

AT_LEAST = {"capacity": 1, "batch": 1, "begin_at": 1, "error_buffer": 0, "priority_exponent": 0, "weight_exponent": 0,
            "weight_exponent_end": 0}  # fmt: skip
ABOVE = ("samples_per_insert", "memory")  # settings that must be above 0


def problems(config: Config, algorithm: str, needs: Needs) -> Iterator[str]:
    """Yield a sentence for each setting with which `algorithm` cannot learn, or that it does not read."""
    if needs.source == QUEUE and config.league is None:
        unread = [one.name for one in fields(ReplayConfig) if getattr(config.replay, one.name) != one.default]
        for name in unread:
            yield (
                f"replay.{name}: {getattr(config.replay, name)} is not read by algorithm {algorithm!r}, which learns "
                "from what arrives, once; leave it out"
            )
    if needs.source == QUEUE:
        return
    if config.league is not None:
        yield f"algorithm: {algorithm!r} draws from a replay, which a league's players do not have; choose another"
    if config.most_learners > 1:
        yield (
            f"learners: {config.most_learners} cannot share the replay that algorithm {algorithm!r} draws from, which "
            "one learner holds; use learners=1"
        )
    wrong = list(_values(config.replay))
    yield from wrong
    if config.league is None and not wrong:
        yield from _fitting(config, algorithm, needs)


def _values(replay: ReplayConfig) -> Iterator[str]:
    for name, least in AT_LEAST.items():
        value = getattr(replay, name)
        if value is not None and not least <= value < math.inf:  # NaN is not
            yield f"replay.{name}: {value} is not a number of at least {least}"
    for name in ABOVE:
        if not 0 < (value := getattr(replay, name)) < math.inf:
            yield f"replay.{name}: {value} is not a number above 0"


def _fitting(config: Config, algorithm: str, needs: Needs) -> Iterator[str]:
    replay, length = config.replay, needs.length or 1
    segment = config.unroll_length * config.env.num_envs
    in_a_row = 1 + -(-(length - 1) // config.unroll_length)  # most segments that a sequence spans
    players = getattr(config, config.players)
    if replay.capacity < (least := segment * players * in_a_row):
        yield (
            f"replay.capacity: {replay.capacity} is too small; sequences of {length} steps from {players} "
            f"{config.players} of {config.env.num_envs} environments and unroll_length {config.unroll_length} take "
            f"{least} steps at least"
        )
    if replay.begin_at > replay.capacity:
        yield f"replay.begin_at: {replay.begin_at} steps are more than replay.capacity {replay.capacity}; lower it"
    if replay.begin_at >= config.total_steps:
        yield (
            f"replay.begin_at: {replay.begin_at} is not before the end of the run, total_steps {config.total_steps}; "
            "lower the one or raise the other"
        )
    apart = roles.has_gateways(config) or config.sampling is Sampling.served
    if length > config.unroll_length and apart:
        yield (
            f"unroll_length: {config.unroll_length} is less than the {length} steps of a sequence that algorithm "
            f"{algorithm!r} draws, and segments of this run do not follow each other; raise it to {length}"
        )
    both = replay.samples_per_insert * segment + replay.batch
    if replay.error_buffer is not None and config.sampling is not Sampling.gathered and 2 * replay.error_buffer < both:
        yield (
            f"replay.error_buffer: with {replay.error_buffer:g} learner and actors would wait for each other; raise it "
            f"to {math.ceil(both / 2)}, half of what a segment pays for and an update draws, or leave it out"
        )
