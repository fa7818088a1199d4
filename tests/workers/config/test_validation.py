"""Wrong settings are reported all at once, before anything starts, with name, value and remedy."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from support.composed import configured

import envs
from agents import build_algorithm, build_policy, checkpoints
from league.models.snapshots import STREAM
from warren.errors import ConfigurationError
from workers.config.run_names import name_run, run_folder
from workers.config.schema import Config
from workers.config.validation import verify
from workers.leagues.service import saved_league
from workers.runtime.league_paths import league_folder
from workers.servers.ports import free_port

Problems = Callable[..., list[str]]


@pytest.fixture
def configure(tmp_path: Path) -> Callable[..., Config]:
    return lambda *overrides: configured("train", f"folder={tmp_path}", *overrides)


@pytest.fixture
def problems(configure: Callable[..., Config]) -> Problems:
    def find(*overrides: str, role: str = "train") -> list[str]:
        try:
            verify(configure(*overrides), role)
        except ConfigurationError as error:
            return error.problems
        return []

    return find


def test_the_defaults_are_valid(problems: Problems) -> None:
    assert problems() == []


def test_every_problem_is_reported_at_once(problems: Problems, tmp_path: Path) -> None:
    (tmp_path / "cartpol").write_text("a file where the project's folder should be")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        found = problems(
            *("actors=0", "env.num_envs=0", "round_timeout=0", "log_level=LOUD", "run=a.b", "trial=../x"),
            *("env.id=CartPol-v1", "env.goal_episodes=0", f"flower_port={port}"),
        )
    for culprit, value, remedy in (
        ("actors:", "0", "at least 1"),
        ("env.num_envs:", "0", "at least 1"),
        ("env.goal_episodes:", "0", "give 1 to"),
        ("round_timeout:", "0", "more than 0 seconds"),
        ("log_level:", "'LOUD'", "DEBUG, INFO"),
        ("run:", "'a.b'", "letters, digits"),
        ("trial:", "'../x'", "letters, digits"),
        ("env.id:", "CartPol-v1", "CartPole-v1"),
        ("folder:", str(tmp_path / "cartpol"), "choose another folder"),
        ("flower_port:", str(port), "choose another"),
    ):
        (line,) = [line for line in found if line.startswith(culprit)]
        assert value in line
        assert remedy in line
    assert len(found) == 10


@pytest.mark.parametrize(
    "name",
    ["actors", "unroll_length", "batch_segments", "total_steps", "learner_threads", "checkpoints_kept"],
)
def test_a_number_that_must_be_positive_may_not_be_zero(problems: Problems, name: str) -> None:
    assert f"{name}: 0 is too small; it must be at least 1" in problems(f"{name}=0", "sampling=streaming")


@pytest.mark.parametrize("name", ["max_staleness", "restarts", "seed", "actor_id"])
def test_a_number_that_may_be_zero_may_not_be_negative(problems: Problems, name: str) -> None:
    assert problems(f"{name}=0") == []
    assert problems(f"{name}=-1") == [f"{name}: -1 is too small; it must be at least 0"]


@pytest.mark.parametrize("override", ["seed=1e20", "actors=1e5", "env.num_envs=1e8", "total_steps=1e30"])
def test_absurdly_large_number_is_refused(problems: Problems, override: str) -> None:
    name, _, value = override.partition("=")
    (line,) = problems(f"{name}={int(float(value))}")
    assert line.startswith(f"{name}: {int(float(value))} is too large; it must be at most ")


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_goal_is_a_finite_return(problems: Problems, value: str) -> None:
    assert problems(f"env.goal={value}") == [
        f"env.goal: {value} is not a return; give a finite number, or null for a run without a goal"
    ]


@pytest.mark.parametrize("name", ["round_timeout", "checkpoint_every", "grace", "seconds"])
@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf"])
def test_a_time_span_is_finite_and_above_zero(problems: Problems, name: str, value: str) -> None:
    (line,) = problems(f"{name}={value}")
    assert line.startswith(f"{name}: ")


def test_a_gathered_round_takes_one_segment_per_actor(problems: Problems) -> None:
    (line,) = problems("actors=2", "batch_segments=3")
    assert line.startswith(
        "batch_segments: 3 is not read with sampling=gathered, whose rounds take one segment of each of"
    )
    assert problems("actors=2", "batch_segments=3", "sampling=streaming") == []


def test_a_minibatch_larger_than_the_batch_is_explained_with_the_arithmetic(problems: Problems) -> None:
    (line,) = problems("actors=1", "unroll_length=8", "env.num_envs=2")
    assert "algorithm.minibatch_size: 256 is more than the 16 steps of an update" in line
    assert "segments 1 x unroll_length 8 x env.num_envs 2" in line


def test_a_bonus_is_refused_where_it_cannot_be_added_to_the_reward(problems: Problems) -> None:
    bonus = "algorithm.rnd_coefficient=1"
    for name in ("ppo", "a2c", "appo", "impala"):
        assert problems(f"algorithm={name}", bonus, "learners=2") == []
    assert problems("experiment=kuhn", f"+league.{bonus}") == []
    (line,) = problems("algorithm=dqn", f"+{bonus}")
    assert line.startswith("setting of dqn 'rnd_coefficient' does not exist")
    values = problems(bonus, "+env.reward_channels={win: 1, style: 0.1}", "env.channel_values=true")
    assert [line for line in values if "rnd_coefficient=1" in line and "with env.channel_values there are 2" in line]
    (line,) = problems(bonus, "+algorithm.rnd_network.core={name: lstm, size: 4}")
    assert line == "rnd_network of ppo: it has no memory here; leave out its core"


def test_near_names_are_suggested(problems: Problems) -> None:
    assert "ppo" in problems("algorithm.name=pp")[0]
    assert "mlp" in problems("network.name=mpl")[0]


def test_a_port_must_be_from_1_to_65535(problems: Problems) -> None:
    assert problems("flower_port=70000") == ["flower_port: 70000 is not a port; it must be from 1 to 65535"]
    assert problems(f"flower_port={free_port()}") == []


def test_a_role_that_joins_a_run_must_name_it(problems: Problems) -> None:
    (line,) = problems(role="actor")
    assert line.startswith("run: not given")
    assert problems("run=some-run", role="actor") == []


@pytest.mark.parametrize("role", ["learner", "league", "evaluator"])
def test_a_role_that_writes_into_the_run_folder_must_name_the_trial(problems: Problems, role: str) -> None:
    (line,) = problems("run=some-run", "league=rps", role=role)
    assert line.startswith("trial: not given")
    assert problems("run=some-run", "league=rps", "trial=some-trial", role=role) == []


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("algorithm.minibatch_size=4096", "more than the 2048 decisions of an update"),
        ("cell_most=-1", "cell_most=-1 of the league must be at least 1"),
        ("memory_bound=0", "memory_bound=0 of the league must be at least 1"),
        ("cell_error=nan", "cell_error=nan of the league must be above 0"),
        ("mixture_against=all", "mixture_against of the league 'all'"),
        ("mixture_against=best_responses", "needs evaluation=exact, which computes them; evaluation is games"),
        ("earned_share=0.5", "earned_share=0.5 changes how many decisions each player makes; give seconds="),
        ("earned_share=1.0", "earned_share=1.0 of the league must be within 0 and below 1"),
        ("lease=inf", "lease=inf of the league must be more than 0 seconds, and finite"),
        ("goal=nan", "goal=nan of the league is not an exploitability"),
        ("players={x y: {kind: pfsp}}", "player 'x y': its name must be"),
        ("players.main.config={checkpoint_min_steps: many}", "checkpoint_min_steps='many' is not a number of steps"),
        ("players.main.config.checkpoint_min_steps=2%", "checkpoint_min_steps=2%, checkpoint_max_steps="),
        ("players.main.config={checkpoint_max_steps: 120%}", "a share of the run, above 0% and up to 100%, as 2%"),
    ],
)
def test_wrong_settings_of_a_league_are_named(problems: Problems, setting: str, message: str) -> None:
    (line,) = problems("experiment=rps", f"++league.{setting}")
    assert message in line


@pytest.mark.parametrize("role", ["train", "evaluator"])
@pytest.mark.parametrize(
    ("env", "reason"),
    [
        ("openspiel:connect_four", "has more than 2,000,000 histories"),
        ("openspiel:phantom_ttt", "histories"),
        ("pettingzoo:connect_four_v3", "sequence_form(**parameters) that returns an envs.sequence_form.SequenceForm"),
    ],
)
def test_goal_is_refused_for_games_too_large_to_solve(problems: Problems, role: str, env: str, reason: str) -> None:
    given = ("league=rps", f"league.env={env}", "trial=some-trial", *(("run=some-run",) if role != "train" else ()))
    assert problems(*given, "++league.goal=null", role=role) == []
    (line,) = problems(*given, "++league.goal=0.1", role=role)
    assert line.startswith("league: goal=0.1 is an exploitability, and cannot be reached: ")
    assert reason in line and line.endswith("(league.goal=null) the run ends by seconds or total_steps")


def test_exact_payoffs_are_refused_for_a_game_without_a_sequence_form(problems: Problems) -> None:
    given = ("league=rps", "trial=some-trial", "++league.goal=null", "league.evaluation=exact")
    assert problems(*given) == []
    (line,) = problems(*given, "league.env=pettingzoo:connect_four_v3")
    assert line.startswith("league: evaluation=exact computes payoffs from the whole game: ")
    assert line.endswith("for others use evaluation=pairs or games")


def test_a_league_is_restored_only_with_returns_of_the_same_kind(problems: Problems, tmp_path: Path) -> None:
    (tmp_path / "league.jsonl").write_text('{"id": "1-0", "fields": {"event": "restored"}}\n')
    given = ("league=rps", "trial=some-trial", f"restore={tmp_path}")
    assert problems(*given) == []
    (tmp_path / "returns.json").write_text("[[0, 1, 64, 3.0, 64.0], [1, 0, 64, -3.0, 64.0]]")
    (line,) = problems(*given)
    assert line == f"league.evaluation: returns of {tmp_path} are of 'pairs', not of 'games'; give pairs"
    assert problems(*given, "league.evaluation=pairs") == []
    (tmp_path / "mixture.json").write_text('{"settings": {"source": "games"}, "largest": 1.0}')  # names the source
    assert problems(*given) == []


def test_a_goal_of_a_small_game_is_accepted(problems: Problems) -> None:
    assert problems("experiment=kuhn") == []


def test_a_league_worker_that_keeps_no_folder_needs_no_trial(problems: Problems) -> None:
    assert problems("run=some-run", "league=rps", "league_id=1", role="league") == []


def test_a_resumed_league_goes_on_from_its_own_folder_not_from_restore(
    configure: Callable[..., Config], problems: Problems, tmp_path: Path
) -> None:
    given = ("league=rps", "trial=some-trial", f"restore={tmp_path / 'first'}")
    (line,) = problems(*given)
    assert line.startswith("restore: ")
    config = configure(*given)
    assert saved_league(config) == tmp_path / "first"
    league_folder(config).mkdir(parents=True)
    (league_folder(config) / STREAM).write_text(json.dumps({"id": "1-0", "fields": {"event": "created"}}) + "\n")
    assert saved_league(config) == league_folder(config)
    assert problems(*given) == []


@pytest.mark.parametrize("content", ["", '{"id": "1-0", "fie'])
def test_a_stream_that_a_crash_left_empty_is_no_league_to_resume(
    content: str, configure: Callable[..., Config], problems: Problems, tmp_path: Path
) -> None:
    given = ("league=rps", "trial=some-trial", f"restore={tmp_path / 'first'}")
    config = configure(*given)
    league_folder(config).mkdir(parents=True)
    (league_folder(config) / STREAM).write_text(content)
    assert saved_league(config) == tmp_path / "first"
    (line,) = problems(*given)
    assert line.startswith("restore: ")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_reported(problems: Problems, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert "is not writable" in problems()[0]


def save_checkpoint(config: Config) -> None:
    observation_space, action_space = envs.spaces(config.env.id)
    policy = build_policy(config.network, observation_space, action_space, 1)
    algorithm = build_algorithm(config.algorithm["name"], config.algorithm, policy, 1)
    checkpoints.save(run_folder(config) / "checkpoints", "00000001", policy, algorithm, {"progress": {}}, keep=1)


def test_a_checkpoint_of_another_network_is_refused_and_one_of_this_is_not(
    configure: Callable[..., Config], problems: Problems
) -> None:
    save_checkpoint(configure("trial=t", "network.hidden_sizes=[16]"))
    assert problems("trial=t", "network.hidden_sizes=[16]") == []
    (line,) = problems("trial=t", "network.hidden_sizes=[32]")
    assert line.startswith("resume: ")
    assert "00000001" in line


def test_a_run_with_only_a_damaged_checkpoint_is_refused(configure: Callable[..., Config], problems: Problems) -> None:
    config = configure("trial=t")
    save_checkpoint(config)
    (path,) = (run_folder(config) / "checkpoints").glob("*.safetensors")
    path.write_bytes(path.read_bytes()[:-100])
    (line,) = problems("trial=t")
    assert line == f"resume: no checkpoint in {path.parent} is whole; delete that folder to train from the start"
    save_checkpoint(config)
    assert problems("trial=t") == []


def test_two_runs_of_one_trial_have_different_names_on_the_servers(configure: Callable[..., Config]) -> None:
    names = set()
    for _ in range(3):
        config = configure("project=a.b", "trial=t")
        name_run(config)
        assert config.trial == "t"
        assert config.run is not None
        verify(config, "train")
        names.add(config.run)
    assert len(names) == 3


def test_a_long_project_still_makes_a_run_name(configure: Callable[..., Config]) -> None:
    config = configure(f"project={'p' * 100}", "trial=t")
    name_run(config)
    verify(config, "train")


def test_unnamed_trials_get_different_names(configure: Callable[..., Config]) -> None:
    first, second = configure(), configure()
    name_run(first)
    name_run(second)
    assert first.trial != second.trial
    assert run_folder(first).parent == run_folder(second).parent


@pytest.mark.parametrize("rate", ["-0.01", "1.5", "nan"])
def test_event_rate_is_a_share_from_0_to_1(problems: Problems, rate: str) -> None:
    (line,) = problems(f"event_rate={rate}")
    assert line.startswith("event_rate: ") and line.endswith("is not a share of the calls; it must be from 0 to 1")


def test_problems_of_network_algorithm_and_numbers_are_reported_at_once(problems: Problems) -> None:
    found = problems("algorithm.minibatch_size=0", "network.activation=gelu2", "seconds=-1", "env.id=CartPol-v1")
    assert len(found) == 4
    for message in ("seconds: -1", "env.id: environment 'CartPol-v1'", "activation 'gelu2'", "minibatch_size=0 of ppo"):
        assert [problem for problem in found if message in problem]


def test_a_game_of_two_players_without_a_league_is_refused_with_the_remedy(problems: Problems) -> None:
    (line,) = problems("env.id=openspiel:kuhn_poker")
    assert line == (
        "env.id: environment 'openspiel:kuhn_poker' is a game of two players, which a league trains: "
        "league=mine league.env=openspiel:kuhn_poker in place of env.id=openspiel:kuhn_poker"
    )


def test_a_one_agent_game_that_drives_itself_is_refused_by_a_league(problems: Problems) -> None:
    (line,) = problems("league=mine", "league.env=gamecore:examples/gamecore/actor.py:CartPole")
    assert line.startswith("league: environment 'gamecore:examples/gamecore/actor.py:CartPole' is of one agent")
    assert line.endswith("env.id=gamecore:examples/gamecore/actor.py:CartPole sampling=streaming")


NIM = ("experiment=nim_gamecore",)


def test_a_league_of_a_game_that_drives_itself_is_accepted(problems: Problems) -> None:
    assert problems(*NIM) == []


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        (["sampling=gathered"], "sampling: gathered asks actors to play, and league.env=gamecore:"),
        (["sampling=served"], "sampling: served asks actors to play, and league.env=gamecore:"),
        (["league.evaluation_share=0.2"], "league: evaluation=games, evaluation_share=0.2: evaluators step the games"),
        (["league.references=[uniform]"], "league: references=['uniform']: evaluators step games against them, and "),
        (["league.replay_every=1"], "league: replay_every, replay_upsets and replay_evaluations: the process"),
        (["+league.players.main.minimax=0.1"], "league: minimax=0.1 of player 'main' is of games that actors step"),
        (["league.goal=0.1"], "league: goal=0.1 is an exploitability, and cannot be reached: environment 'gamecore:"),
        (["+league.players.a.kind=psro"], "league: player 'a': kind psro goes by returns of games that evaluators"),
        (["+league.players.main_exploiter.config.freeze=returns"], "league: player 'main_exploiter': kind main_exp"),
    ],
)  # fmt: skip
def test_settings_that_need_stepped_games_are_refused_by_name(
    problems: Problems, overrides: list[str], line: str
) -> None:
    found = problems(*NIM, *overrides)
    assert [problem[: len(line)] for problem in found] == [line], found


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ('sides = ("red",)', "sides=('red',) must be two or more sides"),
        ('sides = "red"', "sides='red' must be two or more sides"),
        ('sides = ("red", "red")', "no name twice"),
        ('sides = ("red", ())', "each an agent's name or several"),
        ("sides = 2", "sides=2 must be two or more sides"),
        ('sides, action_space = ("red", "blue"), Box(-1, 1, (2,))', "a league's actions are Discrete"),
    ],
)
def test_wrong_sides_of_a_game_that_drives_itself_are_refused(
    problems: Problems, tmp_path: Path, declared: str, message: str
) -> None:
    path = tmp_path / "game.py"
    path.write_text(
        "from gymnasium.spaces import Box, Discrete\n"
        "from workers.gateway import Actor\n"
        "class Game(Actor):\n"
        "    observation_space, action_space = Box(-1, 1, (2,)), Discrete(2)\n"
        f"    {declared}\n"
    )
    (line,) = problems(*NIM, f"league.env=gamecore:{path}:Game")
    assert line.startswith(f"league: actor '{path}:Game'") and message in line


def test_an_environment_that_fails_in_its_first_steps_is_refused_at_the_start(
    problems: Problems, tmp_path: Path
) -> None:
    path = tmp_path / "failing.py"
    path.write_text(
        "import gymnasium, numpy as np\n"
        "class Failing(gymnasium.Env):\n"
        "    observation_space, action_space = gymnasium.spaces.Box(-1, 1, (2,)), gymnasium.spaces.Discrete(2)\n"
        "    def reset(self, seed=None, options=None): return np.zeros(2), {}\n"
        "    def step(self, action): return [][action]\n"
    )
    (line,) = problems(f"env.id={path}:Failing")
    assert line.startswith("env.id: ") and line.endswith("failing.py:5: IndexError: list index out of range")
    assert problems(f"env.id={path}:Failing", "run=some-run", role="actor") == [], "its launcher has checked it"


def test_servers_elsewhere_need_their_urls(problems: Problems, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WARREN_BROKER_URL", "WARREN_REDIS_URL"):
        monkeypatch.delenv(name, raising=False)
    assert problems("broker=external") == [
        "broker=external needs a broker URL; set WARREN_BROKER_URL",
        "broker=external needs a Redis URL; set WARREN_REDIS_URL",
    ]


@pytest.mark.parametrize(
    ("env_id", "project", "goal"),
    [
        ("CartPole-v1", "cartpole", 475),
        ("Acrobot-v1", "acrobot", -100),
        ("gym:CartPole-v0", "cartpole", 195),
        ("Pendulum-v1", "pendulum", None),
        ("ALE/Pong-v5", "pong", None),
        ("path/to/my_game.py:Game", "game", None),
    ],
)
def test_project_and_goal_come_from_the_environment(
    configure: Callable[..., Config], env_id: str, project: str, goal: float | None
) -> None:
    config = configure(f"env.id={env_id}")
    assert (config.project, config.env.goal) == (project, goal)
    config = configure(f"env.id={env_id}", "project=other", "env.goal=7")
    assert (config.project, config.env.goal) == ("other", 7)


def test_a_leagues_project_is_its_games_name(configure: Callable[..., Config]) -> None:
    assert configure("league=leduc").project == "leduc_poker"
    assert configure("league=rps", "league.env='openspiel:goofspiel?num_cards=4'").project == "goofspiel"
    assert configure("experiment=kuhn").project == "kuhn"


def test_spaces_that_no_policy_accepts_are_refused_with_the_remedy(problems: Problems, tmp_path: Path) -> None:
    assert problems("env.id=Taxi-v4") == [], "Discrete observations are accepted"
    path = tmp_path / "spaces.py"
    path.write_text(
        "import gymnasium, numpy as np\n"
        "from gymnasium.spaces import Box, Dict, Discrete, Text\n"
        "class Words(gymnasium.Env):\n"
        "    observation_space, action_space = Box(-1, 1, (2,), np.float32), Text(3)\n"
        "    def reset(self, seed=None, options=None): return np.zeros(2, np.float32), {}\n"
        "    def step(self, action): return np.zeros(2, np.float32), 0.0, False, False, {}\n"
        "class Parts(Words):\n"
        "    action_space = Dict({'move': Discrete(2)})\n"
    )
    (line,) = problems(f"env.id={path}:Words")
    assert "action space Text(" in line and "gymnasium.wrappers.TransformObservation or TransformAction" in line
    assert problems(f"env.id={path}:Parts") == [], "Dict actions are accepted"
    assert problems("env.id=CartPole-v1", "+network.core.name=gru") == []
    (line,) = problems("env.id=CartPole-v1", "+network.core.name=gru", "algorithm.minibatch_size=5")
    assert "minibatch_size: 5 is less than one unroll of unroll_length 64" in line


@pytest.mark.parametrize("algorithm", ["algorithm=impala", "algorithm=a2c"])
def test_an_algorithm_without_minibatches_takes_a_memory(problems: Problems, algorithm: str) -> None:
    assert problems(algorithm, "+network.core.name=lstm") == []


def test_privileged_keys_must_be_keys_of_observations(problems: Problems) -> None:
    (line,) = problems("+network.privileged=[state]")
    assert "privileged=['state'] of the network names keys of observations, and these are Box(" in line


def test_a_burn_in_needs_a_memory_and_steps_that_follow_it(problems: Problems) -> None:
    (line,) = problems("algorithm.burn_in=8")
    assert "algorithm.burn_in: 8 steps are to bring a memory up to date" in line
    (line,) = problems("algorithm.burn_in=64", "+network.core.name=gru")
    assert "burn_in: 64 steps leave none to learn from of an unroll of unroll_length 64" in line
    assert problems("algorithm.burn_in=32", "+network.core.name=gru", "algorithm.minibatch_size=40") == []


def test_an_environments_settings_are_checked_with_all_others(problems: Problems, tmp_path: Path) -> None:
    found = problems(
        *("env.id=CartPol-v1", "env.vectorization=sink", "env.preprocessing=attari", "env.workers=9", "env.num_envs=4"),
        *("env.frame_stack=0", "env.reward_clip=-1", "actors=0"),
    )
    for culprit, words in (
        ("env.vectorization:", "did you mean sync?"),
        ("env.preprocessing:", "did you mean atari?"),
        ("env.workers:", "9 processes for env.num_envs=4"),
        ("env.frame_stack:", "at least 1"),
        ("env.reward_clip:", "more than 0, or null"),
        ("env.id:", "CartPole-v1"),
        ("actors:", "at least 1"),
    ):
        (line,) = [line for line in found if line.startswith(culprit)]
        assert words in line
    assert len(found) == 7
    found = problems("env.grey=true", "env.resize=84", "actors=0")
    assert [line.partition(":")[0] for line in found] == ["actors", "env.grey", "env.resize"]
    (line,) = problems("env.id=Acrobot-v1", "env.vectorization=library")
    assert line.startswith("env.vectorization=library: environment 'Acrobot-v1' has none")


def test_environment_settings_have_the_same_defaults_in_both_places() -> None:
    assert Config().env.settings() == envs.EnvSettings("CartPole-v1")


def test_a_missing_device_is_refused_only_where_it_is_needed(problems: Problems) -> None:
    (line,) = problems("device=cuda:99")
    assert line.startswith("device='cuda:99' is not there: this machine has cpu") and line.endswith("or device=auto")
    assert problems("actor_device=gpu") == ["actor_device='gpu' is not a device; use auto, cpu, cuda, cuda:N or mps"]
    assert problems("device=auto", "actor_device=auto") == []
    assert problems("device=cuda:99", "run=some-run", role="actor") == []


def test_precision_and_compiler_are_checked_before_a_learner_starts(
    problems: Problems, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    precision, compiler = problems("precision=half", "compile=true")
    assert precision == "precision='half' is not a precision; use float32 or bfloat16"
    assert compiler.startswith("compile=true needs a C++ compiler, and there is no no-such-compiler")
    assert problems("precision=half", "compile=true", "run=some-run", role="actor") == []


def test_an_algorithm_that_does_not_suit_the_sampling_is_refused(problems: Problems) -> None:
    assert problems("algorithm=a2c", "sampling=gathered") == []
    (problem,) = problems("algorithm=a2c", "sampling=streaming")
    assert "'a2c' does not suit sampling=streaming, since it takes the gradient of the weights that acted" in problem


def test_a_leagues_algorithm_that_needs_unknown_fields_is_refused(problems: Problems, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from agents import Needs\nfrom agents.algorithms import ppo\n"
        "class Mine(ppo.PPO):\n    needs = Needs(fields=('extras.q',))\n"
        "def build(settings, policy, seed): return Mine(policy, ppo.PPOConfig(), seed)\n"
    )
    (problem,) = problems("experiment=kuhn", f"++league.algorithm.name={tmp_path / 'mine.py'}:build")
    assert problem.startswith("league: algorithm: ") and "needs 'extras.q' of each trajectory" in problem


def test_publish_every_is_refused_with_gathered_sampling(problems: Problems) -> None:
    assert problems("sampling=streaming", "publish_every=0.5") == []
    (problem,) = problems("publish_every=0.5")
    assert problem.startswith("publish_every: 0.5 is not read with sampling=gathered")
    (problem,) = problems("sampling=streaming", "publish_every=-1")
    assert problem.startswith("publish_every: -1.0 is not a time span")


def test_runs_that_cannot_be_deterministic_are_refused_with_the_reason(problems: Problems) -> None:
    assert problems("deterministic=true") == []
    (problem,) = problems("deterministic=true", "sampling=streaming")
    assert "where an update has the segments that arrive first" in problem
    (problem,) = problems("deterministic=true", "experiment=kuhn")
    assert problem.startswith("deterministic: true is not read in a league")


def test_compression_must_exist_and_suit_the_allreduce_backend(problems: Problems) -> None:
    assert problems("learners=2", "compression=topk", "top_k=0.001", "allreduce=torch") == []
    assert problems("learners=2", "compression=bf16") == []
    found = problems("learners=2", "compression=zip", "top_k=0")
    assert [one.partition(":")[0] for one in found] == ["compression", "top_k"]
    assert "'zip' is not one of none, fp16, bf16, topk" in found[0]
    by_horovod = problems("learners=2", "compression=bf16", "allreduce=horovod")
    assert "compression: bf16 is refused by allreduce=horovod; use fp16 with it, or allreduce=torch" in by_horovod


@pytest.mark.parametrize("mode", ["private", "install", "embedded"])
def test_servers_that_other_hosts_cannot_reach_are_refused(problems: Problems, mode: str) -> None:
    two = "++hosts={master: {actors: 1}, box-2: {actors: 1}}"
    (problem,) = problems(f"broker={mode}", two)
    assert problem.startswith(
        f"broker: {mode} starts servers that only this machine reaches, and hosts has master, box-2"
    )
    assert problems(f"broker={mode}", "++hosts={master: {actors: 2}}") == []
    assert problems("broker=auto", two) == []


def test_the_learners_of_one_player_are_checked_like_those_of_all(problems: Problems) -> None:
    two = ("experiment=rps", "+league.players.main.learners=2")
    assert problems(*two, "actors=2") == []
    (unequal,) = problems(*two, "actors=3")
    assert unequal.startswith(
        "league.players.main.learners: 2 cannot share the 3 segments of an update equally; choose"
    )
    assert problems(*two, "learner_id=1", "run=r", "trial=t", role="learner") == []
    (none,) = problems(*two, "learner_id=1", "player=main_exploiter", "run=r", "trial=t", role="learner")
    assert "learner_id: 1 is not one of the 1 learners" in none
    (twice,) = problems(*two, "++hosts={master: {learners: 2}}")
    assert "leave out the one or the other" in twice
    assert any(
        "learners=0 of player 'main'" in one for one in problems("experiment=rps", "+league.players.main.learners=0")
    )


def test_wrong_settings_of_served_sampling_are_refused_with_the_reason(problems: Problems) -> None:
    assert problems("sampling=served", "algorithm=impala") == []
    assert problems("sampling=served", "experiment=kuhn") == []
    assert problems("sampling=streaming", "experiment=leduc", "algorithm=impala") == []
    for given, role, message in (
        (("env.num_envs=5",), "train", "env.num_envs: 5 cannot be split into the two equal groups"),
        (("env.num_envs=4", "env.workers=3"), "train", "env.workers: 3 is more than the 2 environments of a group"),
        (("served_memory=actors",), "train", "did you mean actor?"),
        (("experiment=kuhn", "served_memory=travelling"), "train", "served_memory: travelling does not fit a league"),
        (("algorithm=a2c",), "train", "does not suit sampling=served"),
        (("env_runners=0",), "train", "env_runners: 0 is too small"),
        (("sampling=streaming", "run=r"), "env", "sampling: streaming has no env runners"),
    ):
        found = problems("sampling=served", *given, role=role)
        assert any(message in problem for problem in found), (given, found)


def test_a_league_of_hundreds_of_engines_is_refused_with_settings_that_fit(
    problems: Problems, monkeypatch: pytest.MonkeyPatch
) -> None:
    """512 games of football take an actor 47 MB and a quarter of a second each before it plays."""
    found = problems("league=mine", "league.env=football:1_vs_1_easy")
    assert [line.partition(":")[0] for line in found] == [
        "league.games", "league.evaluation_games", "league.reference_games"
    ]  # fmt: skip
    assert all("as league=engines league.env=football:1_vs_1_easy does" in line for line in found)
    rps = envs.make_two_player("matrix:rps", 1, 0)
    monkeypatch.setattr("envs.make_two_player", lambda *given, **kwargs: rps)  # stands in where football is not built
    monkeypatch.setattr("workers.config.validation.check", lambda *given, **kwargs: None)
    assert problems("league=engines", "league.env=football:1_vs_1_easy") == []


def test_a_wrong_initial_checkpoint_is_named(problems: Problems, tmp_path: Path) -> None:
    (line,) = problems("league=rps", f"+league.players.main.initial={tmp_path / 'none'}")
    assert line.startswith(f"league: players.main.initial: {tmp_path / 'none'} does not exist; name a run folder")
    assert problems("league=rps", "+league.players.main.initial=main@3") == []
    assert problems("league=rps", "+league.players.main_exploiter.initial=main") == []
    (line,) = problems("league=rps", "+league.players.main.initial=main")
    assert "initial=main of player 'main' is the player itself" in line


def test_a_replay_of_the_users_own_is_checked_with_all_else(problems: Problems) -> None:
    own = ("experiment=cartpole_dqn", "replay.buffer=/nope.py:build", "actors=0")
    actors, buffer = problems(*own)
    assert actors.startswith("actors: 0") and buffer == "replay.buffer '/nope.py:build': there is no file /nope.py"
    assert problems(*own[:2], "run=r", role="actor") == [], "an actor draws nothing"
