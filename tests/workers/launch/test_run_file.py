"""Tests of the file of a run: its forms, settings from the command line, hosts, and one error for all problems."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from warren.errors import ConfigurationError
from workers.launch.kinds import services_run
from workers.launch.kinds.run_file import RunFile, read
from workers.launch.kinds.services_spec import services

ACTOR = """
from tasks.service import Worker, event_handler, service
class Actor(Worker):
    def __init__(self, lr=0.1, **kwargs): super().__init__()
    @service
    def act(self, state): return 0
    @event_handler("policy_update")
    def load(self, weights): pass
class NoWorker: pass
"""
PLAIN = """
services:
  - {name: Actor, path: actor.py, num: 2, kwargs: {lr: 1e-3}}
envs:
  - {name: game, path: env.py, num: 3}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "actor.py").write_text(ACTOR)
    (tmp_path / "env.py").write_text(
        "def play(level=1): pass\nraise SystemExit('an environment is not to be imported')"
    )
    return tmp_path


@pytest.fixture
def reading(folder: Path) -> Callable[..., tuple[RunFile, list[str]]]:
    def act(text: str, *settings: str) -> tuple[RunFile, list[str]]:
        (folder / "run.yaml").write_text(text)
        return read(folder / "run.yaml", settings)

    return act


@pytest.fixture
def refused(folder: Path) -> Callable[..., str]:
    """Return a function that returns the problems that `python -m workers.run` finds in a file's text."""

    def act(text: str, *settings: str, host: str | None = None) -> str:
        (folder / "run.yaml").write_text(text)
        with pytest.raises(ConfigurationError) as refusal:
            services_run.run(SimpleNamespace(file=str(folder / "run.yaml"), settings=list(settings), host=host))
        return "\n".join(refusal.value.problems)

    return act


def test_entries_have_names_places_numbers_and_arguments(reading, folder):
    file, problems = reading(PLAIN)
    assert problems == []
    actor, game = file.entries
    assert (actor.name, actor.num, actor.kwargs, actor.finite) == ("Actor", 2, {"lr": 0.001}, False)
    assert actor.place == (str(folder / "actor.py"), None)
    assert (game.name, game.num, game.finite) == ("game", 3, True)


def test_entries_may_be_written_by_name_and_a_number_defaults_to_one(reading):
    file, problems = reading(
        "services: {Actor: {path: actor.py}}\nenvs: {game: {path: 'env.py:play', kwargs: {level: 2}}}"
    )
    assert problems == []
    assert [(entry.name, entry.num, entry.place.attribute) for entry in file.entries] == [
        ("Actor", 1, None),
        ("game", 1, "play"),
    ]


def test_settings_of_the_command_line_win(reading):
    given = ("Actor.num=5", "Actor.kwargs.lr=0.5", "run=mine", "broker=private", "restarts=0", "metrics_port=0")
    file, problems = reading(PLAIN, *given)
    assert problems == []
    assert (file.entries[0].num, file.entries[0].kwargs["lr"]) == (5, 0.5)
    assert (file.run, file.broker, file.restarts) == ("mine", "private", 0)
    assert services(file, None, [], []).metrics == ("127.0.0.1", 0)
    assert services(reading(PLAIN)[0], None, [], []).metrics is None


def test_all_problems_are_reported_at_once(refused):
    message = refused(
        """
        services:
          - {name: Actor, path: acter.py}
          - {name: NoWorker, path: actor.py}
          - {name: Learner, path: actor.py, num: 0}
          - {name: Other, path: "actor.py:Actor", kwargs: [1]}
          - {path: actor.py}
        envs:
          - {name: game, path: env.py, nun: 3}
          - {name: game}
          - {name: fun, path: "env.py:plya"}
          - {name: script, path: env.py, kwargs: {level: 2}}
        brokr: private
        restarts: -1
        """
    )
    for expected in (
        "services.Actor.path: file 'acter.py' does not exist; did you mean actor.py",
        "services.NoWorker: NoWorker in",
        "has no service: mark a method of it with @service",
        "services.Learner.num: 0 is not a number of processes; use an integer of at least 1",
        "services.Other.kwargs: [1] is not a table of arguments",
        "services[4]: name: missing",
        "envs.game.nun: key 'nun' does not exist; did you mean num?",
        "envs.game.path: missing",
        "game: two entries have this name",
        "envs.fun.path: function 'plya' does not exist; did you mean play?",
        "envs.script.kwargs: a script takes none",
        "setting 'brokr' does not exist; did you mean broker?",
        "restarts: -1 is not a number of restarts",
    ):
        assert expected in message
    assert len(message.splitlines()) == 12


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("Acter.num=2", "did you mean Actor.num"),
        ("Actor.nums=2", "did you mean Actor.num"),
        ("Actor.num=many", "services.Actor.num: 'many' is not a number of processes"),
        ("Actor.kwargs.lr", "is not a setting; write settings as name=value"),
        ("broker=privat", "broker: 'privat' does not exist; did you mean private?"),
        ("run=a.b", "run: 'a.b' cannot name a run"),
        ("log_level=LOUD", "log_level: 'LOUD' is not one of DEBUG"),
        ("metrics_port=70000", "metrics_port: 70000 is not a port; it must be from 1 to 65535, or 0"),
    ],
)
def test_a_wrong_setting_is_named_with_what_would_be_right(reading, setting, expected):
    _, problems = reading(PLAIN, setting)
    assert len(problems) == 1 and expected in problems[0]


def test_code_that_cannot_be_imported_is_named_by_its_line(refused, folder):
    (folder / "actor.py").write_text("import os\nimport no_such_module_at_all\n")
    message = refused(PLAIN)
    assert f"at {folder / 'actor.py'}:2: ModuleNotFoundError" in message


def test_arguments_that_the_constructor_does_not_take_or_lacks_are_named(refused, folder):
    (folder / "actor.py").write_text(
        "from tasks.service import Worker, service\nclass Actor(Worker):\n"
        "    def __init__(self, size, depth=1): super().__init__()\n    @service\n    def act(self): pass\n"
    )
    message = refused("services: [{name: Actor, path: actor.py, kwargs: {dept: 2}}]")
    assert "argument 'dept' does not exist; did you mean depth?" in message
    assert "argument 'size' is missing" in message


def test_a_class_without_services_is_refused(refused, folder):
    (folder / "actor.py").write_text("from tasks.service import Worker\nclass Actor(Worker): pass\n")
    assert "no method is a service" in refused(PLAIN)


HOSTS = """
services: [{name: Actor, path: actor.py}]
envs: [{name: game, path: env.py, num: 3}]
hosts:
  master: {Actor: 1, game: 1}
  box-2: {Actor: 2, game: 2}
"""


def test_oneagents_names_are_accepted(reading):
    file, problems = reading(
        """
        services: [{name: Actor, path: actor.py}]
        environments: [{name: game, path: env.py}]
        master: {Actor: 1, game: 1}
        slaves: {box-2: {Actor: 2, game: 2}}
        """
    )
    assert problems == [] and file.leader == "master"
    assert [entry.num for entry in file.entries] == [3, 3]
    file, problems = reading("environments: [{name: game, path: env.py}]\nmaster: {game: 1}\nslave: {game: 1}")
    assert problems == [] and list(file.hosts) == ["master", "slave"]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            "master: 10.0.0.1",
            "master: '10.0.0.1' is not a table; write what that host starts, as in master: {Actor: 2}",
        ),
        ("environments: []", "environments: the file has envs as well"),
    ],
)
def test_refused_settings_of_oneagent_are_explained(reading, more, message):
    _, problems = reading(PLAIN + more)
    assert len(problems) == 1 and message in problems[0]


def test_the_classes_of_the_example_refuse_arguments_that_they_do_not_know():
    file, problems = read(Path("examples/dqn/dqn.yaml"), ["Learner.kwargs.dueling=true"])
    assert problems == [] and services_run.examine(file)[2] == []
    file, problems = read(Path("examples/dqn/dqn.yaml"), ["Learner.kwargs.duelling=true"])
    assert problems == []
    (problem,) = services_run.examine(file)[2]
    assert "argument 'duelling' does not exist; did you mean dueling?" in problem


def test_hosts_start_their_shares_with_consecutive_ranks(reading):
    file, problems = reading(HOSTS)
    assert problems == [] and file.leader == "master"
    assert [entry.num for entry in file.entries] == [3, 3]
    ranks = {host: {share.entry.name: (share.first, share.count) for share in file.shares(host)} for host in file.hosts}
    assert ranks == {"master": {"Actor": (0, 1), "game": (0, 1)}, "box-2": {"Actor": (1, 2), "game": (1, 2)}}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("num: 3", "num: 4"), "game: num is 4, and the hosts start 3"),
        (
            ("box-2: {Actor: 2, game: 2}", "box-2: {Acter: 2}"),
            "hosts.box-2: entry 'Acter' does not exist; did you mean",
        ),
        (("game: 2", "game: two"), "hosts.box-2.game: 'two' is not a number of processes"),
        (("{Actor: 2, game: 2}", "2"), "hosts: write the name of each host with what it starts"),
        (("Actor: 1, game: 1", "game: 1"), ""),
        (("{Actor: 2, game: 2}", "{Actor: 2, game: 2}\njoin: x"), "join: does not fit a file with hosts"),
    ],
)
def test_hosts_that_do_not_fit_the_entries_are_refused(reading, change, expected):
    _, problems = reading(HOSTS.replace(*change))
    assert problems == [] if not expected else expected in problems[0]


@pytest.mark.parametrize(
    ("text", "host", "expected"),
    [
        (HOSTS, "box-3", "host 'box-3' does not exist; did you mean box-2?"),
        (HOSTS, None, "give the name of this machine, one of master, box-2, with --host NAME"),
        (PLAIN, "master", "has no hosts"),
        (PLAIN + "join: other", "a.b", "is not a name"),
    ],
)
def test_a_host_has_to_be_one_of_the_file(reading, text, host, expected):
    file, problems = reading(text)
    _, problem = services_run.host_of(file, host)
    assert problems == [] and expected in problem[0]


def test_a_host_that_joins_another_files_run_needs_its_own_name(reading):
    file, _ = reading(PLAIN + "join: other")
    assert services_run.host_of(file, "box-9") == ("box-9", [])
    assert services_run.host_of(file, None)[0]


def test_an_unreadable_an_empty_and_a_missing_file_are_reported(refused, folder):
    assert "cannot be read" in refused("services: [")
    assert "nothing to run" in refused("run: x")
    with pytest.raises(ConfigurationError, match=r"file .* does not exist"):
        read(folder / "dqn.yml")
    with pytest.raises(ConfigurationError, match=rf"file {folder}: is a folder; .*, such as {folder}/run\.yaml"):
        read(folder)


def test_middleware_are_classes_in_files_beside_the_run_file(reading, folder):
    (folder / "trace.py").write_text("class Trace: pass\n")
    file, problems = reading(PLAIN + "middleware: ['trace.py:Trace', 'tasks.middleware:Middleware']\n")
    assert problems == []
    assert [str(place) for place in file.middleware] == [f"{folder}/trace.py:Trace", "tasks.middleware:Middleware"]


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("'trace.py:Trace'", "is not a list"),
        ("['trace.py:Trce']", "did you mean Trace"),
        ("['trase.py:Trace']", "file 'trase.py' does not exist; did you mean trace.py"),
        ("['trace.py']", "names no class"),
    ],
)
def test_wrong_middleware_is_reported_before_anything_starts(reading, folder, written, told):
    (folder / "trace.py").write_text("class Trace: pass\n")
    _, (problem,) = reading(PLAIN + f"middleware: {written}\n")
    assert problem.startswith("middleware: ") and told in problem
