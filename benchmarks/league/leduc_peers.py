"""OpenSpiel's learners on Leduc poker: `python -m benchmarks.league.leduc_peers nfsp --seconds 300 --out nfsp.jsonl`.

Each is the published example with its own constants, from the examples folder of the open_spiel package:

| peer       | example                | what learns                                                            |
|------------|------------------------|------------------------------------------------------------------------|
| `nfsp`     | nfsp_leduc_pytorch.py  | neural fictitious self-play, open_spiel.python.pytorch.nfsp            |
| `psro`     | psro_v2_example.py     | PSRO with exact best responses (the example's default oracle, BR)      |
| `psro_dqn` | psro_v2_example.py     | PSRO with DQN best responses (--oracle_type=DQN), on PyTorch's DQN     |

They need the extras games and peers (pip install -e '.[games,peers]') and stop at the given time. Every evaluation
is a JSON line {peer, seed, seconds, exploitability, ...}; the time that it takes does not count against the peer.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from envs import exploitability

GAME = "leduc_poker"
NFSP_CHUNK = 200  # episodes between readings of the clock
# Time by which a peer is stopped -> its timer, the timer's signal, and its clock.
CLOCKS: dict[str, tuple[int, int, Callable[[], float]]] = {
    "wall": (signal.ITIMER_REAL, signal.SIGALRM, time.monotonic),
    "processor": (signal.ITIMER_PROF, signal.SIGPROF, time.process_time),
}


class TimeIsUp(BaseException):
    """Raised by the timer, wherever the peer's program is."""


class Recorder:
    """Writes the curve; its clock is stopped while it evaluates."""

    def __init__(self, peer: str, seed: int, seconds: float, out: TextIO, clock: str = "wall") -> None:
        self.form = exploitability.load(f"openspiel:{GAME}")
        self.labels = self.form.labels
        self._peer, self._seed, self._out = peer, seed, out
        self._left, self._limit = seconds, seconds
        self._clock = clock
        self._timer, self._signal, self._now = CLOCKS[clock]
        self._resumed = 0.0

    def start(self) -> None:
        """Start the clock, once everything is imported and built."""
        signal.signal(self._signal, self._time_is_up)
        self._resume()

    @property
    def seconds(self) -> float:
        """The time of training so far."""
        return self._limit - self._left + self._now() - self._resumed

    def record(self, policy: Callable[[], np.ndarray], **more: Any) -> None:
        """Evaluate policy(), float64 [I, A] in the order of `labels`."""
        signal.setitimer(self._timer, 0)
        self._left -= self._now() - self._resumed
        value = exploitability.of(self.form, policy())
        seconds = round(self._limit - self._left, 3)
        line = {"peer": self._peer, "seed": self._seed, "clock": self._clock, "seconds": seconds}
        print(json.dumps({**line, "exploitability": round(value, 6), **more}), file=self._out, flush=True)
        self._resume()

    def _resume(self) -> None:
        self._resumed = self._now()
        signal.setitimer(self._timer, max(self._left, 1e-3))

    def _time_is_up(self, *_: Any) -> None:
        raise TimeIsUp


def nfsp(recorder: Recorder, seed: int, every: float) -> None:
    """Run neural fictitious self-play (Heinrich & Silver 2016) as nfsp_leduc_pytorch.py; record its average policy."""
    import torch
    from open_spiel.python import rl_environment
    from open_spiel.python.pytorch import nfsp as algorithm

    torch.set_num_threads(1)  # faster for networks this small, in the peer's favour
    env = rl_environment.Environment(GAME, players=2)
    env.seed(seed)
    agents = [
        algorithm.NFSP(
            player,
            env.observation_spec()["info_state"][0],
            env.action_spec()["num_actions"],
            [128],
            seed=seed,
            replay_buffer_capacity=int(2e5),
            reservoir_buffer_capacity=int(2e6),
            min_buffer_size_to_learn=1000,
            anticipatory_param=0.1,
            batch_size=128,
            learn_every=64,
            rl_learning_rate=0.01,
            sl_learning_rate=0.01,
            optimizer_str="sgd",
            loss_str="mse",
            update_target_network_every=19200,
            discount_factor=1.0,
            epsilon_decay_duration=int(20e6),
            epsilon_start=0.06,
            epsilon_end=0.001,
        )
        for player in range(2)
    ]

    def average_policy() -> np.ndarray:
        table = np.zeros(recorder.form.action_mask.shape)
        for row, player in enumerate(recorder.form.owner):
            observations = {
                "info_state": [recorder.form.observation[row]] * 2,
                "legal_actions": [np.flatnonzero(recorder.form.action_mask[row])] * 2,
                "current_player": player,
            }
            step = rl_environment.TimeStep(observations=observations, rewards=None, discounts=None, step_type=None)
            with agents[player].temp_mode_as(algorithm.MODE.AVERAGE_POLICY):
                table[row] = agents[player].step(step, is_evaluation=True).probs
        return table

    _play(recorder, env, agents, average_policy, every)


def _play(recorder: Recorder, env: Any, agents: list[Any], average_policy: Any, every: float) -> None:
    recorder.start()
    episodes, due = 0, 0.0
    while True:
        if recorder.seconds >= due:
            recorder.record(average_policy, episodes=episodes)
            due = recorder.seconds + every
        for _ in range(NFSP_CHUNK):
            step = env.reset()
            while not step.last():
                step = env.step([agents[step.observations["current_player"]].step(step).action])
            for agent in agents:
                agent.step(step)
        episodes += NFSP_CHUNK


def psro(
    recorder: Recorder, seed: int, every: float, oracle_type: str = "BR", meta_strategy: str = "alpharank"
) -> None:
    """Run PSRO (Lanctot et al. 2017, Muller et al. 2020) as psro_v2_example.py; record its meta-strategy's mixture."""
    import pyspiel
    from open_spiel.python import policy as openspiel_policy
    from open_spiel.python import rl_environment
    from open_spiel.python.algorithms.psro_v2 import best_response_oracle, psro_v2

    env = rl_environment.Environment(pyspiel.load_game_as_turn_based(GAME, {"players": 2}))
    env.seed(seed)
    if oracle_type == "BR":
        start = openspiel_policy.TabularPolicy(env.game)
        oracle = best_response_oracle.BestResponseOracle(game=env.game, policy=start)
        agents = [start.__copy__() for _ in range(2)]
    else:
        oracle, agents = _dqn_oracle(env)
    solver = psro_v2.PSROSolver(
        env.game,
        oracle,
        initial_policies=agents,
        training_strategy_selector="probabilistic",
        rectifier="",
        sims_per_entry=1000,
        number_policies_selected=1,
        meta_strategy_method=meta_strategy,
        prd_iterations=50000,
        prd_gamma=1e-10,
        sample_from_marginals=True,
        symmetric_game=False,
    )
    states = _a_state_of_each(env.game)
    tables: dict[int, np.ndarray] = {}  # by id of a policy, which the solver keeps and does not change

    def table(policy: Any, player: int) -> np.ndarray:
        if id(policy) not in tables:
            found = exploitability.uniform(recorder.form)
            for row in np.flatnonzero(recorder.form.owner == player):
                found[row] = 0
                for action, probability in policy.action_probabilities(states[recorder.labels[row]]).items():
                    found[row, action] = probability
            tables[id(policy)] = found
        return tables[id(policy)]

    def mixture() -> np.ndarray:
        policies, shares = solver.get_policies(), solver.get_meta_strategies()
        plans = []
        for player in range(2):
            of_player = [recorder.form.plans(table(policy, player))[player] for policy in policies[player]]
            plans.append(np.average(of_player, axis=0, weights=shares[player]))
        return recorder.form.policy(*plans)

    recorder.start()
    iterations, due = 0, 0.0
    while True:
        if recorder.seconds >= due:
            recorder.record(mixture, iterations=iterations, meta_strategy=meta_strategy)
            due = recorder.seconds + every
        solver.iteration()
        iterations += 1


def psro_dqn(recorder: Recorder, seed: int, every: float, meta_strategy: str = "alpharank") -> None:
    """Run PSRO with best responses learned by DQN."""
    psro(recorder, seed, every, "DQN", meta_strategy)


def _dqn_oracle(env: Any) -> tuple[Any, list[Any]]:
    """Return (oracle, first policies) of psro_v2_example.py's --oracle_type=DQN."""
    import torch
    from open_spiel.python.algorithms.psro_v2 import rl_oracle
    from open_spiel.python.pytorch import dqn, policy_gradient

    torch.set_num_threads(1)  # faster for networks this small, in the peer's favour
    # rl_policy imports the JAX agents by name; OpenSpiel's PyTorch ones have the same interface.
    sys.modules["open_spiel.python.jax.dqn"] = dqn
    sys.modules["open_spiel.python.jax.policy_gradient"] = policy_gradient
    from open_spiel.python.algorithms.psro_v2 import rl_policy

    kwargs = {
        "state_representation_size": env.observation_spec()["info_state"][0],
        "num_actions": env.action_spec()["num_actions"],
        "hidden_layers_sizes": [256] * 4,
        "batch_size": 32,
        "learning_rate": 1e-2,
        "update_target_network_every": 1000,
        "learn_every": 10,
        "optimizer_str": "adam",
    }
    oracle = rl_oracle.RLOracle(
        env, rl_policy.DQNPolicy, kwargs, number_training_episodes=int(1e4), self_play_proportion=0.0, sigma=0.0
    )
    agents = [rl_policy.DQNPolicy(env, player, **kwargs) for player in range(2)]
    for agent in agents:
        agent.freeze()
    return oracle, agents


def _a_state_of_each(game: Any) -> dict[str, Any]:
    """Return information state -> one state in it, by OpenSpiel's string."""
    states: dict[str, Any] = {}
    waiting = [game.new_initial_state()]
    while waiting:
        state = waiting.pop()
        if not (state.is_terminal() or state.is_chance_node()):
            states.setdefault(state.information_state_string(), state)
        waiting += [state.child(action) for action in state.legal_actions()]
    return states


PEERS: dict[str, Callable[..., None]] = {"nfsp": nfsp, "psro": psro, "psro_dqn": psro_dqn}


def start(peer: str, seconds: float, seed: int, out: Path, every: float = 5.0) -> subprocess.Popen[bytes]:
    """Start `peer` in a process of its own, which ends by itself after `seconds` of training."""
    arguments = [peer, "--seconds", str(seconds), "--seed", str(seed), "--every", str(every), "--out", str(out)]
    return subprocess.Popen([sys.executable, "-m", "benchmarks.league.leduc_peers", *arguments])


def final(out: Path) -> float:
    """Return the exploitability in the last line of a curve."""
    return float(json.loads(out.read_text().splitlines()[-1])["exploitability"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("--seconds", type=float, default=300.0, help="time of training")
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="clock of --seconds and --every")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--every", type=float, default=5.0, help="seconds between evaluations, at least")
    parser.add_argument("--meta-strategy", choices=["alpharank", "nash", "prd", "uniform"], help="of PSRO")
    parser.add_argument("--out", type=argparse.FileType("a"), default="-", help="JSON lines are added here")
    arguments = parser.parse_args()
    np.random.seed(arguments.seed)
    options = {"meta_strategy": arguments.meta_strategy} if arguments.meta_strategy else {}
    recorder = Recorder(arguments.peer, arguments.seed, arguments.seconds, arguments.out, arguments.clock)
    with contextlib.suppress(TimeIsUp), contextlib.redirect_stdout(sys.stderr):  # PSRO prints its choices
        PEERS[arguments.peer](recorder, arguments.seed, arguments.every, **options)


if __name__ == "__main__":
    main()
