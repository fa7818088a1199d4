"""Policies cloned from recorded games: from files of each kind, with and without a memory, stopped and resumed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from agents import checkpoints
from warren.errors import ConfigurationError, ReplayError
from workers.config.imitation import ImitationConfig
from workers.config.schema import Config, EnvConfig
from workers.evaluation import play
from workers.imitation import run as imitation
from workers.launch.folder import OUTCOME, RunFolder
from workers.replays.episodes import EpisodeRecorder, Episodes, read, write

GAMES = 12


def balanced(games: int = GAMES, env: str = "CartPole-v1") -> Episodes:
    """Return games of CartPole by a rule that balances the pole for some hundred steps: push where it falls."""
    made: Any = gymnasium.make("CartPole-v1", max_episode_steps=120)
    recorder = EpisodeRecorder(env, made.observation_space, made.action_space)
    for seed in range(games):
        (observation, _), over = made.reset(seed=seed), False
        while not over:
            action = np.int64(observation[2] + 0.5 * observation[3] > 0)
            recorder.decided(observation.copy(), action)
            observation, reward, terminated, truncated, _ = made.step(action)
            recorder.earned(float(reward))
            over = terminated or truncated
        recorder.end()
    return recorder.episodes("of a rule")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("games") / "cartpole.safetensors"
    write(path, balanced())
    return path


def config(folder: Path, data: Path, **more: Any) -> Config:
    settings = {"passes": 4, "evaluation_games": 4, **more.pop("imitation", {})}
    algorithm = {"name": "bc", "learning_rate": 3e-3, "minibatch_size": 64, **more.pop("algorithm", {})}
    network = {"name": "mlp", "hidden_sizes": [32], **more.pop("network", {})}
    return Config(
        project="cloned", trial="one", folder=str(folder), env=EnvConfig(num_envs=4), network=network,
        algorithm=algorithm, imitation=ImitationConfig(data=str(data), **settings), **more,
    )  # fmt: skip


def cloned(given: Config, stopped: Any = lambda: False) -> tuple[int, list[str], Any]:
    """Clone; return (exit status, printed lines, the Imitation)."""
    said: list[str] = []
    given = imitation.in_league(given)
    imitation.verify(given, imitation.IMITATE)
    with RunFolder.take(imitation.run_folder(given)) as folder:
        cloning = imitation.Imitation(given, folder, said.append)
        folder.begun = True
        return cloning.run(stopped), said, cloning


def test_a_clone_plays_as_well_as_the_rule_that_it_imitates(tmp_path: Path, recorded: Path) -> None:
    given = config(tmp_path, recorded, imitation={"passes": 8})
    status, said, _ = cloned(given)
    outcome = json.loads((tmp_path / "cloned/one" / OUTCOME).read_text())
    assert status == 0 and outcome["state"] == "finished"
    assert outcome["mean_return"] > 0.9 * outcome["data_return"] == 0.9 * balanced().returns.mean()
    assert any("pass 8 of 8" in line and "decided the same" in line for line in said)


@pytest.mark.parametrize("core", [None, {"name": "gru", "size": 16}], ids=["plain", "gru"])
def test_a_resumed_run_ends_after_the_same_updates(tmp_path: Path, recorded: Path, core: dict[str, Any] | None) -> None:
    more = {"network": {"core": core}, "imitation": {"passes": 2, "evaluation_games": 0}, "unroll_length": 16}
    _, _, whole = cloned(config(tmp_path / "whole", recorded, **more))
    steps = iter(range(100))
    status, said, part = cloned(config(tmp_path / "part", recorded, **more), lambda: next(steps) == 2)
    assert status == 130 and "resume=" in said[-1] and part.state.progress.updates == 3
    status, _, part = cloned(config(tmp_path / "part", recorded, **more))
    assert status == 0 and part.state.progress.updates == whole.state.progress.updates == 2 * whole.learned.updates
    if core is None:  # a memory after skipped stretches is computed by newer weights
        assert part.state.digest() == whole.state.digest()  # so the order within an update is resumed, too


def test_held_out_games_are_not_learned_from(tmp_path: Path, recorded: Path) -> None:
    given = config(tmp_path, recorded, imitation={"held_out": 0.25, "evaluation_games": 0, "passes": 1})
    with RunFolder.take(imitation.run_folder(given)) as folder:
        cloning = imitation.Imitation(given, folder, print)
        folder.begun = True
        learned, held = cloning.learned, cloning.held_out
        assert held is not None
        assert learned.decisions + held.decisions == len(balanced().reward)
        seen = [np.concatenate([t.observation[0] for t in feed.of_pass(0)]) for feed in (learned, held)]
        of_both = {row.tobytes() for row in seen[0]} & {row.tobytes() for row in seen[1]}
        assert len(seen[0]) == learned.steps and not of_both


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"observation": {"": np.zeros((3, 5), np.float32)}}, r"observation must be float32 \[3, 4\], is .*\[3, 5\]"),
        ({"observation": {"eye": np.zeros((3, 4), np.float32)}}, "observation has the parts 'eye', and must have ''"),
        ({"observation": {"": np.full((3, 4), np.nan, np.float32)}}, r"observation holds nan at \[0, 0\]"),
        ({"action": {"": np.array([0, 1, 2])}}, r"action holds 2 at \[2\]"),
        ({"action": {"": np.zeros((3, 2), np.float32)}}, "action must be int64"),
        ({"reward": np.array([0, np.nan, 0], np.float32)}, r"reward holds nan at \[1\]"),
    ],
)
def test_games_that_do_not_fit_are_one_error(tmp_path: Path, wrong: dict[str, Any], message: str) -> None:
    fields = {
        "observation": {"": np.zeros((3, 4), np.float32)}, "action": {"": np.zeros(3, np.int64)},
        "reward": np.ones(3, np.float32), "ends": np.array([1, 3]), "action_mask": None, "env": "Acrobot-v1",
    }  # fmt: skip
    path = tmp_path / "games.safetensors"
    write(path, Episodes(**(fields | wrong), source=""))
    with pytest.raises(ConfigurationError, match=rf"imitation.data: .* \(of Acrobot-v1\) does not fit .*{message}"):
        cloned(config(tmp_path, path))
    assert not (tmp_path / "cloned").exists(), "no run folder is made"


def test_a_file_of_whole_episodes_is_read_back_unchanged(tmp_path: Path) -> None:
    path, episodes = tmp_path / "games.safetensors", balanced(3)
    write(path, episodes)
    again = read(path)
    for name in ("reward", "ends"):
        np.testing.assert_array_equal(getattr(again, name), getattr(episodes, name))
    np.testing.assert_array_equal(again.observation[""], episodes.observation[""])
    assert again.env == "CartPole-v1" and len(again.first(2).reward) == episodes.ends[1]
    np.testing.assert_array_equal(again.first(2).returns, episodes.returns[:2])
    path.write_bytes(b"torn" * 10)
    with pytest.raises(ConfigurationError, match="is not a file of recorded episodes"):
        cloned(config(tmp_path, path))


@pytest.mark.parametrize(
    ("wrong", "found"),
    [
        ({"reward": np.ones((3, 2), np.float32)}, r"they are float32 \[3, 2\] and int64 \[2\]"),
        ({"ends": np.array([1.0, 3.0])}, r"they are float32 \[3\] and float64 \[2\]"),
        ({"ends": np.array([[1, 3]])}, r"they are float32 \[3\] and int64 \[1, 2\]"),
    ],
)
def test_arrays_of_other_forms_are_one_error(tmp_path: Path, wrong: dict[str, Any], found: str) -> None:
    fields = {"observation": {"": np.zeros((3, 4))}, "action": {"": np.zeros(3)}, "action_mask": None, "env": ""}
    fields |= {"reward": np.ones(3, np.float32), "ends": np.array([1, 3])}
    write(tmp_path / "games.safetensors", Episodes(**(fields | wrong), source=""))
    with pytest.raises(ReplayError, match=rf"reward must be \[decisions\] and ends int64 \[episodes\], {found}"):
        read(tmp_path / "games.safetensors")


def test_a_file_of_episodes_that_cannot_be_written_is_one_error(tmp_path: Path) -> None:
    recorder = EpisodeRecorder("mine", Box(-1.0, 1.0, (2,)), Discrete(2))
    recorder.decided(np.zeros(2, np.float32), np.int64(0))
    recorder.end()
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match=r"--record .*/file/games.safetensors: cannot be written \(.+\)"):
        play._write(tmp_path / "file/games.safetensors", recorder)


def test_settings_of_an_imitation_are_verified_together(tmp_path: Path) -> None:
    given = config(tmp_path, tmp_path / "none", imitation={"held_out": 1.0, "passes": 0, "games": 0})
    with pytest.raises(ConfigurationError) as error:
        imitation.verify(given, imitation.IMITATE)
    assert [problem.partition(":")[0] for problem in error.value.problems] == [
        "imitation.data", "imitation.games", "imitation.passes", "imitation.held_out"
    ]  # fmt: skip
    with pytest.raises(ConfigurationError, match="'ppo' needs more of each step than recorded games hold"):
        imitation.verify(config(tmp_path, tmp_path, algorithm={"name": "ppo"}), imitation.IMITATE)
    with pytest.raises(ConfigurationError, match="'bc' learns from recorded games; clone them by"):
        imitation.verify(config(tmp_path, tmp_path), "learner")


def test_holding_out_every_game_is_one_error(tmp_path: Path, recorded: Path) -> None:
    given = config(tmp_path, recorded, imitation={"games": 1, "held_out": 0.6})
    with pytest.raises(ConfigurationError, match=r"imitation.held_out: 0.6 of 1 games leaves none to learn from"):
        cloned(given)


def test_the_weights_are_an_ordinary_checkpoint(tmp_path: Path, recorded: Path) -> None:
    cloned(config(tmp_path, recorded, imitation={"passes": 1, "evaluation_games": 0}))
    newest = checkpoints.load(tmp_path / "cloned/one/checkpoints")
    assert newest.meta["network"]["name"] == "mlp" and newest.meta["environment"] == "CartPole-v1"
