"""A teacher's loss term: by head, in every algorithm, and its benefit to a student."""

from collections import deque

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete
from support.experience import ON_POLICY, random_trajectory
from test_batches import CORES, played, recurrent

import envs
from agents import build_algorithm, build_policy
from agents.algorithms.anchors import LESSON
from agents.algorithms.teacher import imitation
from agents.operators.divergences import categorical_kl, gaussian_kl
from agents.operators.losses import teacher_loss
from warren.errors import ConfigurationError, UnknownName
from workers.rollout.vector_sampler import VectorSampler

OBSERVATIONS = Box(-1, 1, (4,), np.float32)
ACTIONS = Dict({"move": Discrete(3), "target": Discrete(5), "turn": Box(-1, 1, (2,), np.float32)})


def divergences(teacher, student, observation):
    """Return KL(teacher || student) by head, with gradients for the student only."""
    action = {name: torch.from_numpy(part) for name, part in student.step(observation.numpy()).action.items()}
    with torch.no_grad():
        theirs = teacher.statistics(teacher.evaluate(observation, action).output)
    return student.kl(theirs, student.statistics(student.evaluate(observation, action).output))


def test_a_student_approaches_its_teacher_in_heads_with_a_coefficient():
    # A linear network without hidden layers shares nothing between heads but the observation.
    config = {"hidden_sizes": [], "policy_gain": 1.0}
    teacher, student = (build_policy(config, OBSERVATIONS, ACTIONS, seed) for seed in (1, 2))
    observation = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
    before = {name: kl.mean().item() for name, kl in divergences(teacher, student, observation).items()}
    optimizer = torch.optim.Adam(student.parameters(), 0.03)
    for _ in range(100):
        loss = teacher_loss(divergences(teacher, student, observation), {"move": 1.0, "turn": 0.5})
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    after = {name: kl.mean().item() for name, kl in divergences(teacher, student, observation).items()}
    assert after["move"] < 0.05 * before["move"]
    assert after["turn"] < 0.05 * before["turn"]
    assert after["target"] == pytest.approx(before["target"])


def test_a_coefficient_of_an_unknown_head_is_refused():
    policy = build_policy({}, OBSERVATIONS, ACTIONS, 1)
    heads = divergences(policy, policy, torch.zeros(2, 4))
    with pytest.raises(UnknownName, match="policy head 'mvoe' does not exist; did you mean move"):
        teacher_loss(heads, {"mvoe": 1.0})


WHOLE = {"appo": {"epochs": 1, "minibatch_size": 64}, "ppo": {"epochs": 1, "minibatch_size": 64}}  # one step per update


def made(name, space=None, **settings):
    policy = build_policy({"hidden_sizes": [16]}, OBSERVATIONS, space or Discrete(3), 3)
    return build_algorithm(
        name, {"learning_rate": 0.01, "max_grad_norm": 1e6, **WHOLE.get(name, {}), **settings}, policy, 3
    )


def a_teacher(space=None):
    return build_policy({"hidden_sizes": [8], "policy_gain": 2.0}, OBSERVATIONS, space or Discrete(3), 9)


def weights(algorithm):
    return torch.cat([p.detach().ravel() for p in algorithm.policy.parameters()])


@pytest.mark.parametrize("name", ON_POLICY)
@pytest.mark.parametrize("space", [Discrete(3), Box(-1, 1, (2,), np.float32)], ids=["discrete", "box"])
def test_teacher_kl_is_the_divergence_of_teacher_and_student(name, space):
    algorithm, teacher = made(name, space), a_teacher(space)
    algorithm.take_teacher(teacher)
    trajectory = random_trajectory(algorithm.policy)
    observation = torch.from_numpy(trajectory.observation).flatten(0, 1)
    with torch.no_grad():
        theirs, ours = (p.network.step(observation, {})[0].policy for p in (teacher, algorithm.policy))
        if isinstance(space, Discrete):
            expected = categorical_kl(theirs, ours)
        else:
            expected = gaussian_kl(
                theirs, teacher.distribution.log_std, ours, algorithm.policy.distribution.log_std.clone()
            )
    metrics = algorithm.update([trajectory]).metrics
    assert metrics["teacher_kl"] == pytest.approx(expected.mean().item(), rel=1e-4)


@pytest.mark.parametrize("name", ON_POLICY)
def test_the_teachers_gradient_is_scaled_by_its_coefficient(name):
    def gradient(coefficient):
        algorithm = made(name, teacher_coefficient=coefficient)
        algorithm.take_teacher(a_teacher())
        algorithm.update([random_trajectory(algorithm.policy)])
        return torch.cat([p.grad.ravel() for p in algorithm.policy.parameters()])

    none, one, three = (gradient(coefficient) for coefficient in (0.0, 1.0, 3.0))
    assert (one - none).abs().max() > 1e-3
    assert three - none == pytest.approx(3 * (one - none), rel=1e-3, abs=1e-5)


@pytest.mark.parametrize("name", ON_POLICY)
def test_a_teacher_with_coefficient_0_or_after_annealing_changes_nothing(name):
    trained = []
    for settings in ({}, {"teacher_coefficient": 0.0}, {"teacher_anneal_steps": 100}):
        algorithm = made(name, **settings)
        if settings:
            algorithm.take_teacher(a_teacher())
        algorithm.begin_at(100)
        metrics = algorithm.update([random_trajectory(algorithm.policy)]).metrics
        assert "teacher_kl" not in metrics
        trained.append(weights(algorithm))
    assert torch.equal(trained[0], trained[1])
    assert torch.equal(trained[0], trained[2])


def test_the_coefficient_falls_linearly_by_steps_and_resumes_from_a_state():
    config = made("ppo", teacher_coefficient=2.0, teacher_anneal_steps=1000).config
    assert [config.coefficient(steps) for steps in (0, 250, 1000, 5000)] == [2.0, 1.5, 0.0, 0.0]
    one, other = (made("ppo", teacher_anneal_steps=150) for _ in range(2))
    for algorithm in (one, other):
        algorithm.take_teacher(a_teacher())
    one.update([random_trajectory(one.policy)])
    other.policy.load_state_dict(one.policy.state_dict())
    other.load_state(*one.state())
    for algorithm in (one, other):
        algorithm.update([random_trajectory(algorithm.policy, seed=1)])
    assert torch.equal(weights(one), weights(other))


def test_each_part_of_an_action_has_its_own_divergence_and_factor():
    teacher, student = (build_policy({"policy_gain": 1.0}, OBSERVATIONS, ACTIONS, seed) for seed in (1, 2))
    observation = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    heads = divergences(teacher, student, observation)
    with torch.no_grad():
        taught, own = (p.network.step(observation, {})[0].policy for p in (teacher, student))
        statistics = teacher.statistics(taught)
    assert heads["move"].tolist() == pytest.approx(categorical_kl(taught["move"], own["move"]).tolist(), rel=1e-4)
    columns = {LESSON + name: column for name, column in statistics.items()}
    whole = imitation(student, own, columns, None)
    assert whole.item() == pytest.approx(sum(head.mean().item() for head in heads.values()), rel=1e-4)
    some = imitation(student, own, columns, {"move": 2.0, "turn": 0.5})
    assert some.item() == pytest.approx(2 * heads["move"].mean().item() + heads["turn"].mean().item() / 2, rel=1e-4)
    assert imitation(student, own, {}, None) is None


@pytest.mark.parametrize("core", CORES, ids=lambda core: core["name"])
def test_a_student_with_a_memory_learns_from_a_teacher_without_one(core):
    policy = recurrent(core)
    algorithm = build_algorithm("ppo", {"epochs": 1}, policy, 0)
    algorithm.take_teacher(build_policy({}, policy.observation_space, policy.action_space, 5))
    trajectory = played(policy)
    assert algorithm.update([trajectory]).metrics["teacher_kl"] > 0


def test_unsuitable_teachers_and_settings_are_refused():
    algorithm = made("ppo")
    of_another_game = build_policy({}, Box(-1, 1, (5,), np.float32), Discrete(3), 0)
    with pytest.raises(ConfigurationError, match=r"teacher t: its observation space is Box.* the student's Box"):
        algorithm.take_teacher(of_another_game, "t")
    with pytest.raises(ConfigurationError, match=r"teacher t has a network with a memory"):
        algorithm.take_teacher(build_policy({"core": {"name": "gru"}}, OBSERVATIONS, Discrete(3), 0), "t")
    with pytest.raises(ConfigurationError, match=r"part in teacher_heads of ppo 'x' does not exist; .* has one part"):
        made("ppo", teacher_heads={"x": 1.0})
    with pytest.raises(ConfigurationError, match=r"teacher 'runs/t' was not loaded"):
        never = made("ppo", teacher="runs/t")
        never.update([random_trajectory(never.policy)])
    with pytest.raises(ConfigurationError, match=r"teacher_coefficient=-1\.0 of ppo must be at least 0"):
        made("ppo", teacher_coefficient=-1.0)


def test_a_teacher_draws_each_part_that_counts_from_the_students_distribution():
    teacher = build_policy({}, OBSERVATIONS, ACTIONS, 1)

    def taught(heads=None):
        student = build_policy({"box_actions": {"squashed": True}}, OBSERVATIONS, ACTIONS, 2)
        build_algorithm("ppo", {"teacher_heads": heads}, student, 0).take_teacher(teacher, "t")

    for heads in (None, {"move": 1.0, "turn": 0.5}):
        with pytest.raises(
            ConfigurationError, match=r"teacher t: its actions 'turn' .* from a Gaussian, .* a SquashedGaussian;"
        ):
            taught(heads)
    for heads in ({"move": 1.0}, {"move": 1.0, "turn": 0}):
        taught(heads)


def balances(observation_space, action_space):
    """Return a hand-made policy that solves CartPole: it pushes toward the side to which the pole falls."""
    policy = build_policy({"hidden_sizes": []}, observation_space, action_space, 0)
    with torch.no_grad():
        last = policy.network.policy_trunk.layers[-1]
        last.bias.zero_()
        last.weight.copy_(torch.outer(torch.tensor([-1.0, 1.0]), torch.tensor([0.5, 1.0, 10.0, 4.0])))
    return policy


def test_a_perfect_teachers_student_balances_before_one_without_a_teacher(one_thread):
    def mean_return(taught, steps):
        vector_env = envs.make_vector("CartPole-v1", 8, seed=1)
        spaces = vector_env.single_observation_space, vector_env.single_action_space
        policy = build_policy({}, *spaces, 1)
        algorithm = build_algorithm("ppo", {"learning_rate": 1.5e-3, "epochs": 4}, policy, 1)
        if taught:
            algorithm.take_teacher(balances(*spaces))
        sampler, returns = VectorSampler(vector_env, policy, 1), deque(maxlen=20)
        while sampler.env_steps < steps:
            trajectory = sampler.collect(128)
            returns.extend(trajectory.episodes[:, 0].tolist())
            algorithm.update([trajectory])
        return np.mean(returns)

    alone, taught = (mean_return(taught, 16_000) for taught in (False, True))
    assert taught > 250 > alone
