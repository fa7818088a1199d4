"""Checks of the settings of a replay, by what the run's algorithm draws from it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from tempfile import TemporaryDirectory

from agents.algorithms.contract import PRIORITIZED, QUEUE, UNIFORM, Needs
from agents.replay import BufferOptions, build_buffer
from warren.errors import ConfigurationError
from workers.config import roles
from workers.config.replay_settings import ReplayConfig
from workers.config.schema import Config, Sampling

AT_LEAST = {"capacity": 1, "batch": 1, "begin_at": 1, "error_buffer": 0, "priority_exponent": 0, "weight_exponent": 0,
            "weight_exponent_end": 0}  # fmt: skip
GIB = 1 << 30
DRAWING = ("train", "learner")  # roles: of a run and of the process that draws
ABOVE = ("samples_per_insert", "memory")  # settings that must be above 0


def problems(config: Config, algorithm: str, needs: Needs) -> Iterator[str]:
    """Yield a sentence for each setting with which `algorithm` cannot learn, or that it does not read."""
    if needs.source == QUEUE and config.league is None:
        default = ReplayConfig()
        names = [one.name for one in fields(ReplayConfig)]
        unread = [name for name in names if getattr(config.replay, name) != getattr(default, name)]
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
    if replay.buffer is None and replay.buffer_settings:
        yield (
            f"replay.buffer_settings: {replay.buffer_settings} is not read without a buffer of your own; add "
            "replay.buffer=file.py:build, or leave it out"
        )


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


def options_of(replay: ReplayConfig, needs: Needs, seed: int, folder: Path) -> BufferOptions:
    """Return the options of the buffer from which an algorithm with these needs draws; its files are in `folder`."""
    assert needs.length is not None
    exponent = replay.priority_exponent if needs.source == PRIORITIZED else None
    in_memory = int(replay.memory * GIB)
    return BufferOptions(replay.capacity, needs.length, exponent, seed, in_memory, folder, needs.groups, needs.unrolls)


def of_own_buffer(config: Config, needs: Needs, role: str) -> Iterator[str]:
    """Yield a sentence for each problem of a buffer of the user's own, which is made for this, and then dropped.

    Other roles than those that draw from it may be on machines without its file, and find no problem.
    """
    replay = config.replay
    drawn = needs.source in (UNIFORM, PRIORITIZED) and needs.length is not None and config.league is None
    if replay.buffer is None or not drawn or role not in DRAWING:
        return
    if any(_values(replay)):  # `problems` reports them; the buffer is checked all the same
        replay = ReplayConfig(
            buffer=replay.buffer, buffer_settings=replay.buffer_settings, in_checkpoint=replay.in_checkpoint
        )
    with TemporaryDirectory(prefix="warren-verifying-") as folder:
        options = options_of(replay, needs, config.seed, Path(folder))
        try:
            build_buffer(replay.buffer, replay.buffer_settings, options, replay.in_checkpoint)
        except ConfigurationError as error:
            yield from error.problems
