"""Tests of `warren.train` on a stand-in for the command: settings as words, points to callbacks, ends of runs."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from support.launched import without_warren

import warren
from warren.errors import ConfigurationError, WarrenError
from workers.launch import from_python
from workers.launch.following_points import Points
from workers.launch.settings_as_words import words

# Prints and writes as the launcher of a run does, until it is told to stop or the steps are done.
COMMAND = """
import json, signal, sys, time
from pathlib import Path
folder, mode = Path({folder!r}), sys.argv[1]
if mode == "mode=refused":
    print("error: actors: 0 is too small", "error: seed: -1 is too small", sep="\\n", flush=True)
    sys.exit(2)
stopped = []
signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
print("run folder", folder, flush=True)
if mode == "mode=fails":
    print("error: the learner died", flush=True)
    sys.exit(1)
for update in range(3 if mode == "mode=ends" else 1_000_000):
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({{"version": update, "time": time.time()}}) + "\\n")
    if stopped:
        break
    time.sleep(0.01)
(folder / "outcome.json").write_text(json.dumps({{"state": "stopped" if stopped else "finished", "steps": update}}))
sys.exit(130 if stopped else 0)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of the stand-in's run."""
    place = tmp_path / "runs" / "p" / "t"
    place.mkdir(parents=True)
    script = tmp_path / "command.py"
    script.write_text(COMMAND.format(folder=str(place)))
    monkeypatch.setattr(from_python, "python", lambda *line: [sys.executable, str(script), *line[2:]])
    return place


TEXTS = ["CartPole-v1", "true", "1e3", "it's {a}, [b] \\ c", "", "a\\", "a\\'b", "~/my games/x.py:Game", "~/x.py:Game"]
OTHERS = [None, True, 3, 1e-5, -2.0, [], [1, "two", None, "3"]]


@pytest.mark.parametrize("value", [*TEXTS, *OTHERS])
def test_a_value_is_read_as_it_was_given(value: Any):
    (word,) = words([], {"name": value})
    (read,) = OverridesParser.create().parse_overrides([word])

    def plain(found: Any) -> Any:
        return [plain(one) for one in found] if isinstance(found, list) else getattr(found, "text", found)

    assert plain(read.value()) == value


def test_tables_become_dotted_names_and_hosts_one_value():
    given = {"env": {"id": "A-v1", "kwargs": {"size": 3}}, "hosts": {"box-1": {"actors": 2}}, "actors": 4}
    assert words(["experiment=kuhn"], given) == [
        "experiment=kuhn", "env.id=A-v1", "env.kwargs.size=3", "hosts={box-1:{actors:2}}", "actors=4",
    ]  # fmt: skip
    with pytest.raises(ConfigurationError, match=r"env.id: <function .*> is not a value of a setting"):
        words([], {"env": {"id": words}})


def test_callbacks_get_each_point_in_order_and_the_end(folder: Path, capsys: pytest.CaptureFixture[str]):
    seen: list[Any] = []
    result = warren.train("mode=ends", on_update=lambda point: seen.append(point["version"]), on_end=seen.append)
    assert seen == [0, 1, 2, result] and (result.state, result.folder) == ("finished", folder)
    assert [point["version"] for point in result.metrics] == [0, 1, 2] and result.evaluations == []
    assert f"run folder {folder}" in capsys.readouterr().out
    warren.train("mode=ends", quiet=True)
    assert capsys.readouterr().out == ""


def test_a_callback_that_cannot_be_called_is_refused_before_the_run(folder: Path):
    with pytest.raises(ConfigurationError, match=r"^on_end: 5 cannot be called; give a function$"):
        warren.train("mode=ends", quiet=True, on_end=5)  # type: ignore[arg-type]


def test_a_callback_that_returns_false_ends_the_run_in_order(folder: Path):
    result = warren.train("mode=endless", quiet=True, on_update=lambda point: point["version"] < 2)
    assert result.state == "stopped" and result.outcome["steps"] >= 2


def test_a_callbacks_exception_ends_the_run_and_is_raised(folder: Path):
    ends: list[Any] = []
    with pytest.raises(ZeroDivisionError) as raised:
        warren.train("mode=endless", quiet=True, on_update=lambda point: 1 / point["version"], on_end=ends.append)
    assert raised.value.__notes__ == ["raised by a callback of warren.train; the run was stopped"]
    assert [end.state for end in ends] == ["stopped"] and json.loads((folder / "outcome.json").read_text())


def test_ctrl_c_ends_the_run_in_order_and_is_raised(folder: Path):
    def on_update(point: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)  # again at the next point: garbage collection may swallow the exception

    with pytest.raises(KeyboardInterrupt):
        warren.train("mode=endless", quiet=True, on_update=on_update)
    assert json.loads((folder / "outcome.json").read_text())["state"] == "stopped"


def test_wrong_settings_are_one_error_with_all_of_them(folder: Path):
    with pytest.raises(ConfigurationError) as error:
        warren.train("mode=refused", quiet=True)
    assert error.value.problems == ["actors: 0 is too small", "seed: -1 is too small"]
    with pytest.raises(WarrenError, match=r"the run failed \(exit status 1\): the learner died"):
        warren.train("mode=fails", quiet=True)


def test_points_of_a_resumed_run_begin_where_it_was_resumed(tmp_path: Path):
    file = tmp_path / "metrics.jsonl"
    file.write_text('{"version": 1, "time": 3}\n{"version": 2, "time": 4}\n')
    points = Points(tmp_path, since=5.0)
    assert [*points.new()] == []
    file.write_text('{"version": 1, "time": 3}\n')  # the learner cuts off the lost updates
    assert [*points.new()] == []
    with file.open("a") as appended:
        appended.write('{"version": 2, "time": 5}\n{"versi')
    (tmp_path / "players" / "main").mkdir(parents=True)
    (tmp_path / "players" / "main" / "metrics.jsonl").write_text('{"version": 7, "time": 6}\n')
    expected = [("metrics", {"version": 2, "time": 5}), ("metrics", {"version": 7, "time": 6, "player": "main"})]
    assert [*points.new()] == expected and [*points.new()] == []


def test_points_written_after_a_cut_are_found_by_a_reader_that_missed_the_cut(tmp_path: Path):
    """A callback may take so long that a killed learner is started again meanwhile, and writes."""
    file, first, lost = tmp_path / "metrics.jsonl", {"version": 1, "time": 1}, {"version": 2, "time": 2}
    others = [{"version": 2, "time": 3, "steps": 1234567}, {"version": 3, "time": 4}]
    file.write_text("".join(f"{json.dumps(point)}\n" for point in (first, lost)))
    points = Points(tmp_path, since=0.0)
    assert [*points.new()] == [("metrics", first), ("metrics", lost)]
    file.write_text("".join(f"{json.dumps(point)}\n" for point in (first, *others)))
    assert [*points.new()] == [("metrics", point) for point in others] and [*points.new()] == []


@pytest.mark.slow
def test_the_example_trains_until_an_evaluation_is_good_enough(tmp_path: Path, servers: Any):
    from support.launched import start

    urls = {"WARREN_BROKER_URL": servers.broker_url, "WARREN_REDIS_URL": servers.redis_url}
    example, log = Path(__file__).resolve().parents[3] / "examples/training/train.py", tmp_path / "log"
    process = start(str(example), f"folder={tmp_path}", log=log, given=without_warren() | urls, executed=True)
    assert process.wait(600) == 0, log.read_text()
    assert log.read_text().splitlines()[-1].startswith(("stopped after ", "solved after "))
