"""Random unrolls for tests of returns, and plain loops as their reference."""

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence

import torch
from hypothesis import strategies as st
from torch import Tensor

from agents.operators.unrolls import Unroll

NAMES = [field.name for field in dataclasses.fields(Unroll)]


@st.composite
def unrolls(draw: st.DrawFn, channels: Sequence[int | None] = (None,)) -> Unroll:
    """Draw an unroll in which no episode ends, some end, or each step ends one by termination, truncation or both."""
    steps, envs = draw(st.integers(1, 9)), draw(st.integers(1, 3))
    ending = draw(st.sampled_from([(0, 0), (0.2, 0.2), (1, 0), (0, 1), (1, 1)]))
    return random_unroll(draw(st.integers(0, 2**32)), steps, envs, draw(st.sampled_from(channels)), ending)


def random_unroll(
    seed: int, steps: int = 6, envs: int = 2, channels: int | None = None, ending: tuple[float, float] = (0.2, 0.2)
) -> Unroll:
    """Return a float64 unroll; numbers that must not be read are nan."""
    generator = torch.Generator().manual_seed(seed)
    shape = (steps, envs) if channels is None else (steps, envs, channels)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    terminated, truncated = (torch.rand((steps, envs), generator=generator) < p for p in ending)
    final_value, bootstrap = normal(*shape), normal(*shape[1:])
    final_value[~truncated | terminated] = torch.nan
    bootstrap[(terminated | truncated)[-1]] = torch.nan
    return Unroll(normal(*shape), normal(*shape), terminated, truncated, final_value, bootstrap)


def column(
    reward: Sequence[float],
    value: Sequence[float],
    bootstrap: float,
    terminated: Collection[int] = (),
    truncated: Mapping[int, float] | None = None,
) -> Unroll:
    """Return the unroll of one environment: `terminated` steps, `truncated` step -> value of the state cut off."""
    steps, cut = range(len(reward)), truncated or {}

    def floats(numbers: Sequence[float]) -> Tensor:
        return torch.tensor([[float(x)] for x in numbers], dtype=torch.float64)

    return Unroll(
        floats(reward),
        floats(value),
        torch.tensor([[step in terminated] for step in steps]),
        torch.tensor([[step in cut] for step in steps]),
        floats([cut.get(step, 0.0) for step in steps]),
        torch.tensor([float(bootstrap)]).double(),
    )


def channel(unroll: Unroll, c: int) -> Unroll:
    """Return the unroll of reward channel `c`."""
    cut = {name: getattr(unroll, name)[..., c] for name in ("reward", "value", "final_value", "bootstrap_value")}
    return dataclasses.replace(unroll, **cut)


def detached(unroll: Unroll) -> tuple[Unroll, list[Tensor]]:
    """Return (the same unroll with gradients of its own, its float tensors)."""
    floats = {
        name: getattr(unroll, name).nan_to_num().clone().requires_grad_()
        for name in ("reward", "value", "final_value", "bootstrap_value")
    }
    return dataclasses.replace(unroll, **floats), list(floats.values())


def what_follows(unroll: Unroll, t: int, n: int) -> tuple[float, bool]:
    """Return (V of the state after step t of environment n, whether its episode goes on), by the rule in words."""
    if unroll.terminated[t, n]:
        return 0.0, False
    if unroll.truncated[t, n]:
        return unroll.final_value[t, n].item(), False
    last = t == len(unroll.reward) - 1
    return (unroll.bootstrap_value[n] if last else unroll.value[t + 1, n]).item(), True


def by_loops(unroll: Unroll, one: Callable[[int, int], float]) -> Tensor:
    """Return one(t, n) of each element, [T, N]: a reference computed one element at a time."""
    steps, envs = unroll.reward.shape
    return torch.tensor([[one(t, n) for n in range(envs)] for t in range(steps)], dtype=torch.float64)


def n_steps(unroll: Unroll, gamma: float, t: int, n: int, steps: int) -> tuple[float, int]:
    """Return (discounted sum of up to `steps` rewards from t on plus the value after them, number of these rewards)."""
    total = 0.0
    for k in range(steps):
        total += gamma**k * unroll.reward[t + k, n].item()
        value, goes_on = what_follows(unroll, t + k, n)
        if not goes_on or k == steps - 1 or t + k == len(unroll.reward) - 1:
            return total + gamma ** (k + 1) * value, k + 1
    raise AssertionError
