"""Settings that were typed and that the chosen kind of run does not read: each is refused with the remedy.

Defaults and files of settings are not checked: they hold values for every kind of run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

from hydra.core.hydra_config import HydraConfig

from workers.config.roles import has_gateways, is_served, of_a_league
from workers.config.schema import Config


@dataclass(frozen=True)
class Rule:
    """Settings, as patterns, that only runs read for which `applies` is True; `otherwise`: the reason and remedy."""

    settings: tuple[str, ...]
    applies: Callable[[Config], bool]
    otherwise: str


def _alone(config: Config) -> bool:
    return config.league is None


def _several_learners(config: Config) -> bool:
    return config.most_learners > 1


NO_LEAGUE = "is of a run without a league; "
RULES = (
    Rule(
        ("restore", "league_workers", "evaluators"), of_a_league, "is of a league, and none is chosen: add league=NAME"
    ),
    Rule(
        ("env_runners", "served_memory"),
        is_served,
        "is of sampling=served, and sampling={sampling} has no env runners: add sampling=served",
    ),
    Rule(
        ("middleware",),
        lambda config: is_served(config) or of_a_league(config),
        "wraps calls of services, and sampling={sampling} without a league makes none: add sampling=served or "
        "league=NAME",
    ),
    Rule(
        ("compression", "top_k", "on_rank_loss", "allreduce"),
        _several_learners,
        "is of several learners that share an update, and there is one: add learners=2",
    ),
    Rule(
        ("gateway.*",),
        has_gateways,
        "is of gateways, for games that drive themselves: choose one by env.id=gamecore:FILE:CLASS",
    ),
    Rule(("env.id",), _alone, f"{NO_LEAGUE}a league's game is league.env"),
    Rule(("env.kwargs", "env.kwargs.*"), _alone, f"{NO_LEAGUE}a league's game takes league.env_kwargs"),
    Rule(("env.num_envs",), _alone, f"{NO_LEAGUE}a league steps league.games at once"),
    Rule(("env.goal",), _alone, f"{NO_LEAGUE}a league ends at the exploitability league.goal"),
    Rule(("env", "env.*"), _alone, f"{NO_LEAGUE}a league's game is league.env, with league.env_kwargs"),
    Rule(("unroll_length",), _alone, f"{NO_LEAGUE}a league has league.unroll_length"),
    Rule(("league.seed",), lambda config: False, "is not read; a run has one seed: give seed=N"),
)


def problems(config: Config, given: Iterable[str] | None = None) -> Iterator[str]:
    """Yield a sentence per override in `given` that has no effect on `config`; None: this command line's overrides."""
    if given is None:
        given = HydraConfig.get().overrides.task if HydraConfig.initialized() else ()
    for override in given:
        name = override.lstrip("+~").partition("=")[0]
        rule = next((rule for rule in RULES if any(fnmatchcase(name, pattern) for pattern in rule.settings)), None)
        if rule is not None and not rule.applies(config):
            yield f"{name}: {rule.otherwise.format(sampling=config.sampling.value)}, or leave it out"
