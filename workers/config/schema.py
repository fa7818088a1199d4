"""The schema of every setting, and the conversion of Hydra's composition into it.

The launcher composes and converts once; other processes read the run folder's YAML. No hot loop sees a DictConfig.
"""

from __future__ import annotations

import re
from dataclasses import MISSING, dataclass, field, fields
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from warren.errors import ConfigurationError
from workers.config import groups, written_by
from workers.config.imitation import ImitationConfig
from workers.config.replay_settings import ReplayConfig
from workers.config.roles import ROLES
from workers.config.saved_settings import naming, plain, read_tree
from workers.config.watching import EvaluationConfig, MetricsConfig

if TYPE_CHECKING:
    import envs

CONF = Path(__file__).resolve().parents[2] / "conf"


def fixed(default: Any = MISSING, **more: Any) -> Any:
    """Return a field that a resumed run keeps; of a table with fields of its own, only the choice of a file is kept."""
    return field(default=default, metadata={"fixed_on_resume": True}, **more)


class Sampling(Enum):
    """The way by which experience reaches the learner."""

    gathered = "gathered"  # a chord of rollouts, then one update, then the next round: on-policy, synchronous
    streaming = "streaming"  # actors never wait for the learner; segments arrive as asynchronous tasks
    served = "served"  # like streaming, but env runners step the environments; each actor decides for many at once


@dataclass
class BrokerConfig:
    """The addresses of RabbitMQ and Redis. URLs hold secrets: prefer WARREN_BROKER_URL and WARREN_REDIS_URL."""

    mode: str = "auto"  # the servers to use (docs/training.md); broker=MODE is the same
    url: str | None = None  # URL of the broker; better in WARREN_BROKER_URL, where no other user can read its password
    redis_url: str | None = None  # URL of Redis; better in WARREN_REDIS_URL


@dataclass
class EnvConfig:
    """The environment that is played. `id`: a gymnasium id, `gym:ID`, `module:Class` or `file.py:Class`."""

    id: str = fixed("CartPole-v1")  # a gymnasium id, gym:ID, module:Class or file.py:Class (docs/environments.md)
    num_envs: int = 4  # copies stepped at once by each actor; sampling=served: by each env runner, in two groups
    kwargs: dict[str, Any] = fixed(default_factory=dict)  # given to the environment's constructor
    # sync: step environments one after another; native: by C, gymnasium's classic control; library: as arrays, by
    # gymnasium's own version (CartPole); auto: native, else library, else sync, whichever there is first.
    vectorization: str = "auto"
    workers: int = 0  # processes that share an actor's environments; 0: the actor steps them itself
    leave_out: list[str] = fixed(default_factory=list)  # keys of a Dict observation to ignore, as in [mission]
    # The settings from here to reward_clip apply in this order. atari: 4 skipped frames, up to 30 no-ops, grey,
    # 84 x 84, an episode per life, 4 stacked frames, rewards clipped to 1; settings that you give win over these.
    preprocessing: str | None = fixed(None)
    # Times that each action is repeated; an image observation is the maximum of the last two
    frame_skip: int | None = fixed(None)
    noop_start: int | None = fixed(None)  # begin episodes with 1 to this many steps of action 0, if that does nothing
    grey: bool | None = fixed(None)  # images in grey
    resize: int | None = fixed(None)  # images to this many pixels a side
    # A lost life ends the episode; the next one continues the same game
    episodic_life: bool | None = fixed(None)
    frame_stack: int | None = fixed(None)  # an observation is this many of the last ones, [frame_stack, ...]
    # Name -> coefficient, if the environment's reward is several numbers
    reward_channels: dict[str, float] = fixed(default_factory=dict)
    # Each channel has its own value head and advantages, weighted by its coefficient; false: rewards are added up.
    channel_values: bool = fixed(False)
    reward_scale: float = fixed(1.0)  # a factor
    reward_clip: float | None = fixed(None)  # to -reward_clip .. reward_clip
    info_metrics: list[str] = fixed(default_factory=list)  # numbers in episodes' last infos, as in [is_success]
    action_masks: bool = fixed(True)  # actions that the environment's masks forbid are not drawn; false: ignore masks
    # PettingZoo's environments: all agents share one policy; false: a game of two agents is for a league
    together: bool = fixed(False)
    agent_id: bool = fixed(False)  # observations also say which agent sees them, under the key `agent`
    # Observations also hold the game's state, under the key `state`; for the value alone: network.privileged=[state]
    state: bool = fixed(False)
    team_reward: str | None = fixed(None)  # each agent's reward is the mean or the sum of all agents'; null: its own
    # The run ends at this mean return; null: never. Default: the environment's own reward threshold, if it has one.
    goal: float | None = None
    goal_episodes: int = 100  # number of last training episodes in a mean return

    def settings(self) -> envs.EnvSettings:
        """Return the settings of the environment as the package of environments takes them."""
        import envs  # imports gymnasium, which not every command line needs

        given = {each.name: getattr(self, each.name) for each in fields(envs.EnvSettings)}
        return envs.EnvSettings(**given | {name: tuple(given[name]) for name in ("leave_out", "info_metrics")})


@dataclass
class GatewayConfig:
    """Settings of gateways, which play in place of actors where env.id is gamecore:FILE.py:CLASS (docs/gamecores.md).

    The token that games have to show, if any, is WARREN_GATEWAY_TOKEN in the environment.
    """

    address: str = "127.0.0.1"  # address on which gateways listen; 0.0.0.0: games on other machines can connect
    port: int = 8000  # HTTP port that all gateways of a host share; 0: each takes a free one
    tcp_port: int | None = None  # port of the TCP protocol; null: it is not served
    public: str | None = None  # host name under which games reach this machine; default: `address`
    own_port: int = 0  # a gateway's own port, for redirects, is this plus actor_id; 0: any free one
    max_sessions: int = 10_000  # open at once in each gateway
    max_agents: int = 256  # per session
    max_connections: int = 10_000  # to each gateway at once; fewer if the system allows fewer open files
    max_body: int = 1 << 20  # bytes of a request's body
    max_rate: float | None = None  # requests/s from one address or proxy, HTTP and TCP together; null: no limit
    idle: float = 60.0  # s without a request after which a session is closed and its trajectory cut off
    receive: float = 10.0  # s within which a request must have arrived in full
    answer: float = 60.0  # s that an actor's method may take
    drain: float = 5.0  # s that open sessions get to end when a gateway is told to stop; it opens no new ones


@dataclass
class Config:
    """The settings of one run. Defaults here are for any environment; conf/ sets the rest."""

    # The run and its folder: FOLDER/PROJECT/TRIAL.
    project: str = fixed("cartpole")  # default: by the environment's name (conf/warren.yaml)
    trial: str | None = fixed(None)  # default: date, time and a random suffix
    folder: str = "runs"  # place of all runs' folders
    resume: str | None = None  # a run folder (or PROJECT/TRIAL) to continue
    run: str | None = None  # name of the run on the servers; roles started by hand join the run they name
    seed: int = 1  # seed of all random draws: environments, weights, actions

    # The work and its division among processes.
    sampling: Sampling = Sampling.gathered  # gathered, streaming or served (docs/training.md)
    actors: int = 2  # processes that play
    env_runners: int = 2  # sampling=served: processes that step environments; actors choose the actions
    served_memory: str = "actor"  # place of a policy's memory between steps: actor; travelling: within the calls
    unroll_length: int = 128  # steps of each environment in one segment
    batch_segments: int | None = None  # segments per update; default: one per actor (served: per env runner)
    max_staleness: int = 8  # versions by which a segment's weights may be old; older ones are dropped and counted
    publish_every: float = 0.0  # least s between weights sent to streaming actors; 0: after every update
    total_steps: int = 1_000_000  # environment steps, all actors together
    seconds: float | None = None  # s from the first learned step to the run's end; null: no limit
    # Learners of a player: they hold the same weights, average their gradients and get equal shares of every update.
    # minibatch_size and batch_segments count the data of all of them. One player's: league.players.NAME.learners.
    learners: int = 1
    allreduce: str = "auto"  # horovod (built by `make horovod`), torch (gloo), or auto: by size, if horovod is built
    compression: str = "none"  # form of the gradients sent between learners: none, fp16, bf16 (not by Horovod), topk
    top_k: float = 0.01  # the share of numbers that compression=topk sends; the rest is sent later
    on_rank_loss: str = "restart"  # restart: start a dead learner again; continue: the others train on without it
    learner_threads: int = 1  # torch threads of each learner
    device: str = "cpu"  # learners' device: auto (a GPU where there is one), cpu, cuda, cuda:N, mps
    precision: str = "float32"  # precision of a learner's network; bfloat16: with losses and weights in float32
    perceptrons: str = "auto"  # native: C code for layers up to 512 wide; torch; auto: native if there is a compiler
    compile: bool = False  # compile a learner's network by torch.compile; needs a C++ compiler
    actor_device: str = "cpu"  # device of actors' policies, in a run without a league and in a served league

    # Make runs with the same seed, total_steps and actors x env.num_envs end with the same weights, bit for bit; for
    # finding faults, since actors are slow.
    deterministic: bool = False

    # Faults.
    restarts: int = 5  # restarts of a process that keeps dying, before the run ends
    fork: bool = True  # fork processes from one that has imported torch and the rest: quicker starts; Linux only
    grace: float = 8.0  # s to finish when told to stop; learners have at least two updates' time
    round_timeout: float = 60.0  # s until a lost gathered round is dispatched again
    checkpoint_every: float = 30.0  # s between checkpoints
    checkpoints_kept: int = 3  # older ones are deleted

    # Output for people.
    flower_port: int | None = None  # port of Flower; null: Flower is not started
    flower_address: str = "127.0.0.1"  # address on which Flower listens
    # Share of service calls that send task events, for Flower; more than 0 turns task_events on. Default if task
    # events are on: WARREN_EVENT_RATE, or 1 in 100.
    event_rate: float | None = None
    task_events: bool = False  # send task events, for Flower; flower_port turns them on
    log_level: str = "INFO"  # level of all processes' logs: DEBUG, INFO, WARNING, ERROR
    log_format: str = "text"  # format of all processes' logs: text, or json (one object per line)

    # Trackers of metrics: tensorboard, csv, wandb, mlflow, your own by file.py:NAME
    trackers: list[str] = field(default_factory=lambda: ["tensorboard"])

    # Your code around each call of the run's services (served sampling, leagues): file.py:NAME or module:NAME each.
    middleware: list[str] = field(default_factory=list)

    # Other hosts: name -> what each starts, as in {master: {actors: 1}, box-2: {actors: 2}}; the first leads.
    hosts: dict[str, Any] = field(default_factory=dict)
    host: str | None = None  # name of this machine in `hosts`; all but the first need run= and the servers' URLs

    league: dict[str, Any] | None = fixed(None)  # a league (workers/config/league.py); null: train one agent by itself
    league_workers: int = 1  # processes that serve the league
    evaluators: int = 1  # processes that play frozen players against each other
    restore: str | None = fixed(None)  # folder of a league's snapshot that the league begins from

    # Settings of a single process, started by hand or by the launcher.
    actor_id: int | None = None  # number of an actor or a gateway; null: the next that is free
    env_runner_id: int | None = None  # number of an env runner; null: the next that is free
    league_id: int | None = None  # number of a league worker; 0 keeps the league's folder; null: the next that is free
    evaluator_id: int | None = None  # number of an evaluator; 0 scores the league; null: the next that is free
    learner_id: int = 0  # number of a learner, among those of a player
    player: str = "main"  # the player that a learner trains

    broker: BrokerConfig = field(default_factory=BrokerConfig)
    env: EnvConfig = fixed(default_factory=EnvConfig)
    network: dict[str, Any] = fixed(default_factory=dict)
    algorithm: dict[str, Any] = fixed(default_factory=dict)
    gateway: GatewayConfig = field(default_factory=GatewayConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    metrics: MetricsConfig = field(default_factory=MetricsConfig)
    replay: ReplayConfig = field(default_factory=ReplayConfig)
    imitation: ImitationConfig = field(default_factory=ImitationConfig)

    @property
    def segments_per_update(self) -> int:
        """Return the number of segments in one update's batch."""
        return self.batch_segments or getattr(self, self.players)

    def progress(self, steps: float, seconds: float) -> float:
        """Return the part of the run, in [0, 1], that is over after `steps` of all actors and `seconds` of training.

        It is the part of total_steps or of the setting `seconds`, the larger one; if deterministic, of total_steps.
        """
        by_time = 0.0 if self.seconds is None or self.deterministic else seconds / self.seconds
        return min(1.0, max(steps / self.total_steps, by_time))

    @property
    def players(self) -> str:
        """Return the setting that holds the number of processes that step environments, one segment each per update."""
        return "env_runners" if self.sampling is Sampling.served else "actors"

    @property
    def segments_per_share(self) -> int:
        """Return the number of an update's segments that each learner of `player` gets."""
        return max(1, self.segments_per_update // self.learners_of(self.player))

    def learners_of(self, player: str) -> int:
        """Return the number of learners that share the updates of `player`."""
        return self.own_learners.get(player, self.learners)

    @property
    def own_learners(self) -> dict[str, int]:
        """Return player -> number of learners, for the league's players that set it themselves."""
        players = (self.league or {}).get("players")
        given = players.items() if isinstance(players, dict) else ()
        counts = {name: one.get("learners") for name, one in given if isinstance(one, dict)}
        return {name: count for name, count in counts.items() if isinstance(count, int) and count > 0}

    @property
    def most_learners(self) -> int:
        """Return the largest number of learners that a player has."""
        return max(self.learners, *self.own_learners.values(), 1)

    @property
    def steps_per_update(self) -> int:
        """Return the number of environment steps in one update's batch."""
        return self.segments_per_update * self.unroll_length * self.env.num_envs


def project_of(env_id: str) -> str:
    """Return the name of a run folder's parent for an environment's id: "cartpole" for "gym:CartPole-v1"."""
    name = re.split(r"[?(]", env_id)[0].rpartition(":")[2].rpartition("/")[2]
    return re.sub(r"[^A-Za-z0-9_-]+", "-", re.sub(r"[-_]v\d+$", "", name)).strip("-_").lower() or "run"


def _project(*, _root_: DictConfig) -> str:
    league = _root_.get("league") or {}
    return project_of(str(league.get("env") or _root_.env.id))


def _goal(*, _root_: DictConfig) -> float | None:
    import envs  # imports gymnasium, which not every command line needs

    return None if _root_.get("league") else envs.reward_threshold(str(_root_.env.id))


SCHEMA = OmegaConf.structured(Config)
ConfigStore.instance().store(name="base_config", node=SCHEMA)
groups.register()
for _role in ROLES:  # each is a primary configuration, as conf/train.yaml is
    _help = {"help": {"header": f"python -m workers.{_role.name} {_role.does}"}}
    ConfigStore.instance().store(name=_role.name, node={"defaults": ["warren", "_self_"], "hydra": _help})
OmegaConf.register_new_resolver("project_of_environment", _project, replace=True)
OmegaConf.register_new_resolver("goal_of_environment", _goal, replace=True)


def from_hydra(composed: DictConfig, source: str = "the configuration") -> Config:
    """Convert a composed configuration into a Config. Raises ConfigurationError for a value of a wrong type."""
    settings: Any = OmegaConf.to_container(composed)  # else an algorithm's table would become a dataclass
    release = written_by.taken_from(settings, source)
    try:
        config = OmegaConf.to_object(OmegaConf.merge(SCHEMA, OmegaConf.create(settings)))
    except OmegaConfBaseException as error:
        key = getattr(error, "full_key", None) or "configuration"
        raise ConfigurationError(f"{key}: {str(error).splitlines()[0]}{release}") from None
    assert isinstance(config, Config)
    return config


def to_tree(config: Config) -> DictConfig:
    """Return a configuration as names and values."""
    return OmegaConf.create(plain(config))


def to_yaml(config: Config) -> str:
    """Return the resolved configuration without secrets: the broker's URLs stay out of every file."""
    settings = plain(config)
    settings["broker"] |= {"url": None, "redis_url": None}
    return OmegaConf.to_yaml(settings | written_by.stamp())


def from_yaml(path: Path) -> Config:
    """Read a configuration from a YAML file, as run folders hold it. Raises ConfigurationError, as `read_tree` does."""
    return naming(path, lambda: from_hydra(read_tree(path), str(path)))
