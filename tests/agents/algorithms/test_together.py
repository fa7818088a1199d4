"""Joint updates of several players equal their separate updates, for each option that leagues use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from support.experience import random_trajectory
from support.recorded_graphs import Recorder, use_recorded_graphs
from torch.utils._python_dispatch import TorchDispatchMode

from agents import Batch, build_algorithm, build_policy
from agents.algorithms.ppo import PPO, stacked_steps
from agents.algorithms.ppo.stacked import Stack
from agents.algorithms.ppo.stacked_shape import shape_of
from agents.algorithms.ppo.whole import WholePPO
from agents.algorithms.together import update_together
from agents.native import library
from agents.policies import Policy
from warren.errors import NotFinite

SPACES = Box(-1, 1, (7,), np.float32), Discrete(4)
OPTIONS: list[dict[str, Any]] = [
    {},
    {"normalize_advantage": False, "epochs": 1, "adam_beta1": 0.0},
    {"minibatch_size": 50, "max_grad_norm": 0.05},
    {"magnet_coefficient": 0.1, "magnet_rate": 0.05},
    {"magnet_coefficient": 0.1, "magnet_every": 2},
    {"proximal_coefficient": 0.3, "clip_range_value": 0.1},
    {"entropy_coefficient": {"name": "linear", "start": 0.1, "end": 0.01, "over": "progress"}},
    {"learning_rate": 0.01, "anneal_steps": 1000, "entropy_decay_steps": 100, "entropy_coefficient": 0.05},
    {"optimizer": "adamw", "weight_decay": 0.1},
    {"weight_decay": 0.1, "learning_rates": {"network.value": 0.5}},
    {"target_kl": 0.0005, "learning_rate": 0.01},
    {"scale_rewards": True},
    {"optimizer": "rmsprop"},
]
NETWORKS: list[dict[str, Any]] = [
    {"hidden_sizes": [32, 48], "activation": "relu"},
    {"hidden_sizes": [10], "activation": "tanh"},
    {"hidden_sizes": [16, 16], "activation": "relu", "shared": True},
]


NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


@pytest.fixture(params=["native", "stacked", "graphs"])
def computed_by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Compute updates by the native library, or on the CPU as on a GPU: stacked, with or without (recorded) graphs."""
    if request.param == "native" and library.library() is None:
        pytest.skip("no C compiler")
    if request.param == "stacked":
        monkeypatch.setattr("agents.algorithms.together.STACKED", ("cpu",))
    if request.param == "graphs":
        use_recorded_graphs(monkeypatch)
    stacked_steps.forget()
    library.choose("native" if request.param == "native" else "torch")
    yield request.param
    library.choose("auto")
    stacked_steps.forget()


def players(settings: dict[str, Any], network: dict[str, Any], number: int = 3) -> list[PPO]:
    """Return players whose settings differ in numbers only."""
    made = []
    for player in range(number):
        own = {
            "clip_range": 0.1 * (1 + player),
            "value_coefficient": 0.5 + player,
            "gae_lambda": min(1.0, 0.9 + 0.03 * player),
        }
        own |= {"minibatch_size": 64, "epochs": 2, "entropy_coefficient": 0.01 * player} | settings
        policy = build_policy({"policy_gain": 1.0, **network}, *SPACES, player)
        algorithm = build_algorithm("ppo", own, policy, player)
        assert isinstance(algorithm, PPO)
        made.append(algorithm)
    return made


def batch(player: PPO, seed: int, kinds: int | None = None, masked: bool = False, parts: int = 1) -> Batch:
    """Return 200 steps of the player; with `kinds`, at most so many distinct observations.

    `parts`: trajectories, of which the last has more slots; with several, a tenth of the steps is not valid.
    """
    chance = np.random.default_rng(seed)
    trajectory = random_trajectory(player.policy, 10, 20, seed=seed)
    changed: dict[str, Any] = {}
    if kinds is not None:
        few = chance.integers(0, 2, (kinds, 7)).astype(np.float32)
        changed["observation"] = few[chance.integers(kinds, size=(10, 20))]
    if masked:
        mask = chance.random((10, 20, 4)) < 0.6
        np.put_along_axis(mask, trajectory.action[..., None], True, -1)
        changed["action_mask"] = mask
    trajectory = replace(trajectory, **changed)
    if parts == 1:
        return Batch([trajectory])
    valid = np.ones(200, np.bool_)
    valid[chance.permutation(200)[:20]] = False
    valid = valid.reshape(10, 20)
    trajectory = replace(
        trajectory,
        valid=valid,
        terminated=trajectory.terminated | ~valid,
        truncated=trajectory.truncated & valid,
        reward=trajectory.reward * valid,
    )
    cuts = [*range(0, 5 * parts, 5)]
    return Batch([trajectory.slots(slice(*one)) for one in zip(cuts, [*cuts[1:], 20], strict=True)])


def weights(player: PPO) -> torch.Tensor:
    return player.descent.parameters.values.detach().clone()


def compare(
    settings: dict[str, Any],
    network: dict[str, Any],
    rounds: int = 3,
    teachers: Sequence[Policy] = (),
    **of_batch: Any,
) -> None:
    apart, together = players(settings, network), players(settings, network)
    for one, other, teacher in zip(apart, together, teachers, strict=False):
        one.take_teacher(teacher)
        other.take_teacher(teacher)
    for number in range(rounds):
        batches = [batch(player, 10 * number + place, **of_batch) for place, player in enumerate(apart)]
        for player in (*apart, *together):
            player.take_progress(number / rounds)
        separate = [player.update(one) for player, one in zip(apart, batches, strict=True)]
        found = update_together(together, batches)
        for one, other, update, expected in zip(apart, together, found, separate, strict=True):
            assert (weights(one) - weights(other)).abs().max() < 1e-6
            assert torch.equal(one.generator.get_state(), other.generator.get_state())
            assert list(update.metrics) == list(expected.metrics)
            for name, metric in expected.metrics.items():
                assert update.metrics[name] == pytest.approx(metric, rel=1e-4, abs=1e-5), name
            for state, given in (
                (one.state()[0], other.state()[0]),
                (one.policy.state_dict(), other.policy.state_dict()),
            ):
                for name, tensor in state.items():
                    torch.testing.assert_close(given[name], tensor, rtol=1e-4, atol=1e-6)
            assert one.state()[1] == other.state()[1]


@pytest.mark.parametrize("settings", OPTIONS, ids=str)
def test_joint_updates_equal_separate_ones(settings: dict[str, Any], computed_by: str) -> None:
    compare(settings, NETWORKS[0])
    alone = settings.get("optimizer") == "rmsprop" or "learning_rates" in settings
    assert (Recorder.recordings > 0) == (computed_by == "graphs" and not alone)


@pytest.mark.usefixtures("computed_by")
@pytest.mark.parametrize("network", NETWORKS, ids=str)
@pytest.mark.parametrize("kinds", [None, 30])
@pytest.mark.parametrize("masked", [False, True])
def test_joint_updates_equal_separate_ones_for_networks_masks_and_equal_rows(
    network: dict[str, Any], kinds: int | None, masked: bool
) -> None:
    compare(OPTIONS[3], network, kinds=kinds, masked=masked)


@pytest.mark.usefixtures("computed_by")
@pytest.mark.parametrize("network", [{}, {"normalize_observations": True}], ids=str)
def test_joint_updates_equal_separate_ones_for_several_trajectories(network: dict[str, Any]) -> None:
    compare(OPTIONS[3] | {"proximal_coefficient": 0.3}, NETWORKS[0] | network, parts=3, masked=True)


@pytest.mark.usefixtures("computed_by")
def test_joint_updates_equal_separate_ones_with_teachers_of_other_shapes() -> None:
    teachers = [build_policy(network, *SPACES, 7 + place) for place, network in enumerate(NETWORKS)]
    compare({"teacher": "one", "teacher_coefficient": 0.5}, NETWORKS[0], teachers=teachers)


@pytest.mark.usefixtures("computed_by")
def test_joint_updates_equal_separate_ones_with_mostly_inactive_units() -> None:
    apart, together = players({}, NETWORKS[0]), players({}, NETWORKS[0])
    for player in (*apart, *together):
        for name, parameter in player.policy.named_parameters():
            if name.endswith("bias") and len(parameter) > 4:
                parameter.data.sub_(0.5)
    for number in range(3):
        batches = [batch(player, number, 40) for player in apart]
        for player, one in zip(apart, batches, strict=True):
            player.update(one)
        update_together(together, batches)
    assert all((weights(one) - weights(other)).abs().max() < 1e-6 for one, other in zip(apart, together, strict=True))


@pytest.mark.usefixtures("computed_by")
def test_resetting_a_player_keeps_the_moments_of_the_others() -> None:
    apart, together = players({}, NETWORKS[0]), players({}, NETWORKS[0])
    for number in range(3):
        if number == 1:  # one is reset, and one joins
            for group in (apart, together):
                group[1] = players({}, NETWORKS[0])[1]
                group.append(players({}, NETWORKS[0], 4)[3])
        batches = [batch(player, 10 * number + place) for place, player in enumerate(apart)]
        for player, one in zip(apart, batches, strict=True):
            player.update(one)
        update_together(together, batches)
    assert [int(player.descent.optimizer.state["step"]) for player in together] == [24, 16, 24, 16]
    assert all((weights(one) - weights(other)).abs().max() < 1e-6 for one, other in zip(apart, together, strict=True))


@pytest.mark.usefixtures("computed_by")
def test_a_player_whose_loss_is_not_finite_fails_alone_and_the_others_learn() -> None:
    apart, together = players({}, NETWORKS[0]), players({}, NETWORKS[0])
    batches = [batch(player, place) for place, player in enumerate(apart)]
    batches[1][0].reward[3, 2] = np.nan
    with pytest.raises(NotFinite) as alone:
        apart[1].update(batches[1])
    with pytest.raises(NotFinite) as among:
        update_together(together, batches)
    assert str(among.value) == str(alone.value)
    for place in (0, 2):
        apart[place].update(batches[place])
    assert all((weights(one) - weights(other)).abs().max() < 1e-6 for one, other in zip(apart, together, strict=True))


def test_other_algorithms_are_updated_beside_players_of_ppo() -> None:
    policy = build_policy(NETWORKS[1], *SPACES, 5)
    other = build_algorithm("a2c", {}, policy, 1)
    (player,) = players({}, NETWORKS[1], 1)
    trajectory = random_trajectory(policy, 10, 20, seed=3)
    updates = update_together([other, player], [Batch([trajectory]), batch(player, 1)])
    assert ["clip_fraction" in update.metrics for update in updates] == [False, True]


def test_updates_run_in_as_many_threads_as_torch_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    compare({}, NETWORKS[0], rounds=1)


def test_players_with_equal_networks_are_updated_by_one_call_or_as_one_stack(computed_by: str) -> None:
    made = players({}, NETWORKS[0])
    shapes = {shape_of(player, batch(player, 1)) for player in made}
    assert len(shapes) == 1
    assert None not in shapes
    whole = [WholePPO.of(player, player.begin(batch(player, 1))) is not None for player in made]
    assert whole == [computed_by == "native"] * 3


def test_an_update_of_a_stack_reads_nothing_from_the_device() -> None:
    """The device "meta" holds no numbers: reading one raises."""
    made = players({"magnet_coefficient": 0.1}, NETWORKS[0], 2)
    for player in made:
        player.policy.to("meta")
    given = [batch(player, 1, masked=True) for player in players({}, NETWORKS[0], 2)]
    alike = [build_algorithm("ppo", asdict(player.config) | {"name": "ppo"}, player.policy, 1) for player in made]
    stacked = [(player, one) for player, one in zip(alike, given, strict=True) if isinstance(player, PPO)]
    shape, other = (shape_of(*one) for one in stacked)
    assert shape is not None
    assert shape == other
    assert shape.device.type == "meta"
    stack = Stack(shape, stacked)
    stack.prepare()
    stack.run()
    assert stack.steps.told.device.type == "meta"


class Operations(TorchDispatchMode):
    """Counts the operations that compute or copy on the weights' device, and that wait for it, as if it were a GPU."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.counts[str(function)] += not function.is_view
        return function(*args, **(kwargs or {}))


def test_a_stacks_operations_do_not_grow_with_the_number_of_players(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agents.algorithms.together.STACKED", ("cpu",))
    found = []
    for number in (2, 12):
        made = players(
            {"magnet_coefficient": 0.1, "magnet_rate": 0.05, "proximal_coefficient": 0.1}, NETWORKS[0], number
        )
        batches = [batch(player, place, masked=True) for place, player in enumerate(made)]
        update_together(made, batches)
        with Operations() as operations:
            update_together(made, batches)
        found.append(operations.counts)
    few, many = found
    # These are the processor's own: orders, and the sum of the steps of all learners.
    own = {"aten.randperm.generator_out", "aten.lift_fresh.default", "aten._local_scalar_dense.default"}
    assert {name for name in many if many[name] != few[name]} <= own
    assert sum(few.values()) > 100


@NO_GPU
@pytest.mark.parametrize("settings", OPTIONS, ids=str)
@pytest.mark.parametrize("number", [1, 3])
def test_joint_updates_on_a_gpu_equal_separate_ones_on_the_cpu(settings: dict[str, Any], number: int) -> None:
    """Make six updates of eight minibatches each; the later ones run as CUDA graphs, on weights copied in."""
    here, there = (players(settings, NETWORKS[0], number) for _ in range(2))
    for place, player in enumerate(there):
        player.policy.to("cuda")
        given = asdict(player.config) | {"name": "ppo"}
        there[place] = build_algorithm("ppo", given, player.policy, place)  # type: ignore[call-overload]
    for turn in range(6):
        batches = [batch(player, 10 * turn + place) for place, player in enumerate(here)]
        for player in (*here, *there):
            player.take_progress(turn / 6)
        separate = [player.update(one) for player, one in zip(here, batches, strict=True)]
        found = update_together(there, batches)
        for one, other, update, expected in zip(here, there, found, separate, strict=True):
            torch.testing.assert_close(weights(other).cpu(), weights(one), rtol=0, atol=2e-3)
            assert update.metrics.keys() == expected.metrics.keys()
            for name, metric in expected.metrics.items():
                assert update.metrics[name] == pytest.approx(metric, rel=0.02, abs=2e-3), name
