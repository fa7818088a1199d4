"""Settings of a run, in Redis: its launcher or learner stores them, roles started by hand read them."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from typing import Any

import redis
from omegaconf import DictConfig, OmegaConf

from tasks.topology import key_prefix
from tasks.worker.celery_worker import log_to_stderr
from warren.errors import BrokerError, ConfigurationError
from workers.config.schema import Config, from_hydra, to_tree, to_yaml
from workers.config.written_by import check_messages
from workers.runtime import lease
from workers.runtime.connect import connect, given_urls
from workers.runtime.lease import Lease
from workers.runtime.session import Session

# Settings that each process has for itself: always (OWN), and if its command line names them (LOCAL).
OWN = ("actor_id", "env_runner_id", "learner_id", "league_id", "evaluator_id", "player", "run", "broker")
LOCAL = (
    "folder", "project", "trial", "device", "actor_device", "learner_threads", "compile", "perceptrons", "gateway",
    "flower_port", "flower_address", "log_level", "log_format", "metrics", "restarts", "fork", "grace", "restore",
    "host", "task_events", "event_rate",
)  # fmt: skip
MISSING = "nothing"  # value of a setting that is not there


def leave(session: Session, held: Lease) -> None:
    """Store this process's configuration in Redis as that of its run; called by a learner when it starts.

    `held`: the learner's lease. The settings are valid as long as the lease, as an earlier learner's may be different.
    """
    left = {"by": held.token, "settings": to_yaml(session.config)}
    session.redis.hset(_key(session.topology.key_prefix), held.work, json.dumps(left))


def card_key(prefix: str) -> str:
    """Return the Redis key of the card, on which a run's leader stores its facts."""
    return f"{prefix}card"


def read_card(stored: Any) -> dict[str, Any]:
    """Return a stored card; empty if there is none or it cannot be read."""
    try:
        found = json.loads(stored or b"{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def joined(role: str, config: Config, said: Collection[str]) -> Config:
    """Return the configuration of a role that is started by hand: the run's settings with this process's own.

    The settings of a run are its launcher's, or else its learner's. While the run has neither, or for a learner while
    it has no launcher, `config` is returned unchanged. Waits for servers that are away. `said`: the settings that the
    command line names. Raises ConfigurationError for each of them that has another value in the run.
    """
    if config.run is None or None in given_urls(config):
        return config  # the role reports it, with all other problems
    log_to_stderr(config.log_level, config.log_format)
    _, redis_url = connect(config)
    client = lease.connect(redis_url)
    try:
        text = _settings(client, key_prefix(config.run), role)
    except redis.RedisError as error:
        raise BrokerError(f"Redis did not tell the settings of run {config.run}: {error}") from error
    finally:
        client.close()
    return config if text is None else taken(config, text, said)


def taken(config: Config, text: str, said: Collection[str]) -> Config:
    """Return the configuration that `joined` returns, given the run's settings as YAML."""
    tree = OmegaConf.create(text)
    assert isinstance(tree, DictConfig)
    check_messages(tree, config.run)
    ours, theirs = to_tree(config), to_tree(from_hydra(tree))
    own = sorted(name for name in said if name.partition(".")[0] in (*OWN, *LOCAL))
    if problems := list(_contradictions(ours, theirs, sorted(set(said) - set(own)), str(config.run))):
        raise ConfigurationError(problems)
    for name in (*OWN, *own):
        OmegaConf.update(theirs, name, OmegaConf.select(ours, name), merge=False, force_add=True)
    return from_hydra(theirs)


def _settings(client: redis.Redis, prefix: str, role: str) -> str | None:
    """Return the settings of a living run, as YAML; None if unknown. Raises redis.RedisError."""
    if client.exists(lease.leader_key(prefix)):
        config = read_card(client.get(card_key(prefix))).get("config")  # a run from a file of services has none
        return config if isinstance(config, str) else None
    if role == "learner":
        return None
    stored: Any = client.hgetall(_key(prefix))
    by_token = {left.get("by"): left.get("settings") for left in map(read_card, stored.values())}
    return next((by_token[one.token] for one in lease.living(client, prefix) if one.token in by_token), None)


def _contradictions(ours: DictConfig, theirs: DictConfig, said: Collection[str], run: str) -> Iterator[str]:
    for name in said:
        here, there = (OmegaConf.select(tree, name, default=MISSING) for tree in (ours, theirs))
        if here != there:
            yield f"{name}: {here} here, but run {run} has {there}; leave {name} out, and this process takes the run's"


def _key(prefix: str) -> str:
    return f"{prefix}settings:learners"
