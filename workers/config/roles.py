"""The table of roles: one row per kind of process of a training run or a league, with all facts about that kind.

Launcher, verifier, hosts, doctor, scaling and command lines read it; tests/test_roles.py compares the schema, manifests
and pages with it. A new role is a row here and its module `workers.NAME`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol


class RunConfig(Protocol):
    """The settings of a run that decide which roles it has; schema.Config, whose module imports this one, has them."""

    env: Any  # EnvConfig
    evaluation: Any  # EvaluationConfig
    league: Any  # LeagueConfig's values by name, or None
    sampling: Any  # Sampling


class Restart(Enum):
    """The effect on the run of a process that fails again and again."""

    critical = "critical"  # the run ends, with the process's last lines
    optional = "optional"  # the run goes on without it; it is tried again after growing pauses
    never = "never"  # the run goes on without it


class Done(Enum):
    """The meaning of an end with status 0."""

    restart = "restart"  # the process should last as long as the run: it is started again
    once = "once"  # its work is done
    run = "run"  # its work is done, and with it the run


class Keeps(Enum):
    """The processes of a role that write into the run's folder."""

    nobody = "nobody"
    first = "first"  # the one with number 0
    each = "each"


def of_a_league(config: RunConfig) -> bool:
    """Return whether the run has a league."""
    return config.league is not None


def is_served(config: RunConfig) -> bool:
    """Return whether env runners step the environments."""
    return bool(config.sampling.value == "served")


def game_of(config: RunConfig) -> tuple[str, str]:
    """Return (the setting that names what is played, its value)."""
    return ("league.env", str(config.league.get("env"))) if of_a_league(config) else ("env.id", config.env.id)


def has_gateways(config: RunConfig) -> bool:
    """Return whether games drive themselves, so that gateways take the place of actors."""
    from envs import is_gamecore  # imports gymnasium, which not every command line needs

    return is_gamecore(game_of(config)[1])


def is_evaluated(config: RunConfig) -> bool:
    """Return whether an evaluator plays: in a league, and in any other run that asks for it."""
    return of_a_league(config) or config.evaluation.every is not None


@dataclass(frozen=True)
class Role:
    """One kind of process: `python -m workers.NAME`.

    `work`: the module whose `run` does the work, by kind of run: "plain", "league" and, where the code for served
    sampling differs, "served plain" and "served league". A run of a kind that is missing, or for which `applies` is
    False, has no such role; `otherwise` is the error, with the remedy, for a user who starts one by hand.

    `count`, `id`: the settings that hold the number of processes, at most `most`, and the number of this process. A
    role without a count has one process, started if the setting `switch` is not null. `each_player`: the count is per
    player. `scaled`: the count may be changed while the run lasts.

    `grace`: least time to stop, s, even if the setting `grace` is less; `longest`: most time to stop, s, if an update
    takes longer; `in_a_container`: time to stop in a container, s. `stop_order`: roles of 0 are stopped first.

    `queue`: template of the routing key whose tasks it consumes. `answers`: it answers remote control while it
    computes. `metrics`: the path at which it serves Prometheus. `device`: the setting of its torch device. `forked`: it
    is forked from a process that has imported its modules.

    `rights`: the name of its rights in tasks/rights.py, by default its own; `served_rights`: where env runners step.
    """

    name: str
    does: str  # in --help, after `python -m workers.NAME`
    work: Mapping[str, str]
    applies: Callable[[RunConfig], bool] = lambda config: True
    otherwise: str = ""
    count: str | None = None
    most: int = 1_000
    id: str | None = None
    switch: str | None = None
    each_player: bool = False
    scaled: bool = True
    keeps: Keeps = Keeps.nobody
    restart: Restart = Restart.critical
    done: Done = Done.restart
    grace: float = 0.0
    longest: float = 0.0
    in_a_container: float = 30.0
    stop_order: int = 0
    queue: str = ""
    answers: bool = False
    metrics: str | None = None
    device: str | None = None
    forked: bool = True
    rights: str = ""
    served_rights: str = ""

    def module(self, config: RunConfig) -> str | None:
        """Return the module that does the role's work in such a run; None where the run has no such role."""
        kind = "league" if of_a_league(config) else "plain"
        found = self.work.get(kind)
        if is_served(config):
            found = self.work.get(f"served {kind}", found)
        return found if self.applies(config) else None

    def rights_in(self, config: RunConfig) -> str:
        """Return the name in tasks/rights.py of its rights in such a run."""
        return self.served_rights if is_served(config) and self.served_rights else self.rights or self.name

    def keeps_folder(self, config: RunConfig) -> bool:
        """Return whether the process of this configuration writes into the run's folder."""
        first = self.id is not None and not getattr(config, self.id)
        return self.keeps is Keeps.each or (self.keeps is Keeps.first and first)


OF_A_LEAGUE = "league: not given; this role belongs to a league: league=NAME, one of {leagues}"

LEAGUE = Role(
    "league",
    """run=NAME league=kuhn league_id=1: serves a run's league: decides matches, counts results
and sets what each player learns next. There may be any number of them; the one with
league_id=0, which also needs trial=TRIAL, creates the league and keeps its folder. The
launcher starts them by itself; by hand they need WARREN_BROKER_URL and WARREN_REDIS_URL in the environment.""",
    {"league": "workers.leagues.service"},
    otherwise=OF_A_LEAGUE,
    count="league_workers",
    id="league_id",
    keeps=Keeps.first,
    in_a_container=120.0,  # before it ends it writes a snapshot
    stop_order=1,  # others call it until they end
    answers=True,
)
LEARNER = Role(
    "learner",
    """run=NAME trial=TRIAL: trains a player on the segments that actors send, and publishes
each new version of its weights. The launcher starts it by itself; by hand it needs WARREN_BROKER_URL and
WARREN_REDIS_URL in the environment.""",
    {"plain": "workers.learning.learner", "league": "workers.leagues.learner"},
    count="learners",
    id="learner_id",
    each_player=True,
    scaled=False,
    keeps=Keeps.each,
    done=Done.run,
    longest=180.0,
    in_a_container=120.0,  # before it ends it finishes an update and writes a checkpoint
    queue="learner.{player}",
    answers=True,
    device="device",
)
ACTOR = Role(
    "actor",
    """run=NAME: plays, and sends its trajectories to the run's learner. The launcher
starts actors by itself; start more by hand, on any machine that reaches the run's servers, with
WARREN_BROKER_URL and WARREN_REDIS_URL in the environment.""",
    {
        "plain": "workers.rollout.actor", "league": "workers.leagues.actor",
        "served plain": "workers.rollout.served.role", "served league": "workers.leagues.served",
    },
    lambda config: not has_gateways(config),
    "{game[0]}: {game[1]!r} drives itself; start a gateway instead of this actor",
    count="actors",
    most=10_000,
    id="actor_id",
    queue="actor.{policy}",
    answers=True,
    device="actor_device",
    served_rights="inference",
)  # fmt: skip
GATEWAY = Role(
    "gateway",
    """run=NAME: serves games that drive themselves (env.id=gamecore:FILE.py:CLASS, or league.env),
and sends their trajectories to the run's learners. The launcher starts gateways in the place of actors; start more by
hand, with WARREN_BROKER_URL and WARREN_REDIS_URL in the environment.""",
    {"plain": "workers.gateway.role", "league": "workers.gateway.matches.role"},
    has_gateways,
    "{game[0]}: {game[1]!r} is stepped by actors; a gateway serves games that drive themselves: "
    "{game[0]}=gamecore:FILE.py:CLASS, CLASS being derived from workers.gateway.Actor",
    count="actors",
    most=10_000,
    id="actor_id",
    answers=True,
    metrics="/metrics",
    device="actor_device",
    rights="actor",
)
ENV = Role(
    "env",
    """run=NAME sampling=served: steps two groups of environments in turn, for which the run's actors
decide. The launcher starts env runners by itself; start more by hand, on any machine that reaches the run's
servers, with WARREN_BROKER_URL and WARREN_REDIS_URL in the environment.""",
    {"plain": "workers.env.runner", "league": "workers.env.runner"},
    is_served,
    "sampling: {config.sampling.value} has no env runners: its actors step their own environments",
    count="env_runners",
    most=10_000,
    id="env_runner_id",
)
EVALUATOR = Role(
    "evaluator",
    """run=NAME trial=TRIAL league=kuhn: plays a league's frozen players against each other
until each pair is known well enough. There may be any number of them; the one with evaluator_id=0 scores the league.
Without a league, with evaluation.every=STEPS, the one evaluator plays whole episodes by the newest weights.
The launcher starts it by itself; by hand it needs WARREN_BROKER_URL and WARREN_REDIS_URL in the environment.""",
    {"league": "workers.evaluation.evaluator", "plain": "workers.evaluation.plain"},
    is_evaluated,
    "league, evaluation.every: neither given; an evaluator belongs to a league (league=NAME, one of {leagues}) or to a "
    "run that is evaluated (evaluation.every=STEPS)",
    count="evaluators",
    id="evaluator_id",
    keeps=Keeps.each,
    restart=Restart.optional,
    grace=30.0,  # before it ends it scores and draws pictures, which takes 3 s on a quiet machine
    in_a_container=120.0,  # on a busy machine that takes over 30 s
    stop_order=1,  # after the processes that play and learn
)
FLOWER = Role(
    "flower",
    """run=NAME: the Flower dashboard of a run. Needs WARREN_BROKER_URL and WARREN_REDIS_URL
in the environment; listens on flower_address and flower_port.""",
    {"plain": "workers.flower", "league": "workers.flower"},
    switch="flower_port",
    restart=Restart.optional,
    forked=False,
    rights="watcher",
)

ROLES = (LEAGUE, LEARNER, ACTOR, GATEWAY, ENV, EVALUATOR, FLOWER)  # in the order of their starts


def find(name: str) -> Role | None:
    """Return the role called `name`; None for any other name, such as `train`, which starts the roles."""
    return next((role for role in ROLES if role.name == name), None)


def only_of_leagues(name: str) -> bool:
    """Return whether only leagues have the role called `name`."""
    role = find(name)
    return role is not None and "plain" not in role.work


def of(config: RunConfig) -> tuple[Role, ...]:
    """Return the roles that the launcher of such a run starts."""

    def wanted(role: Role) -> bool:
        return role.switch is None or getattr(config, role.switch) is not None

    return tuple(role for role in ROLES if role.module(config) is not None and wanted(role))


def counts(config: RunConfig | None = None) -> tuple[str, ...]:
    """Return the settings that hold numbers of processes, for the roles that such a run has; None: for all roles."""
    found = ROLES if config is None else of(config)
    return tuple(dict.fromkeys(role.count for role in found if role.count is not None))
