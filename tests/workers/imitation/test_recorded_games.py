"""Recorded games of a league and of Minari's datasets, as episodes to imitate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.played import NETWORK, play_match
from test_imitation import balanced, cloned, config

import envs
from agents import build_policy
from warren.errors import ConfigurationError, ReplayError
from workers.config import initial_weights, teachers
from workers.config.schema import Config, to_yaml
from workers.launch.folder import OUTCOME
from workers.replays.folder import FOLDER, ReplayWriter
from workers.replays.match_episodes import decisions
from workers.replays.minari import file_in, read
from workers.runtime.trained import load

GAME = "openspiel:tic_tac_toe"
LEAGUE = {"env": GAME, "players": {"main": {"kind": "self_play"}}, "network": NETWORK}


@pytest.fixture
def league(tmp_path: Path) -> Path:
    folder = tmp_path / "league"
    folder.mkdir()
    (folder / "config.yaml").write_text(to_yaml(Config(trial="t", league=LEAGUE)))
    writer = ReplayWriter(folder / FOLDER, 1 << 20)
    writer.append([play_match(GAME)[0].to_bytes()])
    writer.close()
    return folder


def test_each_seat_of_a_game_is_an_episode_of_its_own_decisions(league: Path, one_thread: None) -> None:
    record, both, one = play_match(GAME)[0], decisions(league), decisions(league, "main@0")
    assert len(both.reward) == sum(len(game.actions) for game in record.games)
    assert len(both.ends) == 2 * len(record.games) == 2 * len(one.ends)
    np.testing.assert_array_equal(one.returns, [game.returns[1 - game.home] for game in record.games])
    first = record.games[0]
    np.testing.assert_array_equal(both.action[""][: both.ends[0]], first.actions[0::2])
    assert both.action_mask is not None
    assert both.action_mask[np.arange(len(both.reward)), both.action[""]].all()
    assert (np.diff(both.action_mask[: both.ends[0]].sum(1)) == -2).all(), "each pair of moves takes two fields"
    assert len(decisions(league, games=3).ends) == 3
    with pytest.raises(ReplayError, match="no recorded games of 'nobody'; it has games of main, main@0"):
        decisions(league, "nobody")


def test_a_clone_can_be_loaded_as_player_initial_weights_and_teacher(
    tmp_path: Path, league: Path, one_thread: None
) -> None:
    given = config(
        tmp_path,
        league,
        league=LEAGUE,
        network={},
        imitation={"player": "main@0", "passes": 150, "evaluation_games": 8},
    )
    status, said, _ = cloned(given)
    folder = tmp_path / "cloned/one"
    assert status == 0 and "against a player of any legal move" in said[-1]
    assert json.loads((folder / OUTCOME).read_text())["games"] == 8
    (folder / "config.yaml").write_text(to_yaml(given))  # `run` writes it
    trained = load(folder, "main")
    shown = decisions(league, "main@0")
    policy = build_policy(NETWORK, *envs.spaces(GAME), 99)
    initial_weights.load(str(folder / "players/main"), policy, "main")
    teacher, _ = teachers.load(str(folder / "players/main"), policy, None)
    for clone in (trained.policy, policy, teacher):
        action = clone.step(shown.observation[""], mode="greedy", action_mask=shown.action_mask).action
        assert (action == shown.action[""]).mean() > 0.6, "chance would agree in about three of nine"


def dataset(folder: Path, **more: Any) -> Path:
    """Write games of CartPole as Minari does: a group per episode, with one observation more than steps."""
    h5py = pytest.importorskip("h5py", reason="h5py is not installed")
    found = balanced(3)
    (folder / "data").mkdir(parents=True)
    with h5py.File(folder / "data/main_data.hdf5", "w") as file:
        for number, (start, end) in enumerate(zip(found.starts, found.ends, strict=True)):
            group = file.create_group(f"episode_{number}")
            seen = found.observation[""][start:end]
            group["observations"] = np.concatenate([seen, seen[-1:]])
            group["actions"], group["rewards"] = found.action[""][start:end], found.reward[start:end].astype(np.float64)
            group["terminations"] = group["truncations"] = np.zeros(end - start, np.bool_)
    (folder / "data/metadata.json").write_text(json.dumps({"env_spec": json.dumps({"id": "CartPole-v1"})}))
    return folder


@pytest.mark.parametrize("part", ["", "data", "data/main_data.hdf5"])
def test_a_dataset_of_minari_is_found_and_read(tmp_path: Path, part: str) -> None:
    path = file_in(dataset(tmp_path / "cartpole/expert-v0") / part)
    assert path is not None
    found, expected = read(path), balanced(3)
    np.testing.assert_array_equal(found.observation[""], expected.observation[""])
    np.testing.assert_array_equal(found.action[""], expected.action[""])
    assert found.returns.tolist() == expected.returns.tolist() and found.env == "CartPole-v1"
    assert len(read(path, games=2).ends) == 2


def test_a_dataset_is_imitated_as_a_file_is(tmp_path: Path) -> None:
    data = dataset(tmp_path / "expert")
    status, said, _ = cloned(config(tmp_path, data, imitation={"passes": 1, "evaluation_games": 0}))
    assert status == 0 and "3 games, " in said[0]


def test_parts_of_spaces_have_the_names_of_their_leaves(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py", reason="h5py is not installed")
    path = tmp_path / "data.hdf5"
    with h5py.File(path, "w") as file:
        group = file.create_group("episode_0")
        group["observations/eye"], group["observations/hand/_index_0"] = np.zeros((3, 2)), np.arange(3)
        group["actions"], group["rewards"] = np.zeros((2, 1)), np.ones(2)
        file.create_group("other")
    found = read(path)
    assert {name: leaf.shape for name, leaf in found.observation.items()} == {"eye": (2, 2), "hand/0": (2,)}


def test_a_file_that_is_no_dataset_is_one_error(tmp_path: Path) -> None:
    pytest.importorskip("h5py", reason="h5py is not installed")
    path = tmp_path / "games.hdf5"
    path.write_bytes(b"nothing of the kind")
    with pytest.raises(ConfigurationError, match=r"imitation.data: .*games\.hdf5 is not a dataset of Minari"):
        cloned(config(tmp_path, path))


def test_a_dataset_whose_arrays_differ_in_length_is_one_error(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py", reason="h5py is not installed")
    data = dataset(tmp_path / "expert")
    with h5py.File(data / "data/main_data.hdf5", "a") as file:
        actions = file["episode_1/actions"][:-1]
        del file["episode_1/actions"]
        file["episode_1/actions"] = actions
    with pytest.raises(ConfigurationError, match=r"imitation.data: .*main_data.hdf5 is damaged: its arrays are not"):
        cloned(config(tmp_path, data))
