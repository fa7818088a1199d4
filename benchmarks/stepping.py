"""CPU time of a vector step of gymnasium's classic control: in C, as the library's arrays, and one copy after another.

`python -m benchmarks.stepping [--envs 64] [--rounds 5]`: random actions, one thread, us of the best round.
"""

from __future__ import annotations

import argparse
import time

import envs
from benchmarks.apparatus.report import finish
from envs import EnvSettings
from envs.vector import classic_control
from warren.errors import ConfigurationError

FORMS = {"native": 400, "library": 400, "sync": 20}  # env.vectorization -> steps of a round
DRAWN = 50  # actions, which are repeated


def step_us(name: str, form: str, copies: int, rounds: int) -> float | None:
    """Return us of a step of `copies`; None if the game has no such form."""
    try:
        vector = envs.make_vector(EnvSettings(name, vectorization=form), copies, seed=0)
    except ConfigurationError:
        return None
    vector.merges_infos = False
    vector.reset()
    vector.action_space.seed(0)
    actions = [vector.action_space.sample() for _ in range(DRAWN)]
    best = float("inf")
    for _ in range(rounds):
        started = time.process_time()
        for step in range(FORMS[form]):
            vector.step(actions[step % DRAWN])
        best = min(best, (time.process_time() - started) / FORMS[form])
    vector.close()
    return round(1e6 * best, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--envs", type=int, default=64, help="copies that step together")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    figures = {}
    for name in sorted({*classic_control.GAMES} - {"CartPole-v0"}):
        found = {form: step_us(name, form, given.envs, given.rounds) for form in FORMS}
        figures[name] = {form: us for form, us in found.items() if us is not None}
        print(f"{name}: {figures[name]} us a step of {given.envs}", flush=True)
    finish("stepping", figures)


if __name__ == "__main__":
    main()
