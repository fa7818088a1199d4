"""Tests of trained policies from a run folder: acting, watching, playing against them."""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import gymnasium
import numpy as np
import PIL.Image
import pytest
from support.composed import configured

import envs
from agents import build_algorithm, build_policy, checkpoints
from league.models.model import checksum_of
from league.models.saved_files import INDEX, MODELS
from warren.errors import CheckpointError, ConfigurationError, UnknownName, unknown_name
from workers.config.schema import to_yaml
from workers.evaluation import play
from workers.runtime.trained import load, run_in
from workers.servers import record


def run_folder(tmp_path: Path, *overrides: str) -> Path:
    """Return a run folder that holds only its configuration."""
    (tmp_path / "config.yaml").write_text(to_yaml(configured("train", *overrides)))
    return tmp_path


@pytest.fixture
def cartpole(tmp_path: Path) -> Iterator[Path]:
    folder = run_folder(tmp_path, "network.hidden_sizes=[8]")
    policy = build_policy({"hidden_sizes": [8]}, *envs.spaces("CartPole-v1"), 5)
    checkpoints.save(folder / "checkpoints", "00000001", policy, build_algorithm("ppo", {}, policy, 0), {})
    return folder


@pytest.fixture
def nim(tmp_path: Path) -> Path:
    """Return a league's folder: main, which learned, and a frozen model of it with other weights."""
    folder = run_folder(tmp_path, "league=mine", "++league.network.hidden_sizes=[8]")
    games = envs.make_two_player("examples/nim/vectorised.py:Nim", 1, 0)
    spaces = games.single_observation_space, games.single_action_space
    network = {"hidden_sizes": [8], "activation": "relu"}
    main, old = (build_policy(network, *spaces, seed) for seed in (1, 2))
    checkpoints.save(folder / "players/main/checkpoints", "00000007", main, build_algorithm("ppo", {}, main, 0), {})
    (folder / "league" / MODELS).mkdir(parents=True)
    (folder / "league" / MODELS / "main@3.safetensors").write_bytes(checkpoints.weights_to_bytes(old, {}))
    return folder


def options(folder: Path, **given: object) -> argparse.Namespace:
    default = {
        "games": 2,
        "sample": False,
        "render": None,
        "best": False,
        "video": None,
        "record": None,
        "player": "main",
        "against": None,
        "greedy": False,
        "rated": None,
    }
    return argparse.Namespace(folder=folder, **{**default, "seat": 0, "seed": 0, **given})


def test_a_checkpoint_that_is_replaced_while_it_is_read_does_no_harm(
    cartpole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, policy = checkpoints.load, build_policy({"hidden_sizes": [8]}, *envs.spaces("CartPole-v1"), 6)

    def replaced_meanwhile(path: Path) -> checkpoints.Checkpoint:
        monkeypatch.setattr(checkpoints, "load", read)
        algorithm = build_algorithm("ppo", {}, policy, 0)
        checkpoints.save(cartpole / "checkpoints", "00000002", policy, algorithm, {}, keep=1)
        return read(path)

    monkeypatch.setattr(checkpoints, "load", replaced_meanwhile)
    assert load(cartpole).version == 2
    with pytest.raises(CheckpointError, match="of version 1; it holds 2"):
        load(cartpole, version=1)


def test_a_checkpoint_acts_as_the_policy_that_was_saved(cartpole: Path) -> None:
    trained = load(cartpole)
    env = trained.make()
    observation, _ = env.reset(seed=0)
    policy = build_policy({"hidden_sizes": [8]}, *envs.spaces("CartPole-v1"), 5)
    assert trained.act(observation) == policy.step(observation[None], mode="greedy").action[0]
    assert env.action_space.contains(trained.act(observation, greedy=False))


def test_players_of_a_league_are_loaded_by_name_learning_or_frozen(nim: Path) -> None:
    turn = load(nim).games().reset()
    for name in ("main", "main@3"):
        trained = load(nim, name)
        assert trained.two_player and trained.act(turn.observation[0], turn.action_mask[0]) in (0, 1, 2)
    assert load(nim).source != load(nim, "main@3").source
    with pytest.raises(UnknownName, match=r"player 'mian' does not exist; did you mean main"):
        load(nim, "mian")
    with pytest.raises(UnknownName, match=r"'nobody' does not exist; known: main, main@3 in .*; learning there: main"):
        load(nim, "nobody")


def test_damaged_weights_of_a_frozen_player_are_named_by_their_file(nim: Path) -> None:
    path = nim / "league" / MODELS / "main@3.safetensors"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(CheckpointError, match=f"^{path}: 100 bytes that are damaged .*; restore a backup of it$"):
        load(nim, "main@3")


def test_a_frozen_model_whose_bytes_changed_is_refused_by_the_list_of_models(nim: Path) -> None:
    path = nim / "league" / MODELS / "main@3.safetensors"
    listed = {"ref": "main@3", "parent": "", "attributes": {}, "step": 0, "created": 0.0, "frozen": True}
    entry = {**listed, "checksum": checksum_of(path.read_bytes()), "size": path.stat().st_size}
    (nim / "league" / INDEX).write_text(json.dumps([entry]))
    assert load(nim, "main@3").version == 3
    path.write_bytes(path.read_bytes()[:-1] + b"\x01")  # the weights can still be read
    with pytest.raises(CheckpointError, match=f"^{path} is damaged: .* {INDEX}; restore it from a backup$"):
        load(nim, "main@3")


def test_wrong_settings_of_a_saved_league_are_named_by_their_file(nim: Path) -> None:
    (nim / "config.yaml").write_text("league:\n  players: {main: {kind: pfps}}\n")
    with pytest.raises(ConfigurationError, match=rf"{nim}/config\.yaml: "):
        load(nim)


def test_a_place_follows_an_unknown_name_of_too_many_to_be_listed() -> None:
    said = unknown_name("player", "nobody", [f"main@{i}" for i in range(30)], "in runs/nim; learning there: main")
    assert said == "player 'nobody' does not exist in runs/nim; learning there: main"


def test_a_folder_that_cannot_be_loaded_is_explained(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"is not a run folder \(it has no config\.yaml\); name one"):
        load(tmp_path)
    with pytest.raises(CheckpointError, match="holds no checkpoint yet"):
        load(run_folder(tmp_path))


def test_watching_prints_what_each_episode_returned(cartpole: Path) -> None:
    said: list[str] = []
    assert play.run(options(cartpole), say=said.append) == 0
    assert said[1].startswith("episode 1: return ") and said[-1].startswith("mean return ")


class Drawn(gymnasium.Env[np.ndarray, int]):
    """An environment of three steps per episode, with a picture of each."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}
    observation_space = gymnasium.spaces.Box(-1, 1, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode, self.steps = render_mode, 0

    def reset(self, *, seed: int | None = None, options: object = None) -> tuple[np.ndarray, dict[str, object]]:
        self.steps = 0
        return np.zeros(4, np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, object]]:
        self.steps += 1
        return np.zeros(4, np.float32), 1.0, self.steps == 3, False, {}

    def render(self) -> np.ndarray:
        assert self.render_mode == "rgb_array"
        return np.full((32, 48, 3), 40 * self.steps, np.uint8)


@pytest.mark.parametrize("kind", [".gif", ".mp4"])
def test_watching_films_what_the_environment_draws(cartpole: Path, tmp_path: Path, kind: str) -> None:
    if kind == ".mp4":
        pytest.importorskip("cv2")
    said: list[str] = []
    film = tmp_path / f"film{kind}"
    play.watch(
        replace(load(cartpole), settings=envs.EnvSettings(f"{__file__}:Drawn")), 2, None, True, said.append, film
    )
    assert f"6 frames are in {film}" in said
    if kind == ".gif":
        with PIL.Image.open(film) as image:
            assert (image.n_frames, image.size) == (6, (48, 32))
    else:
        import cv2

        read = cv2.VideoCapture(str(film))
        assert [read.read()[0] for _ in range(7)] == [True] * 6 + [False]


def test_a_film_of_another_kind_is_refused_before_anything_is_played(cartpole: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"film\.avi: it must end in \.gif or \.mp4"):
        play.run(options(cartpole, video=tmp_path / "film.avi"), say=lambda line: None)


class Blind(Drawn):
    """An environment without an argument render_mode."""

    def __init__(self) -> None:
        super().__init__()


def test_a_film_of_what_takes_no_render_mode_is_refused_with_the_remedy(cartpole: Path) -> None:
    trained = replace(load(cartpole), settings=envs.EnvSettings(f"{__file__}:Blind"))
    with pytest.raises(ConfigurationError, match=r"^--render human: .* takes no argument render_mode; leave --render"):
        play.watch(trained, 1, "human", True, [].append)


def test_a_window_is_refused_where_the_environment_draws_none(cartpole: Path) -> None:
    trained = replace(load(cartpole), settings=envs.EnvSettings(f"{__file__}:Drawn"))
    with pytest.raises(ConfigurationError, match=r"^--render human: .* as rgb_array alone; film it by --video FILE$"):
        play.watch(trained, 1, "human", True, [].append)


def test_no_episodes_at_all_are_refused(cartpole: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"--games: 0 is too few; use 1 at least"):
        play.run(options(cartpole, games=0), say=[].append)


class Undrawable(Drawn):
    """An environment whose pictures need a package that is not installed."""

    def render(self) -> np.ndarray:
        raise gymnasium.error.DependencyNotInstalled('pygame is not installed, run `pip install "gymnasium[classic]"`')


def test_a_package_that_a_film_lacks_is_named_with_the_film(cartpole: Path, tmp_path: Path) -> None:
    trained = replace(load(cartpole), settings=envs.EnvSettings(f"{__file__}:Undrawable"))
    said: list[str] = []
    film = tmp_path / "film.gif"
    with pytest.raises(ConfigurationError, match=r"--video .*film\.gif: pygame is not installed, run `.*pip install"):
        play.watch(trained, 2, None, True, said.append, film)
    assert said == [f"filming 2 episodes to {film}: every step is drawn, which takes longer than to play it"]


@pytest.mark.parametrize(
    "given",
    [{"seed": 1}, {"greedy": True}, {"against": "main@3"}, {"seat": None}, {"rated": "ann"}],
)
def test_options_of_two_players_are_refused_for_one_agent(cartpole: Path, given: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError, match=rf"--{next(iter(given))}: CartPole-v1 is played by one agent"):
        play.run(options(cartpole, **given), say=[].append)


def test_a_player_of_a_run_without_a_league_is_refused(cartpole: Path) -> None:
    said = r"player 'rival': .* is of no league, and has one policy; leave out the player"
    for asked in (lambda: load(cartpole, "rival"), lambda: play.run(options(cartpole, player="rival"))):
        with pytest.raises(ConfigurationError, match=said):
            asked()


@pytest.mark.parametrize("given", [{"sample": True}, {"render": "human"}, {"video": Path("film.gif")}])
def test_options_of_one_agent_are_refused_for_two_players(nim: Path, given: dict[str, object]) -> None:
    for what in (nim, Path("openspiel:tic_tac_toe")):
        with pytest.raises(ConfigurationError, match=rf"--{next(iter(given))}: .* is a game of two players"):
            play.run(options(what, against=None, **given), say=[].append)


def test_the_newest_run_of_a_folder_is_loaded(cartpole: Path) -> None:
    newest = cartpole / "20260102-000000-aaaa"
    for name in ("20260101-000000-bbbb", newest.name):
        (cartpole / name).mkdir()
        (cartpole / name / "config.yaml").write_text((cartpole / "config.yaml").read_text())
    (cartpole / "config.yaml").unlink()
    (cartpole / "checkpoints").rename(newest / "checkpoints")
    assert load(cartpole).source.is_relative_to(newest)


def test_the_newest_run_is_the_one_that_was_started_last(cartpole: Path, tmp_path: Path) -> None:
    """Check that names do not matter, and that a run that ended without a checkpoint is passed over."""
    runs = tmp_path / "runs" / "cartpole"
    when = {"compose": 1000.0, "20260101-000000-bbbb": 3000.0, "20260102-000000-aaaa": 2000.0, "zz-ended": 4000.0}
    for name in (*when, "zz-never-began"):
        shutil.copytree(cartpole, runs / name, ignore=lambda *_: ["runs"])
        if name.startswith("zz"):
            shutil.rmtree(runs / name / "checkpoints")
    for name, started in when.items():
        (runs / name / record.STARTED).write_text(json.dumps({"started_at": started}))
    (runs / "zz-ended" / "outcome.json").write_text("{}")
    assert run_in(runs).name == "20260101-000000-bbbb"
    assert run_in(runs.parent) == run_in(runs), "the folder of all runs will do"
    (runs / "zz-ended" / "outcome.json").unlink()
    assert run_in(runs).name == "zz-ended", "it may be running, and has not saved yet"
    for name in when:
        (runs / name / record.STARTED).unlink()
    again = build_policy({"hidden_sizes": [8]}, *envs.spaces("CartPole-v1"), 5)
    checkpoints.save(runs / "compose/checkpoints", "00000002", again, build_algorithm("ppo", {}, again, 0), {})
    assert run_in(runs).name == "compose", "without start times, the run that saved last"


def test_a_person_plays_and_is_asked_again_after_a_wrong_move(nim: Path) -> None:
    said: list[str] = []
    answers = iter(["7", "\u00b2", "", *["0"] * 200])
    assert play.run(options(nim, games=1), lambda _: next(answers), said.append) == 0
    for wrong in ("7", "\u00b2", ""):
        assert f"{wrong!r} is not one of them; type a number of the list, or Ctrl-D to leave" in said
    assert "15 stones are left; 0 takes one of them, 1 two, 2 three" in said
    assert said[-1] in ("you: +1.00 a game against main", "you: -1.00 a game against main")


def test_leaving_ends_the_game_without_an_error(nim: Path) -> None:
    def leave(_: str) -> str:
        raise EOFError

    assert play.run(options(nim), leave, [].append) == 0


def test_two_players_of_a_league_play_each_other(nim: Path) -> None:
    said: list[str] = []
    assert play.run(options(nim, against="main@3", seat=1, games=3), say=said.append) == 0
    assert sum("is over" in line for line in said) == 3 and said[-1].startswith("main@3: ")


@pytest.mark.parametrize("env_id", ["openspiel:kuhn_poker", "openspiel:connect_four", "pettingzoo:tictactoe_v3"])
def test_every_source_of_games_shows_text_to_a_person(env_id: str) -> None:
    games = envs.make_two_player(env_id, 1, 0)
    turn = games.reset()
    assert games.text(0).strip()
    assert games.action_text(0, int(np.flatnonzero(turn.action_mask[0])[0]))


@pytest.mark.parametrize("example", ["nim/nim.py:Nim", "kuhn/kuhn.py:Kuhn"])
@pytest.mark.parametrize("hidden", [False, True])
def test_a_person_is_not_told_hidden_moves(example: str, hidden: bool, tmp_path: Path) -> None:
    source, name = example.split(":")
    code = (Path(envs.__file__).parents[1] / "examples" / source).read_text()
    (file := tmp_path / "shown.py").write_text(f"{code}\n\n{name}.hidden_moves = {hidden}\n")
    said: list[str] = []
    assert play.run(options(Path(f"{file}:{name}"), games=1), lambda _: "0", said.append) == 0
    theirs = [line for line in said if line.startswith("player 1 ")]
    assert theirs and all((line == "player 1 has moved") == hidden for line in theirs)
    assert "player 0 plays 0" in said


def test_openspiels_phantom_games_hide_moves() -> None:
    hidden = [envs.make_two_player(f"openspiel:{game}", 1, 0).hidden_moves for game in ("phantom_ttt", "tic_tac_toe")]
    assert hidden == [True, False]


def test_a_named_game_is_played_by_names_of_moves_to_its_result() -> None:
    said: list[str] = []
    game = options(Path("openspiel:tic_tac_toe"), games=2, seat=None)
    prompts: list[str] = []

    def ask(prompt: str) -> str:
        prompts.append(prompt)
        return prompt.split(" (")[1].split(")")[0] + ")"  # the first move, by its name: x(0,0)

    assert play.run(game, ask, said.append) == 0
    assert prompts[0].startswith("your move as player 0, one of 0 (x(0,0)), 1 (x(0,1))")
    assert "game 1: you are player 0, uniform is player 1" in said
    assert "game 2: uniform is player 0, you are player 1" in said
    ends = [place for place, line in enumerate(said) if "is over" in line]
    assert len(ends) == 2
    for end in ends:
        assert any(said[end].endswith(how) for how in ("; you won", "; uniform won", "; a draw"))
        assert said[end - 1].count("\n") == 2, "the board at the end"
    assert said[-1].startswith("you: ")


@pytest.mark.parametrize("leaving", [EOFError, KeyboardInterrupt])
def test_leaving_prints_the_score_so_far(nim: Path, leaving: type[BaseException]) -> None:
    said: list[str] = []

    def ask(_: str) -> str:
        if any(line.startswith("game 2: ") for line in said):
            raise leaving
        return "0"

    assert play.run(options(nim), ask, said.append) == 0
    assert said[-2] == "you left during game 2" and said[-1].startswith("you: ")


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"against": "runs/none"}, "--against runs/none: for openspiel:tic_tac_toe, name a run folder"),
        ({"folder": Path("openspiel:tic_tac_to")}, "did you mean openspiel:tic_tac_toe"),
    ],
)
def test_a_missing_opponent_or_game_is_one_message(changed: dict[str, object], expected: str) -> None:
    given = argparse.Namespace(**{**vars(options(Path("openspiel:tic_tac_toe"))), **changed})
    with pytest.raises(ConfigurationError, match=expected):
        play.run(given, say=lambda line: None)


def test_a_league_of_another_game_is_no_opponent(nim: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"its players were trained on .*Nim, not on openspiel:tic_tac_toe"):
        play.run(options(Path("openspiel:tic_tac_toe"), against=str(nim)), say=lambda line: None)
