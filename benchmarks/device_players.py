"""Updates of several players of Leduc poker at once, and whether those on a device equal those on the CPU."""

from __future__ import annotations

import time
from collections.abc import Callable
from copy import deepcopy
from functools import cache, partial

import numpy as np
import torch

from agents import Algorithm, Batch, build_algorithm
from agents.algorithms.ppo import PPO
from agents.algorithms.ppo.stacked import Stack
from agents.algorithms.ppo.stacked_shape import shape_of
from agents.algorithms.together import STACKED, update_together
from agents.trajectories import Trajectory
from benchmarks.apparatus.timing import median_ms, milliseconds, waited
from benchmarks.league.updates import MAIN, league_after
from workers.leagues.local import LocalLeague

PLAYERS = (1, 4, 16, 64)
MOST = PLAYERS[-1]
LEARNED = 8  # updates of the league from which the weights and the batches come
PLAYED = 4  # batches that are played; each player has its own order of the slots of one of them
COMPARED = 8  # players whose updates are compared
UPDATES = 2  # of each, of sixteen minibatches: graphs are launched from the thirteenth on
ALIKE = 1e-5


def together(device: torch.device, rounds: int) -> dict[str, float]:
    """Return ms of one update of several players together, each on its own batch, on the CPU and on the device."""
    found = dict[str, float]()
    for where in dict.fromkeys((torch.device("cpu"), device)):
        for number in PLAYERS:
            work = partial(update_together, _players(number, where), _batches(number))
            found[f"{where.type}_{number}_ms"] = milliseconds(work, where, rounds)
        found[f"{where.type}_{MOST}_vs_one"] = round(found[f"{where.type}_{MOST}_ms"] / found[f"{where.type}_1_ms"], 2)
    return found


def parts_of_together(device: torch.device, rounds: int) -> dict[str, float]:
    """Return ms of the parts of an update of stacked players, waiting for the device after each."""
    found = dict[str, float]()
    for number in (1, MOST):
        players = [player for player in _players(number, device) if isinstance(player, PPO)]
        batches, took = _batches(number), dict[str, list[float]]()

        def timed(name: str, work: Callable[[], object], took: dict[str, list[float]] = took) -> None:
            began = time.perf_counter()
            work()
            waited(device)
            took.setdefault(name, []).append(1e3 * (time.perf_counter() - began))

        for _ in range(3 + rounds):
            began = time.perf_counter()
            given = [(player, player.scaled(batch)) for player, batch in zip(players, batches, strict=True)]
            (shape,) = {shape_of(*one) for one in given}
            assert shape is not None
            stack = Stack(shape, given)
            took.setdefault("look", []).append(1e3 * (time.perf_counter() - began))
            timed("prepare", stack.prepare)
            timed("steps", stack.run)
            timed("end", stack.end)
        found |= {f"{number}_{name}_ms": median_ms(each[3:]) for name, each in took.items()}
    return found


def equal_players(device: torch.device) -> dict[str, float]:
    """Return how far weights of players updated together on the device are from those updated alone on the CPU.

    Of the largest difference of each player's weights the least, the median and the largest; the number of players for
    which it is below ALIKE; and `moved`, the largest change of a weight. Rounding alone can make a unit inactive that
    is just active otherwise, and the later steps of that player are others from then on. TF32 is off.
    """
    torch.backends.cuda.matmul.allow_tf32 = False
    here, there = _players(COMPARED, torch.device("cpu")), _players(COMPARED, device)
    before, found = _weights(here), dict[str, float]()
    for number in range(1, UPDATES + 1):
        update_together(there, _batches(COMPARED))
        for player, batch in zip(here, _batches(COMPARED), strict=True):
            player.update(batch)
        apart = (_weights(there) - _weights(here)).abs().amax(1)
        found |= {f"{number}_least": apart.min().item(), f"{number}_median": apart.median().item()}
        found |= {f"{number}_largest": apart.max().item(), f"{number}_alike": float((apart < ALIKE).sum())}
    return found | {"moved": (_weights(here) - before).abs().max().item()}


def stacked_on(device: torch.device) -> bool:
    """Tell whether players on the device are stacked."""
    return device.type in STACKED


def _weights(players: list[Algorithm]) -> torch.Tensor:
    every = [one.descent.parameters.values.detach().cpu() for one in players if isinstance(one, PPO)]
    return torch.stack(every)


@cache
def _league() -> LocalLeague:
    league = league_after(0)
    league.round(LEARNED)
    return league


@cache
def _played() -> list[Trajectory]:
    league = _league()
    return [league.trainees[MAIN].matches.collect(league.config.lanes) for _ in range(PLAYED)]


@cache
def _batches(number: int) -> list[Batch]:
    chance, played = np.random.default_rng(1), _played()
    orders = [chance.permutation(played[0].num_slots) for _ in range(number)]
    return [Batch([played[place % PLAYED].slots(order)]) for place, order in enumerate(orders)]


def _players(number: int, device: torch.device) -> list[Algorithm]:
    config, policy = _league().config, _league().trainees[MAIN].policy
    given, players = config.algorithm_of(MAIN), []
    for seed in range(number):
        own = deepcopy(policy).to(device)
        players.append(build_algorithm(given["name"], given, own, seed, replay=False))
    return players
