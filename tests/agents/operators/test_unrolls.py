import dataclasses

import pytest
import torch
from support.unroll_examples import NAMES, column, random_unroll

from agents.operators.unrolls import by_doubling, sum_from_the_end


def test_the_next_value_depends_on_how_the_episode_ended():
    unroll = column([0] * 4, [1, 2, 3, 4], bootstrap=9, terminated=[0, 3], truncated={1: 7, 3: 8})
    assert unroll.next_value.ravel().tolist() == [0, 7, 4, 0]
    assert unroll.goes_on.ravel().tolist() == [False, False, True, False]


def test_the_bootstrap_value_follows_the_last_step_of_an_unfinished_episode():
    assert column([0, 0], [1, 2], bootstrap=9).next_value.ravel().tolist() == [2, 9]


@pytest.mark.parametrize("channels", [None, 2])
@pytest.mark.parametrize("name", NAMES[1:])
def test_shapes_that_differ_are_refused_by_name(name, channels):
    unroll = random_unroll(0, steps=3, envs=3, channels=channels)
    with pytest.raises(ValueError, match=rf"for rewards \[3, 3.*{name} must be .*, is "):
        dataclasses.replace(unroll, **{name: getattr(unroll, name)[..., None]})


def test_a_sum_from_the_end_decays_its_terms():
    term, decay = torch.tensor([1.0, 2, 3]), torch.tensor([0.5, 0.1, 99])
    torch.testing.assert_close(sum_from_the_end(term, decay), torch.tensor([1 + 0.5 * 2.3, 2.3, 3]))


def test_the_gradients_of_a_sum_from_the_end_are_right():
    term, decay = torch.randn(2, 4, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert torch.autograd.gradcheck(sum_from_the_end, (term.requires_grad_(), decay.requires_grad_()))


@pytest.mark.parametrize("length", [1, 2, 3, 8, 13])
def test_sums_by_doubling_equal_those_of_one_step_after_the_other(length: int) -> None:
    generator = torch.Generator().manual_seed(length)
    term = torch.randn(length, 4, 3, generator=generator, dtype=torch.float64)
    decay = torch.rand(length, 4, 1, generator=generator, dtype=torch.float64)
    decay[torch.rand(length, 4, 1, generator=generator) < 0.2] = 0
    torch.testing.assert_close(by_doubling(term, decay), sum_from_the_end(term, decay))
    assert torch.autograd.gradcheck(by_doubling, (term.requires_grad_(), decay.requires_grad_()))
