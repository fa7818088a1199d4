"""The comparisons by name: each one's run of Warren and the peer beside it.

Settings are those of conf/experiment, so `python -m workers.train experiment=NAME` is the same run; its `env.goal` is
the threshold and its `total_steps` the limit.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch.nn import ReLU

from benchmarks.learning.peers import Peer

ZOO = "rl-baselines3-zoo, hyperparams/{}.yml"


@dataclass(frozen=True)
class Comparison:
    """`overrides` of workers.train; `peer_overrides` are those for the peer's configuration, if they are others."""

    title: str
    overrides: tuple[str, ...]
    peer: Peer | None = None
    peer_overrides: tuple[str, ...] = ()
    note: str = ""  # needed for understanding the figures
    minutes: float = 15.0  # minutes that a seed may take on a busy machine
    teacher: tuple[str, ...] = ()  # a run that is made first; {teacher} in `overrides` is its folder
    without: tuple[str, ...] = ()  # the run of Warren's that is compared in place of a peer
    sides: tuple[str, str] = ("with the teacher", "without")  # names of the two runs of Warren's
    evaluated: bool = False  # measured by evaluations of every checkpoint, not by training episodes: seeds.evaluated

    @property
    def of_peer(self) -> tuple[str, ...]:
        return self.peer_overrides or self.overrides


def _experiment(name: str) -> tuple[str, ...]:
    return (f"experiment={name}",)


# A run without any settings was this when docs/learning.md's figures were made, but for its limit.
CARTPOLE = ("env=cartpole", "env.num_envs=4", "unroll_length=128", "algorithm.epochs=10", "total_steps=300000")


# Warren's network has a layer of 64 before the core, sb3-contrib's has the LSTM before the layers of `net_arch`.
_LSTM = Peer(
    "RecurrentPPO",
    {
        "policy": "MlpLstmPolicy",
        "policy_kwargs": {
            "lstm_hidden_size": 64,
            "enable_critic_lstm": True,
            "net_arch": {"pi": [64], "vf": [64]},
            "activation_fn": ReLU,
        },
    },
    "equal settings; an LSTM of 64 for the policy and one for the value",
)
_A2C = Peer("A2C", source="equal settings, but RMSprop, its own optimizer")
_NOT_STREAMING = "the peer has no such algorithm: PPO, gathered, at the settings of {}"
# IMPALA with data that is not old is A2C: V-trace's weights are then 1 (Espeholt et al. 2018, section 4.1).
_ONE_STEP = "the peer has no such algorithm: A2C, one step of the gradient a batch too, at the settings of {}"

COMPARISONS: dict[str, Comparison] = {
    "cartpole-ppo": Comparison("CartPole-v1, PPO", CARTPOLE, Peer()),
    "cartpole-ppo-streaming": Comparison(
        "CartPole-v1, PPO, streaming", (*CARTPOLE, "sampling=streaming"), Peer(),
        note="the peer is synchronous",
    ),
    "cartpole-a2c": Comparison("CartPole-v1, A2C", _experiment("cartpole_a2c"), _A2C),
    "cartpole-impala": Comparison(
        "CartPole-v1, IMPALA", _experiment("cartpole_impala"), _A2C, _experiment("cartpole_a2c"),
        note=_ONE_STEP.format("cartpole-a2c"),
    ),
    "cartpole-appo": Comparison(
        "CartPole-v1, APPO", _experiment("cartpole_appo"), Peer(), CARTPOLE,
        note=_NOT_STREAMING.format("cartpole-ppo"),
    ),
    "cartpole-dqn": Comparison("CartPole-v1, DQN", _experiment("cartpole_dqn"), Peer("DQN"), minutes=30),
    "cartpole-qrdqn": Comparison("CartPole-v1, QR-DQN", _experiment("cartpole_qrdqn"), Peer("QRDQN"), minutes=30),
    "cartpole-hidden-r2d2": Comparison(
        "CartPole-v1 without velocities, R2D2", _experiment("cartpole_hidden_r2d2"), _LSTM,
        (*_experiment("cartpole_hidden"), "env.goal_episodes=20"),
        note="the peers have no such algorithm: PPO with an LSTM", minutes=45,
    ),
    "pendulum-ppo": Comparison("Pendulum-v1, PPO", _experiment("pendulum"), Peer(source=ZOO.format("ppo"))),
    "cartpole-hidden-lstm": Comparison(
        "CartPole-v1 without velocities, PPO with an LSTM", _experiment("cartpole_hidden"), _LSTM
    ),
    "cartpole-hidden-gru": Comparison(
        "CartPole-v1 without velocities, PPO with a GRU", (*_experiment("cartpole_hidden"), "network.core.name=gru"),
        _LSTM, _experiment("cartpole_hidden"), note="the peer's memory is an LSTM",
    ),
    "cartpole-hidden-transformer": Comparison(
        "CartPole-v1 without velocities, PPO with a transformer",
        (
            *_experiment("cartpole_hidden"), "network.core.name=transformer",
            "+network.core.heads=4", "+network.core.layers=1", "+network.core.memory=16",
            "total_steps=300000", "algorithm.anneal_steps=300000",
        ),
        _LSTM, _experiment("cartpole_hidden"),
        note="the peer's memory is an LSTM; it has 200,000 steps, as Warren's LSTM",
    ),
    "cartpole-hidden-mlp": Comparison(
        "CartPole-v1 without velocities, PPO without a memory",
        (*_experiment("cartpole_hidden"), "network.core=null", "network.hidden_sizes=[64,64]",
         "network.activation=tanh"), Peer(),
        note="it cannot be solved without a memory: neither of the two should",
    ),
    "distillation": Comparison(
        "CartPole-v1, PPO, a student distilled from a teacher",
        (*CARTPOLE, "algorithm.teacher={teacher}", "algorithm.teacher_anneal_steps=40000"),
        teacher=CARTPOLE, without=CARTPOLE, evaluated=True,
        note="beside it the same run without a teacher; the teacher is such a run, and solved it; steps until 20 "
        "episodes of one version reach the goal",
    ),
    **{
        f"{game.replace('_', '-')}-rnd": Comparison(
            f"{title}, PPO, with a bonus for new observations", _experiment(f"{game}_rnd"),
            without=(*_experiment(f"{game}_rnd"), "algorithm.rnd_coefficient=0"), sides=("with the bonus", "without"),
            note="beside it the same run without the bonus", minutes=30,
        )
        for game, title in (("mountaincar", "MountainCar-v0"), ("deep_sea", "Deep Sea of 20 rows"))
    },
    "pendulum-sac": Comparison("Pendulum-v1, SAC", _experiment("pendulum_sac"), Peer("SAC"), minutes=30),
    "pendulum-td3": Comparison("Pendulum-v1, TD3", _experiment("pendulum_td3"), Peer("TD3"), minutes=30),
    "pendulum-ddpg": Comparison("Pendulum-v1, DDPG", _experiment("pendulum_ddpg"), Peer("DDPG"), minutes=30),
    "lunarlander-ppo": Comparison(
        "LunarLander-v3, PPO", _experiment("lunarlander"), Peer(source=ZOO.format("ppo")), minutes=60
    ),
    "lunarlander-a2c": Comparison(
        "LunarLander-v3, A2C", _experiment("lunarlander_a2c"), Peer("A2C", source=ZOO.format("a2c")), minutes=60,
    ),
    "lunarlander-impala": Comparison(
        "LunarLander-v3, IMPALA", _experiment("lunarlander_impala"), Peer("A2C", source=ZOO.format("a2c")),
        _experiment("lunarlander_a2c"), note=_ONE_STEP.format("lunarlander-a2c"), minutes=60,
    ),
    "lunarlander-appo": Comparison(
        "LunarLander-v3, APPO", _experiment("lunarlander_appo"), Peer(), _experiment("lunarlander"),
        note=_NOT_STREAMING.format("lunarlander-ppo"), minutes=60,
    ),
    "lunarlander-dqn": Comparison("LunarLander-v3, DQN", _experiment("lunarlander_dqn"), Peer("DQN"), minutes=60),
    "lunarlander-qrdqn": Comparison(
        "LunarLander-v3, QR-DQN", _experiment("lunarlander_qrdqn"), Peer("QRDQN"), minutes=60
    ),
    "minatar-breakout": Comparison(
        "MinAtar's Breakout, DQN", (*_experiment("minatar_breakout"), "total_steps=500000"), minutes=120,
        note="a tenth of the frames of Young & Tian 2019",
    ),
    **{
        f"{robot.lower()}-{name}": Comparison(
            f"{robot}-v5, {name.upper()}", (*_experiment(f"{robot.lower()}_{name}"), "total_steps=50000"),
            Peer(name.upper()), minutes=60, note="as far as 50,000 steps take it",
        )
        for robot in ("HalfCheetah", "Hopper")
        for name in ("sac", "td3", "ddpg")
    },
    "bipedalwalker-ppo": Comparison(
        "BipedalWalker-v3, PPO", _experiment("bipedalwalker"), None, minutes=45,
        note="as far as 30 minutes take it",
    ),
}  # fmt: skip
