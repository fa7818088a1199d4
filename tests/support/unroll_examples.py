"""Random unrolls for the tests of returns, and the plain loops that those are held to."""

import dataclasses

import torch
from hypothesis import strategies as st

from agents.operators.unrolls import Unroll

NAMES = [field.name for field in dataclasses.fields(Unroll)]


@st.composite
def unrolls(draw, channels=(None,)):
    """Yield unrolls of any length from one step on; no episode ends, some do, all do in either way."""
    steps, envs = draw(st.integers(1, 9)), draw(st.integers(1, 3))
    ending = draw(st.sampled_from([(0, 0), (0.2, 0.2), (1, 0), (0, 1), (1, 1)]))
    return random_unroll(draw(st.integers(0, 2**32)), steps, envs, draw(st.sampled_from(channels)), ending)


def random_unroll(seed, steps=6, envs=2, channels=None, ending=(0.2, 0.2)):
    """float64. Numbers that nothing may read are nan."""
    generator = torch.Generator().manual_seed(seed)
    shape = (steps, envs) if channels is None else (steps, envs, channels)

    def normal(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    terminated, truncated = (torch.rand((steps, envs), generator=generator) < p for p in ending)
    final_value, bootstrap = normal(*shape), normal(*shape[1:])
    final_value[~truncated | terminated] = torch.nan
    bootstrap[(terminated | truncated)[-1]] = torch.nan
    return Unroll(normal(*shape), normal(*shape), terminated, truncated, final_value, bootstrap)


def column(reward, value, bootstrap, terminated=(), truncated=None):
    """The unroll of one environment, written by hand: `terminated` steps, `truncated` step -> value of what was cut."""
    steps = range(len(reward))
    ends = [[step in terminated] for step in steps], [[step in (truncated or {})] for step in steps]
    final_value = [[float((truncated or {}).get(step, 0))] for step in steps]
    floats = [[[float(x)] for x in numbers] for numbers in (reward, value)]
    reward, value, final_value = (torch.tensor(x, dtype=torch.float64) for x in (*floats, final_value))
    return Unroll(reward, value, *map(torch.tensor, ends), final_value, torch.tensor([float(bootstrap)]).double())


def channel(unroll, c):
    """The unroll of one of the reward channels."""
    cut = {name: getattr(unroll, name)[..., c] for name in ("reward", "value", "final_value", "bootstrap_value")}
    return dataclasses.replace(unroll, **cut)


def detached(unroll):
    """The same with gradients of its own: (unroll, its float tensors)."""
    floats = {
        name: getattr(unroll, name).nan_to_num().clone().requires_grad_()
        for name in ("reward", "value", "final_value", "bootstrap_value")
    }
    return dataclasses.replace(unroll, **floats), list(floats.values())


def what_follows(unroll, t, n):
    """(V of what follows step t of environment n, whether its episode goes on), by the rule in words."""
    if unroll.terminated[t, n]:
        return 0.0, False
    if unroll.truncated[t, n]:
        return unroll.final_value[t, n].item(), False
    last = t == len(unroll.reward) - 1
    return (unroll.bootstrap_value[n] if last else unroll.value[t + 1, n]).item(), True


def by_loops(unroll, one):
    """[T, N] of one(t, n): a reference computed one element at a time."""
    steps, envs = unroll.reward.shape
    return torch.tensor([[one(t, n) for n in range(envs)] for t in range(steps)], dtype=torch.float64)


def n_steps(unroll, gamma, t, n, steps):
    """(the discounted sum of at most `steps` rewards from t on plus the value of what follows, how many there were)."""
    total = 0.0
    for k in range(steps):
        total += gamma**k * unroll.reward[t + k, n].item()
        value, goes_on = what_follows(unroll, t + k, n)
        if not goes_on or k == steps - 1 or t + k == len(unroll.reward) - 1:
            return total + gamma ** (k + 1) * value, k + 1
    raise AssertionError
