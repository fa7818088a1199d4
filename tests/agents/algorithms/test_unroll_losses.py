"""The losses of algorithms that learn from unrolls: A2C, IMPALA and APPO."""

import dataclasses
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.unroll_examples import channel, random_unroll, unrolls

from agents.algorithms.a2c.losses import a2c_loss
from agents.algorithms.appo.losses import appo_loss
from agents.algorithms.impala.losses import impala_loss
from agents.operators.losses import standardize
from agents.operators.returns import lambda_return
from agents.operators.upgo import upgo_return
from agents.operators.vtrace import vtrace

COEFFICIENTS = {"value_coefficient": 0.5, "entropy_coefficient": 0.01}
VTRACE = {"gamma": 0.9, "rho_bar": 1.0, "c_bar": 1.0}


def outputs(unroll, seed=1):
    """Return (unroll, log_prob, entropy, behaviour_log_prob); values, log_prob and entropy require gradients."""
    unroll = dataclasses.replace(unroll, value=unroll.value.clone().requires_grad_())
    generator = torch.Generator().manual_seed(seed)
    log_prob, entropy, behaviour = torch.randn(3, *unroll.reward.shape, generator=generator, dtype=torch.float64)
    return unroll, log_prob.requires_grad_(), entropy.requires_grad_(), behaviour


def mean(function, *columns):
    """Return the mean of `function` over the elements, by a plain loop."""
    rows = list(zip(*(column.flatten().tolist() for column in columns), strict=True))
    return sum(function(*row) for row in rows) / len(rows)


@given(unroll=unrolls(), gae_lambda=st.sampled_from([0.0, 0.9, 1.0]))
def test_the_loss_of_a2c_equals_a_loop_over_its_steps(unroll, gae_lambda):
    unroll, log_prob, entropy, _ = outputs(unroll)
    loss, terms = a2c_loss(unroll, log_prob, entropy, gamma=0.9, gae_lambda=gae_lambda, **COEFFICIENTS)
    target = lambda_return(unroll, 0.9, gae_lambda).detach()
    assert terms["policy_loss"].item() == pytest.approx(
        mean(lambda p, g, v: -p * (g - v), log_prob, target, unroll.value)
    )
    assert terms["value_loss"].item() == pytest.approx(mean(lambda g, v: (g - v) ** 2, target, unroll.value))
    assert terms["entropy"].item() == pytest.approx(mean(lambda h: h, entropy))
    expected = terms["policy_loss"] + 0.5 * terms["value_loss"] - 0.01 * terms["entropy"]
    assert loss.item() == pytest.approx(expected.item())


def test_a2c_treats_returns_and_advantages_as_constants():
    unroll, log_prob, entropy, _ = outputs(random_unroll(3))
    loss, _ = a2c_loss(unroll, log_prob, entropy, gamma=0.9, gae_lambda=0.8, **COEFFICIENTS)
    loss.backward()
    advantage = lambda_return(unroll, 0.9, 0.8).detach() - unroll.value.detach()
    size = advantage.numel()
    torch.testing.assert_close(log_prob.grad, -advantage / size)
    torch.testing.assert_close(unroll.value.grad, -0.5 * 2 * advantage / size)
    torch.testing.assert_close(entropy.grad, torch.full_like(advantage, -0.01 / size))


def test_a2c_standardizes_advantages_only_where_asked():
    unroll, log_prob, entropy, _ = outputs(random_unroll(3))
    settings = {"gamma": 0.9, "gae_lambda": 0.8, "standardize": standardize, **COEFFICIENTS}
    _, terms = a2c_loss(unroll, log_prob, entropy, **settings)
    advantage = lambda_return(unroll, 0.9, 0.8).detach() - unroll.value.detach()
    normal = (advantage - advantage.mean()) / advantage.std()
    assert terms["policy_loss"].item() == pytest.approx(mean(lambda p, a: -p * a, log_prob, normal))


@given(unroll=unrolls(), upgo_coefficient=st.sampled_from([0.0, 0.3]))
def test_the_loss_of_impala_equals_a_loop_over_its_steps(unroll, upgo_coefficient):
    unroll, log_prob, entropy, behaviour = outputs(unroll)
    loss, terms = impala_loss(
        unroll, log_prob, behaviour, entropy, upgo_coefficient=upgo_coefficient, **VTRACE, **COEFFICIENTS
    )
    target, advantage, rho = vtrace(unroll, log_prob, behaviour, 0.9)
    upgo = mean(lambda p, r, g, v: -p * r * (g - v), log_prob, rho, upgo_return(unroll, 0.9), unroll.value)
    assert terms["rho"].item() == pytest.approx(mean(lambda p, b: min(1, math.exp(p - b)), log_prob, behaviour))
    expected = (
        mean(lambda p, a: -p * a, log_prob, advantage)
        + 0.5 * mean(lambda g, v: (g - v) ** 2, target, unroll.value)
        - 0.01 * mean(lambda h: h, entropy)
        + upgo_coefficient * upgo
    )
    assert loss.item() == pytest.approx(expected)
    assert ("upgo_loss" in terms) == (upgo_coefficient > 0)


def test_impala_treats_vtrace_and_upgo_targets_as_constants():
    unroll, log_prob, entropy, behaviour = outputs(random_unroll(3))
    loss, _ = impala_loss(unroll, log_prob, behaviour, entropy, upgo_coefficient=0.3, **VTRACE, **COEFFICIENTS)
    loss.backward()
    target, advantage, rho = vtrace(unroll, log_prob, behaviour, 0.9)
    value, size = unroll.value.detach(), advantage.numel()
    upgoing = rho * (upgo_return(unroll, 0.9) - value)
    torch.testing.assert_close(log_prob.grad, -(advantage + 0.3 * upgoing) / size)
    torch.testing.assert_close(unroll.value.grad, -0.5 * 2 * (target - value) / size)
    torch.testing.assert_close(entropy.grad, torch.full_like(value, -0.01 / size))


@given(unroll=unrolls(), normalized=st.booleans())
def test_on_policy_impala_is_a2c(unroll, normalized):
    unroll, log_prob, entropy, _ = outputs(unroll)
    scaled = {"standardize": standardize if normalized else None}
    one, _ = impala_loss(unroll, log_prob, log_prob.detach(), entropy, **VTRACE, **COEFFICIENTS, **scaled)
    other, _ = a2c_loss(unroll, log_prob, entropy, gamma=0.9, gae_lambda=1.0, **COEFFICIENTS, **scaled)
    torch.testing.assert_close(one, other)
    gradients = [torch.autograd.grad(loss, (log_prob, unroll.value, entropy)) for loss in (one, other)]
    torch.testing.assert_close(*gradients)


def test_impala_standardizes_advantages_with_their_importance_weights():
    unroll, log_prob, entropy, behaviour = outputs(random_unroll(3))
    weights = {"upgo_coefficient": 0.3, "standardize": standardize}
    impala_loss(unroll, log_prob, behaviour, entropy, **weights, **VTRACE, **COEFFICIENTS)[0].backward()
    _, advantage, rho = vtrace(unroll, log_prob, behaviour, 0.9)
    upgoing = standardize(rho * (upgo_return(unroll, 0.9) - unroll.value.detach()))
    torch.testing.assert_close(log_prob.grad, -(standardize(advantage) + 0.3 * upgoing) / advantage.numel())


@given(unroll=unrolls(channels=(3,)), upgo_coefficient=st.sampled_from([0.0, 0.3]))
def test_the_loss_of_reward_channels_is_the_weighted_sum_of_their_losses(unroll, upgo_coefficient):
    coefficients = torch.tensor([1.0, 0.5, 0.0], dtype=torch.float64)
    _, log_prob, entropy, behaviour = outputs(channel(unroll, 0))
    unroll = dataclasses.replace(unroll, value=unroll.value.clone().requires_grad_())

    def impala(unroll, **settings):
        return impala_loss(
            unroll,
            log_prob,
            behaviour,
            entropy,
            upgo_coefficient=upgo_coefficient,
            **VTRACE,
            **COEFFICIENTS,
            **settings,
        )[1]

    def a2c(unroll, **settings):
        return a2c_loss(unroll, log_prob, entropy, gamma=0.9, gae_lambda=0.8, **COEFFICIENTS, **settings)[1]

    for algorithm in (impala, a2c):
        together = algorithm(unroll, channel_coefficients=coefficients)
        alone = [algorithm(channel(unroll, c)) for c in range(3)]
        for name, weights in (
            ("policy_loss", [1.0, 0.5, 0.0]), ("upgo_loss", [1.0, 0.5, 0.0]), ("value_loss", [1 / 3] * 3),
        ):  # fmt: skip
            if name in together:
                expected = sum(w * terms[name].item() for w, terms in zip(weights, alone, strict=True))
                assert together[name].item() == pytest.approx(expected), name


def test_reward_channels_without_coefficients_are_refused():
    unroll = random_unroll(0, steps=2, envs=2, channels=2)
    _, log_prob, entropy, _ = outputs(channel(unroll, 0))
    with pytest.raises(ValueError, match="must have one shape"):
        a2c_loss(unroll, log_prob, entropy, gamma=0.9, gae_lambda=1.0, **COEFFICIENTS)


def minibatch(seed=0, size=30):
    generator = torch.Generator().manual_seed(seed)
    columns = 0.5 * torch.randn(7, size, generator=generator, dtype=torch.float64)
    names = ("log_prob", "behaviour_log_prob", "target_log_prob", "advantage", "value", "target", "entropy")
    return {name: column.requires_grad_() for name, column in zip(names, columns, strict=True)}


@pytest.mark.parametrize("seed", range(5))
def test_the_loss_of_appo_equals_a_loop_over_its_steps(seed):
    batch = minibatch(seed)
    loss, terms = appo_loss(**batch, clip_range=0.2, **COEFFICIENTS)

    def surrogate(p, b, t, a):
        ratio = min(math.exp(b - t), 2.0) * math.exp(p - b)
        return min(ratio * a, min(max(ratio, 0.8), 1.2) * a)

    log_probs = [batch[name] for name in ("log_prob", "behaviour_log_prob", "target_log_prob")]
    assert terms["policy_loss"].item() == pytest.approx(-mean(surrogate, *log_probs, batch["advantage"]))
    assert terms["value_loss"].item() == pytest.approx(mean(lambda v, g: (v - g) ** 2, batch["value"], batch["target"]))
    assert terms["approx_kl"].item() == pytest.approx(
        mean(lambda p, t: math.exp(p - t) - 1 - (p - t), log_probs[0], log_probs[2])
    )
    assert 0 < terms["clip_fraction"].item() < 1
    expected = terms["policy_loss"] + 0.5 * terms["value_loss"] - 0.01 * terms["entropy"]
    assert loss.item() == pytest.approx(expected.item())


@pytest.mark.parametrize("seed", range(3))
def test_the_gradients_of_appo_are_right(seed):
    batch = minibatch(seed, size=8)
    trained = ("log_prob", "value", "entropy")
    constants = {name: column.detach() for name, column in batch.items() if name not in trained}
    assert torch.autograd.gradcheck(
        lambda *columns: appo_loss(
            **dict(zip(trained, columns, strict=True)), **constants, clip_range=0.2, **COEFFICIENTS
        )[0],
        [batch[name] for name in trained],
    )


def test_the_first_step_of_an_appo_update_equals_impalas():
    unroll, log_prob, entropy, behaviour = outputs(random_unroll(3))
    behaviour = behaviour.clamp(max=log_prob.detach() + 0.5)  # below 2, the bound of behaviour / target
    impala, _ = impala_loss(unroll, log_prob, behaviour, entropy, **VTRACE, **COEFFICIENTS)
    target, advantage, _ = vtrace(unroll, log_prob, behaviour, 0.9)
    appo, terms = appo_loss(
        log_prob, behaviour, log_prob.detach(), advantage, unroll.value, target, entropy,
        clip_range=0.2, **COEFFICIENTS,
    )  # fmt: skip
    gradients = [torch.autograd.grad(loss, (log_prob, unroll.value, entropy)) for loss in (impala, appo)]
    torch.testing.assert_close(*gradients)
    assert terms["approx_kl"].item() == 0
    assert terms["clip_fraction"].item() == 0
