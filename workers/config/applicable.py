"""The table of settings and the runs that read them: a setting that the chosen run does not read is refused.

Settings named on the command line are checked. Settings that a file gives are checked only by rules with `in_files`,
because files hold values for every kind of run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from hydra.core.hydra_config import HydraConfig

from workers.config.imitation import IMITATE, NOT_READ
from workers.config.roles import ROLES, Role, has_gateways, is_served, of_a_league
from workers.config.schema import Config, Sampling


@dataclass(frozen=True)
class Rule:
    """Settings, as patterns, that are read only by runs for which `reads` is True; all other runs refuse them.

    `where`: the run that does not read them, as the error says it. `remedy`: what to do other than leave them out. Both
    may name {sampling} and {actors}. `in_files`: also refuse them in a file, as they would promise what does not hold.
    """

    settings: tuple[str, ...]
    reads: Callable[[Config, str], bool]  # takes the configuration and the role's name, or "train"
    where: str
    remedy: str = ""
    in_files: bool = False

    def problem(self, config: Config, name: str, value: str) -> str:
        """Return the sentence for a setting that the run does not read."""
        facts = {"sampling": config.sampling.value, "actors": config.actors}
        where, remedy = self.where.format(**facts), self.remedy.format(**facts)
        return f"{name}: {value} is not read {where}; {f'{remedy}, or ' if remedy else ''}leave it out"


def _alone(config: Config, role: str) -> bool:
    return config.league is None


def _league(config: Config, role: str) -> bool:
    return of_a_league(config)


def _not_gathered(config: Config, role: str) -> bool:
    return config.sampling is not Sampling.gathered


def _takes_segments(config: Config, role: str) -> bool:
    return _not_gathered(config, role) or config.batch_segments == config.actors


def _has(table: str, setting: str) -> Callable[[Config, str], bool]:
    """Return a test that `setting` is on in the run's `table`, algorithm or network; a user's own table passes it."""

    def reads(config: Config, role: str) -> bool:
        settings = getattr(config, table) if config.league is None else config.league.get(table) or {}
        players = ((config.league or {}).get("players") or {}).values()
        own = [one.get(table) or {} for one in players if isinstance(one, dict)]
        on = any(one.get(setting) not in (None, False) for one in (settings, *own))
        return on or ":" in str(settings.get("name", ""))

    return reads


def _records(config: Config, role: str) -> bool:
    league = config.league or {}
    return any(league.get(name) for name in ("replay_every", "replay_upsets", "replay_evaluations"))


def _is_one_of(own: Sequence[Role]) -> Callable[[Config, str], bool]:
    return lambda config, role: role in {one.name for one in own}


def _of_processes() -> Iterator[Rule]:
    """Yield a rule for each setting that numbers one process of a role."""
    owners: dict[str, list[Role]] = {}
    for role in ROLES:
        if role.id is not None:
            owners.setdefault(role.id, []).append(role)
    for name, own in owners.items():
        commands = " and ".join(f"workers.{one.name}" for one in own)
        yield Rule((name,), _is_one_of(own), f"here, but by {commands}")


LEAGUE = "in a league"
RULES = (
    Rule(NOT_READ, lambda config, role: role != IMITATE, "by workers.imitate, one process without servers"),
    Rule(("imitation", "imitation.*"), lambda config, role: role == IMITATE, "by a run that learns from its own games",
         "use python -m workers.imitate"),
    Rule(("imitation.player",), lambda config, role: of_a_league(config), "without a league", "add league=NAME"),
    Rule(("restore", "league_workers", "evaluators"), _league, "without a league", "add league=NAME"),
    Rule(("league.*",), _league, "without a league", "add league=NAME"),
    Rule(("league.seed",), lambda config, role: False, "by any run, which has one seed", "give seed=N"),
    Rule(("league.updating",), lambda config, role: False, "by a run, whose players learn in processes of their own",
         "give it to a LocalLeague (docs/league.md)"),
    Rule(("league.replay_bytes",), _records, "where no match is recorded", "add league.replay_every=N"),
    Rule(("env_runners", "served_memory"), lambda config, role: is_served(config),
         "with sampling={sampling}, which has no env runners", "add sampling=served"),
    Rule(("middleware",), lambda config, role: of_a_league(config) or is_served(config),
         "with sampling={sampling} and no league, where no service is called", "add sampling=served or league=NAME"),
    Rule(("max_staleness",), lambda config, role: of_a_league(config) or _not_gathered(config, role),
         "with sampling=gathered, whose data are of the newest weights", "add sampling=streaming"),
    Rule(("publish_every",), _not_gathered,
         "with sampling=gathered, whose next round waits for the last update's weights", "add sampling=streaming",
         in_files=True),
    Rule(("batch_segments",), _takes_segments,
         "with sampling=gathered, whose rounds take one segment of each of the {actors} actors",
         "add sampling=streaming", in_files=True),
    Rule(("deterministic",), _alone, "in a league, whose next match depends on which actor asks first", in_files=True),
    Rule(("deterministic",), lambda config, role: not _not_gathered(config, role),
         "with sampling={sampling}, where an update has the segments that arrive first", "use sampling=gathered",
         in_files=True),
    Rule(("actor_device",), lambda config, role: _alone(config, role) or is_served(config) or has_gateways(config),
         "in a league with sampling={sampling}, whose actors use the CPU", "add sampling=served"),
    Rule(("league.games",), lambda config, role: not has_gateways(config),
         "by gateways, to which as many games come as are started"),
    Rule(("compression", "top_k", "on_rank_loss", "allreduce"), lambda config, role: config.most_learners > 1,
         "by one learner alone", "add learners=2"),
    Rule(("top_k",), lambda config, role: config.compression == "topk", "without compression=topk",
         "add compression=topk"),
    Rule(("flower_address",), lambda config, role: config.flower_port is not None, "without flower_port",
         "add flower_port=5555"),
    Rule(("gateway", "gateway.*"), lambda config, role: has_gateways(config), "without gateways",
         "choose a game that drives itself by env.id=gamecore:FILE:CLASS or league.env"),
    Rule(("evaluation", "evaluation.*"), _alone, LEAGUE, "give league.evaluation_every"),
    Rule(("evaluation.episodes", "evaluation.keep_best"), lambda config, role: config.evaluation.every is not None,
         "without evaluations", "add evaluation.every=STEPS"),
    Rule(("replay", "replay.*"), _alone, "in a league, whose players have no replay"),
    Rule(("env.id",), _alone, LEAGUE, "give league.env"),
    Rule(("env.kwargs", "env.kwargs.*"), _alone, LEAGUE, "give league.env_kwargs"),
    Rule(("env.num_envs",), _alone, LEAGUE, "give league.games"),
    Rule(("env.goal",), _alone, LEAGUE, "give league.goal, an exploitability"),
    Rule(("env.reward_scale",), _alone, LEAGUE, "give league.reward_scale"),
    Rule(("env", "env.*"), _alone, LEAGUE, "give league.env, with league.env_kwargs"),
    Rule(("env.channel_values",), lambda config, role: bool(config.env.reward_channels), "without reward channels",
         "add +env.reward_channels={{NAME: COEFFICIENT}}"),
    Rule(("unroll_length",), _alone, LEAGUE, "give league.unroll_length"),
    Rule(("algorithm.anneal_to",), _has("algorithm", "anneal_steps"), "without algorithm.anneal_steps",
         "add algorithm.anneal_steps=STEPS"),
    Rule(("algorithm.teacher_*",), _has("algorithm", "teacher"), "without a teacher", "add algorithm.teacher=FOLDER"),
    Rule(("network.observation_clip",), _has("network", "normalize_observations"), "without normalised observations",
         "add network.normalize_observations=true"),
    Rule(("player",), lambda config, role: role != "train", "by a launcher, which starts learners of all players"),
    *_of_processes(),
)  # fmt: skip


def problems(config: Config, role: str = "train", given: Iterable[str] | None = None) -> Iterator[str]:
    """Yield a sentence for each setting that an override or a file gives and that the run does not read.

    `given`: the overrides; None: those of this command line.
    """
    if given is None:
        given = HydraConfig.get().overrides.task if HydraConfig.initialized() else ()
    named = dict(override.lstrip("+~").partition("=")[::2] for override in given)
    for rule in (rule for rule in RULES if rule.in_files):
        for name in rule.settings:
            if (value := getattr(config, name)) != getattr(Config, name):
                named.setdefault(name, str(value).lower() if isinstance(value, bool) else str(value))
    for name, value in named.items():
        matching = (rule for rule in RULES if any(fnmatchcase(name, pattern) for pattern in rule.settings))
        if unread := next((rule for rule in matching if not rule.reads(config, role)), None):
            yield unread.problem(config, name, value)
