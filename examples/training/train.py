"""Train from Python, end the run once an evaluation is good enough, and act by the best weights.

python examples/training/train.py seed=2        # further words are settings, as for python -m workers.train
"""

import sys

import warren

ENOUGH = 150  # mean return of an evaluation


def on_evaluation(point):
    print(f"{point['steps']} steps: {point['mean_return']:g}")
    return point["mean_return"] < ENOUGH  # False ends the run cleanly


if __name__ == "__main__":
    evaluation = {"every": 2000, "episodes": 5, "keep_best": True}
    result = warren.train(*sys.argv[1:], env={"id": "CartPole-v1"}, evaluation=evaluation, on_evaluation=on_evaluation)
    best = result.load(best=True)
    observation, _ = best.make().reset(seed=1)
    print(f"{result.state} after {result.outcome['steps']} steps; the first action is {best.act(observation)}")
