"""Masks of legal actions from plain environments: every form is read, and no forbidden action is played."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space, iterate

import envs
from agents import Trajectory, build_algorithm, build_policy
from envs import EnvSettings
from envs.checking import first_steps, one_agent
from envs.checking.report import Report
from envs.masks import Masks, WrongMask
from warren.errors import ConfigurationError, WireError
from warren.trees import leaves
from workers.rollout.vector_sampler import VectorSampler

ACTIONS: dict[str, spaces.Space[Any]] = {
    "discrete": spaces.Discrete(5, start=2),
    "multi": spaces.MultiDiscrete([3, 2, 4]),
    "square": spaces.MultiDiscrete([[2, 3], [4, 2]]),
    "binary": spaces.MultiBinary(3),
    "dict": spaces.Dict({"move": spaces.Discrete(3), "aim": spaces.Box(-1, 1, (2,)), "use": spaces.MultiBinary(2)}),
    "tuple": spaces.Tuple((spaces.Discrete(2), spaces.MultiDiscrete([2, 3]))),
}


class Choosy(gymnasium.Env):
    """An environment that fails at forbidden actions, which change at each step; `form`: how it gives the mask."""

    def __init__(self, actions: str = "discrete", form: str = "info", length: int = 7, fault: str = "") -> None:
        self.action_space = ACTIONS[actions]
        self.seen = spaces.Box(-1, 1, (2,), np.float32)
        self.masks, self.form, self.length, self.fault = Masks(self.action_space), form, length, fault
        keys = {"observation": self.seen, "action_mask": spaces.MultiBinary(self.masks.size)}
        if form == "keys":
            keys["clock"] = spaces.Discrete(length + 1)
        self.observation_space = self.seen if form in ("info", "flat") else spaces.Dict(keys)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.count = 0
        return self.tell()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert allowed(self.action_space, self.legal, action), f"{action} is forbidden"
        self.count += 1
        observation, info = self.tell()
        return observation, 1.0, self.count == self.length, False, info

    def tell(self) -> tuple[Any, dict[str, Any]]:
        row = self.np_random.random(self.masks.size) < 0.4
        for name, part in self.masks._parts.items():
            del name
            for choice in np.split(row[part.places], part._begins[1:]):
                choice[self.np_random.integers(len(choice))] = True
        if self.fault and self.count == 2:
            row[:] = False
        self.legal = part_forms(self.masks, row)
        seen = np.full(2, self.count / 10, np.float32)
        if self.form in ("info", "flat"):
            given = self.legal if self.form == "info" else row.astype(np.int8)
            return seen, {} if self.fault == "none" and self.count == 2 else {"action_mask": given}
        keys = {"observation": seen, "action_mask": row.astype(np.int8)}
        return keys | ({"clock": self.count} if self.form == "keys" else {}), {}


def part_forms(masks: Masks, row: np.ndarray) -> Any:
    """Return a row in gymnasium's form, which `sample` takes."""
    return masks._parts[""].form(row) if masks._bare else masks._form(masks.space, "", row)


def allowed(space: spaces.Space[Any], form: Any, action: Any) -> bool:
    match space:
        case spaces.Dict() | spaces.Tuple():
            keys = space.spaces if isinstance(space, spaces.Dict) else range(len(space))
            return all(allowed(space[key], form[key], action[key]) for key in keys)
        case spaces.Discrete():
            return bool(form[action - space.start])
        case spaces.MultiDiscrete():
            each = zip(np.ravel(action), flat(form), strict=True)
            return all(part[chosen] for chosen, part in each)
        case spaces.MultiBinary():
            return bool(((form == 2) | (form == action)).all())
    return form is None


def flat(form: Any) -> list[Any]:
    return [one for part in form for one in (flat(part) if isinstance(part, tuple) else [part])]


class ChoosyVector(gymnasium.vector.VectorEnv):
    """A user's own vector of Choosy, with masks as rows."""

    def __init__(self, num_envs: int, **kwargs: Any) -> None:
        self.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}
        self.envs, self.num_envs = [Choosy(length=10**6, **kwargs) for _ in range(num_envs)], num_envs
        self.single_observation_space, self.single_action_space = self.envs[0].observation_space, ACTIONS["discrete"]
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return self.batch([env.reset(seed=one) for env, one in zip(self.envs, seed, strict=True)])

    def step(self, actions: Any) -> Any:
        told = [env.step(action) for env, action in zip(self.envs, iterate(self.action_space, actions), strict=True)]
        no = np.zeros(self.num_envs, bool)
        observation, info = self.batch([(one[0], one[-1]) for one in told])
        return observation, np.ones(self.num_envs), no, no, info

    def batch(self, told: list[Any]) -> tuple[Any, dict[str, Any]]:
        if isinstance(told[0][0], dict):
            return {key: np.stack([one[0][key] for one in told]) for key in told[0][0]}, {}
        masks = np.stack([one[1]["action_mask"] for one in told])
        return np.stack([one[0] for one in told]), {"action_mask": masks}


def sampler_of(num_envs: int = 3, env: str = "Choosy", **kwargs: Any) -> tuple[VectorSampler, Any]:
    vector = envs.make_vector(EnvSettings(f"{__file__}:{env}", kwargs), num_envs, 5)
    policy = build_policy({}, vector.single_observation_space, vector.single_action_space, 1)
    return VectorSampler(vector, policy, 3), policy


@pytest.mark.parametrize(
    ("actions", "form"),
    [(name, form) for name in ACTIONS for form in ("info", "key")]
    + [("multi", "flat"), ("dict", "flat"), ("dict", "keys")],
)
def test_a_forbidden_action_is_never_drawn_and_ppo_learns_under_the_masks(actions: str, form: str) -> None:
    sampler, policy = sampler_of(actions=actions, form=form)  # Choosy fails at an action that it has forbidden
    if form in ("key", "keys"):
        assert ("action_mask" in str(policy.observation_space), "clock" in str(policy.observation_space)) == (
            False, form == "keys",
        )  # fmt: skip
    trajectory = Trajectory.from_dict(sampler.collect(20).to_dict(), policy.spec(legal_actions=True))
    assert not all(mask.all() for _, mask in leaves(trajectory.action_mask))
    seen = map_leaves(lambda part: torch.from_numpy(part).flatten(0, 1), trajectory.observation)
    action, mask = (map_leaves(lambda part: torch.from_numpy(part).flatten(0, 1), tree)
                    for tree in (trajectory.action, trajectory.action_mask))  # fmt: skip
    said = policy.evaluate(seen, action, mask)
    np.testing.assert_allclose(said.log_prob.detach(), trajectory.extras["log_prob"].ravel(), atol=1e-5)
    metrics = build_algorithm("ppo", {"minibatch_size": 60, "epochs": 1}, policy, 0).update([trajectory]).metrics
    assert all(map(np.isfinite, metrics.values()))


def map_leaves(function: Any, tree: Any) -> Any:
    return {name: function(part) for name, part in tree.items()} if isinstance(tree, dict) else function(tree)


@pytest.mark.parametrize("form", ["info", "key"])
def test_a_users_own_vector_gives_masks_as_rows(form: str) -> None:
    sampler, policy = sampler_of(env="ChoosyVector", form=form)
    trajectory = Trajectory.from_dict(sampler.collect(20).to_dict(), policy.spec(legal_actions=True))
    assert trajectory.action_mask.shape == (20, 3, 5) and not trajectory.action_mask.all()


def test_masks_are_ignored_if_action_masks_is_false() -> None:
    settings = EnvSettings(f"{__file__}:Choosy", {"form": "key"}, action_masks=False)
    assert envs.describe(settings).masks is False
    assert "action_mask" in envs.spaces(settings)[0].spaces  # type: ignore[attr-defined]
    assert envs.describe("CartPole-v1").masks is False and envs.describe("Taxi-v4").masks is True


@pytest.mark.parametrize(
    ("space", "given", "row"),
    [
        ("discrete", [1, 0, 1, 1, 0], [1, 0, 1, 1, 0]),
        ("multi", ([1, 0, 0], [1, 1], [0, 0, 0, 1]), [1, 0, 0, 1, 1, 0, 0, 0, 1]),
        ("multi", [1, 0, 0, 1, 1, 0, 0, 0, 1], [1, 0, 0, 1, 1, 0, 0, 0, 1]),
        ("binary", [0, 1, 2], [1, 0, 0, 1, 1, 1]),
        ("binary", [1, 0, 0, 1, 1, 1], [1, 0, 0, 1, 1, 1]),
        ("dict", {"move": [0, 1, 1], "use": None, "aim": None}, [0, 1, 1, 1, 1, 1, 1]),
        ("dict", {"use": [0, 2]}, [1, 1, 1, 1, 0, 1, 1]),
        ("tuple", ([1, 0], ([0, 1], [1, 1, 0])), [1, 0, 0, 1, 1, 1, 0]),
    ],
)
def test_every_form_of_a_mask_becomes_one_row(space: str, given: Any, row: list[int]) -> None:
    masks = Masks(ACTIONS[space])
    assert masks.row(given).tolist() == [bool(one) for one in row]  # gymnasium sorts keys: aim, move, use
    assert (masks.row(part_forms(masks, masks.row(given))) == masks.row(given)).all()


@pytest.mark.parametrize(
    ("space", "given", "said"),
    [
        ("discrete", [True] * 4, r"an action_mask of 4 numbers; Discrete\(5, start=2\) has 5 choices"),
        ("discrete", [0, 1, 2, 0, 0], "its numbers are True or False, 1 or 0"),
        ("discrete", [False] * 5, "which leaves no legal action"),
        ("discrete", "all", "which is not of numbers"),
        ("multi", ([1, 1, 1], [0, 0], [1, 1, 1, 1]), "which leaves no legal action"),
        ("binary", [0, 1, 3], "is of 0, 1 and 2"),
        ("dict", {"move": [1]}, "an action_mask of 1 numbers for action 'move'"),
        ("dict", [1, 1], "an action_mask of 2 numbers; Dict"),
    ],
)
def test_a_wrong_mask_is_reported_in_one_sentence(space: str, given: Any, said: str) -> None:
    with pytest.raises(WrongMask, match=said):
        Masks(ACTIONS[space]).row(given)


@pytest.mark.parametrize(
    ("fault", "said"),
    [("empty", "leaves no legal action; copy 0 of 3|leaves no legal action"), ("none", "gave no action_mask")],
)
def test_a_wrong_mask_during_an_episode_names_the_environment(fault: str, said: str) -> None:
    sampler, _ = sampler_of(fault=fault)
    with pytest.raises(ConfigurationError, match=rf"step\(\) gave .*({said.removeprefix('gave ')})"):
        sampler.collect(5)
    with pytest.raises(ConfigurationError, match=said):
        first_steps._step(EnvSettings(f"{__file__}:Choosy", {"fault": fault}))


def test_an_action_that_its_mask_forbids_is_refused_on_arrival() -> None:
    sampler, policy = sampler_of(actions="multi")
    data = sampler.collect(4).to_dict()
    data["action"][2, 1, 1] = 0
    data["action_mask"][2, 1, 3:5] = [False, True]
    with pytest.raises(WireError, match=r"action\.1 holds 0 at \[2, 1\], which its mask forbids"):
        Trajectory.from_dict(data, policy.spec(legal_actions=True))


def test_the_check_plays_by_masks_and_reports_them(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(one_agent, "VECTOR_SECONDS", 0.1)
    report = Report()
    one_agent.check(report, EnvSettings(f"{__file__}:Choosy", {"actions": "dict", "length": 50}), 200)
    assert not report.problems
    assert "of 7 choices legal a step" in capsys.readouterr().out
