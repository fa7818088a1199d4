"""The actor of a plain run: plays, and sends its experience to the learner.

Gathered: it answers rollout tasks, one per round. Streaming: it plays on with the newest weights it has and sends a
segment whenever one is full.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from celery.exceptions import Reject

import envs
from agents import Policy, build_policy, devices
from tasks.client.bounded_sender import BoundedSender
from tasks.events import WEIGHTS
from warren.errors import ConfigurationError, WarrenError
from warren.log_fields import tell
from workers.config import roles
from workers.config.schema import Config
from workers.rollout.actor_process import ActorProcess, live_as_actor
from workers.rollout.asked import fields_asked
from workers.rollout.sampler import ClosableSampler, SamplerClosed
from workers.rollout.sending.answers import answer
from workers.rollout.sending.handover import SENDERS, SendingThread
from workers.rollout.sending.leaving import Leaving
from workers.rollout.sending.numbering import Numbering
from workers.rollout.sending.pace import Pace
from workers.rollout.separate_samplers import SeparateSamplers
from workers.rollout.vector_sampler import VectorSampler
from workers.runtime.actor_count import SegmentsWaiting
from workers.runtime.connect import servers_are_remote
from workers.runtime.metrics_endpoint import Sample
from workers.runtime.role import enter
from workers.runtime.session import PLAYER, Session, source_name
from workers.runtime.timing import Timing
from workers.runtime.weight_sync import NewestWeights

logger = logging.getLogger(__name__)

OTHERS_WAIT = 0.01  # s before a rollout that belongs to another actor goes back to the queue
WEIGHTS_PATIENCE = 60.0  # s that an actor waits for weights before it says so and waits on


class ActorRole(ActorProcess):
    """Environments, a copy of the policy, and the newest weights."""

    role = roles.ACTOR
    sampler: ClosableSampler

    def __init__(self, config: Config, session: Session, servers_are_remote: bool = False) -> None:
        super().__init__(config, session)
        self._servers_are_remote = servers_are_remote
        self.number = config.actor_id or 0
        self.source = source_name(self.number)
        # No two actors may play the same episodes, nor may a restarted actor repeat its own: the unique name is hashed
        # with the run's seed. (Process ids would not do: in containers they coincide.)
        seed = zlib.crc32(f"{config.seed}/{self.source}".encode()) % (1 << 31)
        self._seeds = itertools.count(seed, 7919)  # one for each time that the environments are made
        self._times_made = itertools.count()
        self._round = ""  # id of the round answered last
        self._repeated: tuple[int, dict[str, Any]] | None = None  # version, and the payload played with its weights
        self.timing = Timing()
        self.sampler = self._make_sampler()
        self.policy = self.sampler.policy
        self.weights = NewestWeights(session.pool, PLAYER)
        self._numbered = Numbering(session, self.source)
        self._senders = threading.local()  # a sender per sending thread
        self._leaving = Leaving()
        self._notes = ThreadPoolExecutor(SENDERS, thread_name_prefix="ledger")  # starts threads as they are needed
        self._bound = SegmentsWaiting(session)
        self.pace = Pace(self._bound.share)
        session.app.task(self.rollout, name="actor.rollout")

    def samples(self) -> Iterator[Sample]:
        yield from super().samples()
        yield Sample("warren_weights_version", self.weights.version, {"player": PLAYER})

    def _make_sampler(self) -> ClosableSampler:
        if self.config.deterministic:
            return self._make_separate_samplers()
        env, seed = self.config.env, self._next_seed()
        environments = envs.make_vector(env.settings(), env.num_envs, seed)
        policy = build_policy(
            self.config.network,
            environments.single_observation_space,
            environments.single_action_space,
            seed,
            env.settings().value_channels,
        )
        policy.to(devices.resolve(self.config.actor_device, "actor_device"))
        policy.place = self.number, self.config.actors
        return VectorSampler(environments, policy, seed, env.id, self.timing, self._asked(policy))

    def _asked(self, policy: Policy) -> list[str]:
        """Return the fields that the run's algorithm asks samplers of `policy` to collect."""
        if PLAYER not in self.asked:
            self.asked[PLAYER] = fields_asked(self.config.algorithm, policy)
        return self.asked[PLAYER]

    def _next_seed(self) -> int:
        return next(self._seeds) % (1 << 31)

    def _make_separate_samplers(self) -> SeparateSamplers:
        env = self.config.env
        settings = replace(env.settings(), workers=0)
        times = next(self._times_made)
        first = self.number * env.num_envs
        names = [f"{self.config.seed}/environment {first + index}/{times}" for index in range(env.num_envs)]

        def make(seed: int, policy: Policy) -> VectorSampler:
            environment = envs.make_vector(settings, 1, seed)
            return VectorSampler(environment, policy, seed, env.id, fields=self._asked(policy))

        policy = build_policy(self.config.network, *envs.spaces(settings), self.config.seed, settings.value_channels)
        policy.to(devices.resolve(self.config.actor_device, "actor_device"))
        seeds = [zlib.crc32(name.encode()) % (1 << 31) for name in names]
        return SeparateSamplers(seeds, policy, make, first, self.config.actors * env.num_envs)

    def rollout(self, round_id: str, version: int, share: Sequence[int] = (0, 1)) -> dict[str, Any]:
        """Run the rollout task: play one segment with weights of `version` or newer.

        `share`: the learner's rank and the number of learners; in a deterministic run each learner has the same actors
        every time.
        """
        if self.config.deterministic:
            rank, ranks = share
            if (
                round_id == self._round or self.number % ranks != rank
            ):  # the other rollouts of the round belong to the other actors
                self.stopping.wait(OTHERS_WAIT)
                raise Reject("another actor has to play this", requeue=True)
            self._round = round_id
        return answer(round_id, self.stopping, lambda: self._rollout(version))

    def _rollout(self, version: int) -> dict[str, Any]:
        if not self.weights.wait_for(version, self.stopping, self.config.round_timeout):
            raise WarrenError(f"weights of version {version} did not arrive; this actor has {self.weights.version}")
        if self.weights.version > version:  # an update has used another round of that version
            return {"superseded": self.weights.version}
        if not self.config.deterministic:
            return self._noted(self.collect())
        if self._repeated is None or self._repeated[0] != version:  # else the round was dispatched again
            self._repeated = (version, {"actor": self.number, **self._noted(self.collect())})
        return self._repeated[1]

    def _noted(self, payload: dict[str, Any]) -> dict[str, Any]:
        self._numbered.note(payload)
        return payload

    def collect(self) -> dict[str, Any]:
        """Play `unroll_length` steps with the newest weights; return a payload for the learner."""
        self.load_newest()
        self.first_step_at = self.first_step_at or time.time()
        try:
            trajectory = self.sampler.collect(self.config.unroll_length)
        except SamplerClosed:
            raise
        except Exception:
            self.sampler.close()
            self.sampler = self._make_sampler()  # new environments: the failed ones may be in any state
            raise
        return {
            "first_step_at": self.first_step_at,
            "collected_at": time.time(),
            **self._numbered.number(trajectory),
        }

    def load_newest(self) -> None:
        """Load the newest weights that have arrived."""
        newest = self.weights.stamped(newer_than=self.sampler.version)
        if newest is not None:
            stamp, tensors = newest
            self.sampler.load(tensors, stamp["version"], stamp.get("behaviour"))
            tell(version=stamp["version"])

    def on_weights(self, payload: dict[str, Any]) -> None:
        """Take in published weights."""
        self.weights.receive(payload)

    def handlers(self) -> Mapping[str, Callable[[dict[str, Any]], None]]:
        return {WEIGHTS: self.on_weights}

    def catch_up(self) -> None:
        self.weights.fetch()

    def stream(self) -> None:
        while not self.weights.wait_for(0, self.stopping, WEIGHTS_PATIENCE) and not self.stopping.is_set():
            logger.warning("still waiting for the learner's first weights")
        sending = SendingThread(self._send, self.stopping, self._wait_for_room, self.timing, self._in_turn)
        try:
            while not self.stopping.is_set():
                with self.timing.stage("collect"):
                    payload = self._collect_again()
                self.pace.collected(self.weights.version)
                with self.timing.stage("wait for the sender"):
                    sending.give(payload)
                    if not self._servers_are_remote:  # else it would wait for segments to arrive there
                        sending.wait_for_room()
        except SamplerClosed:
            logger.info("no more games are played here")
        finally:
            self.stopping.set()  # the sender does not know of a failure here
            sending.end()
            self._notes.shutdown()
            logger.info("where the time went:\n%s", "\n".join(self.timing.lines()))

    def _send(self, payload: dict[str, Any], leaving: Callable[[], None]) -> bool:
        """Send a segment, on a sending thread; return True if the learner's queue had room at once."""
        sender, noted = self._own_sender(), self._notes.submit(self._numbered.note, payload)

        def looked() -> None:
            noted.result()
            if self._leaving.begin():
                leaving()

        try:
            if sender.send("learner.learn", ({"round": None, **payload},), looked):
                self._notes.submit(self._numbered.confirm, payload)
        finally:
            self._leaving.end()
        if not sender.found_room:
            self.pace.full(self.weights.version)
        return bool(sender.found_room)

    def _wait_for_room(self) -> bool:
        """Wait, on a sending thread, until another segment may be collected; return True if that was so at once."""
        sender = self._own_sender()
        sender.wait_for_room(self._may_collect)
        return bool(sender.found_room)

    def _own_sender(self) -> BoundedSender:
        """Return this thread's sender."""
        if not hasattr(self._senders, "own"):
            queue = self.session.topology.learner_queue()
            self._senders.own = BoundedSender(self.session.app, queue, self._free, self.stopping)
        sender: BoundedSender = self._senders.own
        return sender

    def _free(self) -> int:
        """Return how many segments may wait in the queue, less those on their way there.

        Segments on their way to a remote queue are not subtracted: before they arrive, others have been taken out.
        """
        return self._bound() - (0 if self._servers_are_remote else self._leaving.others())

    def _may_collect(self, room: bool) -> bool:
        return self.pace.may_collect(self.weights.version, room)

    def _in_turn(self) -> bool:
        return self.pace.in_turn(self.weights.version)

    def _collect_again(self) -> dict[str, Any]:
        """Return a payload; make failed environments anew once. Raises what they raise when they fail again."""
        try:
            return self.collect()
        except ConfigurationError as error:
            logger.error("%s; making the environments anew, once", error)
            return self.collect()


def run(config: Config, make: type[ActorRole] = ActorRole) -> int:
    """Play until the run is over or a stop; return exit status 0, or 1 when playing failed."""
    session = enter(config, make.role, torch_threads=1)
    remote = servers_are_remote(session.redis_url)
    return live_as_actor(session, make.role, lambda config: make(config, session, remote))
