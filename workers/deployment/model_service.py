"""A run's model as services that any process of the run calls:

python -m workers.serve workers.deployment.model_service:Model --kwargs '{"run": "runs/cartpole/TRIAL"}'

solver.call("model.forward", observations, {})                 # {"action", "memory", "version"}
solver.call("model.forward", observations, {}, masks)          # the same, of a game that says which actions are legal
solver.call("model.get_model", "main", -1)                     # {"player", "version", "step", "data"}
solver.call("model.publish_weights", data, 1000)               # the version that they got
solver.call("model.clone", "champion")                         # "champion@73"
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from agents.checkpoints import check_weights, encode_weights, load_weights, weights_from_bytes
from agents.policies import Policy
from agents.trees import ArraySpec, cast, not_finite, problems, spec_of
from league.models.pool import Pool
from league.redis.store import Store
from tasks import context
from tasks.events import WEIGHTS, EventDispatcher, Subscription, of_player
from tasks.service import Worker, service
from warren import redis_client
from warren.errors import CheckpointError, ConfigurationError, PoolError
from warren.trees import leaves, map_tree, take
from workers.models.backends import Backend, PytorchBackend
from workers.models.cloning import clone
from workers.runtime.trained import load
from workers.runtime.weight_sync import NewestWeights

NEWEST = -1

logger = logging.getLogger(__name__)


class Model(Worker):
    """Decides by the newest weights of `player` that its run publishes; until then by those of the run folder `run`.

    A league's frozen player ("main@1200") never changes.
    """

    role = "model"

    def __init__(self, run: str, player: str = "main", seed: int = 0) -> None:
        super().__init__()
        torch.set_num_threads(1)
        app, topology = context.current()
        trained = load(run, player)
        self.player = player
        self.version = self._seen = trained.version  # the version it decides by; the newest that it looked at
        self._frozen = trained.two_player and "@" in player
        self._event = of_player(WEIGHTS, player) if trained.two_player else WEIGHTS
        self._backend = PytorchBackend(trained.policy.requires_grad_(False))
        self._generator = torch.Generator().manual_seed(seed)
        self._redis = redis_client.connect(app.conf.result_backend)
        self._prefix = topology.key_prefix
        self._pool = Pool(self._redis, self._prefix)
        self._events = EventDispatcher(app, topology)
        self._newest = NewestWeights(self._pool, player)
        if not self._frozen:
            given = {self._event: self._newest.receive}
            self._subscription = Subscription(app, topology, given, "model.weights", self._newest.fetch).start()
        self._refresh()

    @service(batch=64)
    def forward(self, calls: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Decide for all calls in one forward pass.

        A call: observations [N, ...], the memory before them ({} where episodes begin), and bool [N, actions] where not
        all actions are legal. Its answer: {"action": [N, ...] as the action space has them, "memory": after them,
        "version"}.
        """
        self._refresh()
        policy, counts = self._backend.policy, [_rows(call, self._backend) for call in calls]
        whole = map_tree(lambda *parts: np.concatenate(parts), *(observation for observation, *_ in calls))
        begun = [call[1] or self._backend.initial_memory(count) for call, count in zip(calls, counts, strict=True)]
        before = map_tree(lambda *parts: np.concatenate(parts), *begun)
        legal = _legal(calls, counts, policy)
        drawn, after = self._backend.act(whole, before, "sample", self._generator, legal)
        actions, ends = policy.env_action(drawn), np.cumsum(counts)
        parts = [slice(int(end) - count, int(end)) for end, count in zip(ends, counts, strict=True)]
        return [{"action": take(actions, one), "memory": take(after, one), "version": self.version} for one in parts]

    @service
    def get_model(self, player: str, version: int = NEWEST) -> dict[str, Any]:
        """Return weights from the run's pool, as safetensors bytes; of `version`, or the newest."""
        model = self._pool.newest(player) if version == NEWEST else self._pool.get(player, version)
        if model is None:
            raise PoolError(f"the pool holds no weights of player {player!r} yet; its learner has published none")
        return {"player": model.player, "version": model.version, "step": model.step, "data": model.data}

    @service(retries=0)
    def publish_weights(self, data: bytes, step: int) -> int:
        """Put safetensors bytes of `weights_to_bytes`, made at `step`, into the pool, and send them to all actors.

        Returns their version. They are stamped with the generation that the player is in.
        """
        if self._frozen:
            raise ConfigurationError(f"publish_weights: {self.player} is frozen; its weights never change")
        tensors, given = weights_from_bytes(data)
        self._check(tensors, "published weights")
        while True:
            self._newest.fetch()
            found = self._newest.stamped()
            newest = {} if found is None else found[0]
            version = max(self._seen, self._newest.version) + 1
            stamp = {"behaviour": {}, **newest, **given, "player": self.player, "version": version, "step": step}
            if "generation" in newest:
                stamp["generation"] = newest["generation"]
            encoded = encode_weights(tensors, stamp)
            if self._pool.put(self.player, version, step, encoded):
                break
        payload = {**stamp, "data": encoded}
        self._newest.receive(payload)
        self._refresh()
        self._events.fire(self._event, payload)
        return version

    @service
    def clone(self, name: str) -> str:
        """Add its present weights to the run's league, as a player that does not learn; return the model's name."""
        self._refresh()
        store = Store(self._redis, f"{self._prefix}league:")
        if not store.exists():
            raise ConfigurationError(f"clone {name}: this run has no league; python -m workers.clone names another")
        return str(clone(store, self._pool, self._backend.policy, self.version, name, by="model.clone"))

    def _refresh(self) -> None:
        """Decide by the newest weights from now on; log weights that cannot be used, and skip them."""
        found = self._newest.stamped(newer_than=self._seen)
        if found is None:
            return
        stamp, tensors = found
        self._seen = int(stamp.get("version", self._newest.version))
        try:
            self._check(tensors, f"weights of version {self._seen}")
        except CheckpointError as error:
            logger.error("it goes on deciding by weights of version %d: %s", self.version, error)
            return
        load_weights(self._backend.policy, tensors)
        self.version = self._seen

    def _check(self, tensors: Mapping[str, torch.Tensor], source: str) -> None:
        """Raise CheckpointError for weights of another network, and for numbers that are not finite."""
        check_weights(self._backend.policy, tensors, source)
        bad = [name for name, tensor in tensors.items() if tensor.is_floating_point() and not tensor.isfinite().all()]
        if bad:
            raise CheckpointError(f"the {source} hold numbers that are not finite, in {', '.join(bad[:3])}")


def _legal(calls: Sequence[tuple[Any, ...]], counts: Sequence[int], policy: Policy) -> np.ndarray | None:
    """Return bool [all rows, actions], all true for calls without a mask; None if no call has one."""
    if all(len(call) < 3 or call[2] is None for call in calls):
        return None
    actions = policy.distribution.mask_size
    masks = []
    for call, count in zip(calls, counts, strict=True):
        mask = (
            np.ones((count, actions), np.bool_) if len(call) < 3 or call[2] is None else np.asarray(call[2], np.bool_)
        )
        if mask.shape != (count, actions):
            raise ValueError(f"the mask of legal actions is {list(mask.shape)}; it must be {[count, actions]}")
        masks.append(mask)
    return np.concatenate(masks)


def _rows(call: tuple[Any, ...], backend: Backend) -> int:
    """Return the N of a call. Raises ValueError for observations, or a memory, that the policy does not take."""
    observation, memory, *_ = call
    spec = spec_of(backend.policy.observation_space)
    try:
        seen = cast(spec, observation)
        count = len(next(leaves(seen))[1])
    except (LookupError, TypeError, ValueError) as error:
        said = f"{type(error).__name__}: {error}"
        raise ValueError(
            f"observation: it must hold arrays [N, ...] of {backend.policy.observation_space} ({said})"
        ) from None
    wrong = [*problems(spec, seen, (count,), "observation"), *not_finite(seen, "observation")]
    wanted = {name: ArraySpec(part.shape[1:], part.dtype.name) for name, part in backend.initial_memory(1).items()}
    if memory:
        wrong += problems(wanted, dict(memory), (count,), "memory")
    if wrong:
        raise ValueError("; ".join(wrong))
    return count
