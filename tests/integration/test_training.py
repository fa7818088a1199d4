"""Tests of training from end to end, on real servers."""

import json
import re
import signal
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from support.training_run import TrainingRun
from support.waiting import until

from tasks.topology import EVENT_LENGTH
from workers.learning.metrics import EVALUATIONS, read_metrics
from workers.runtime.trained import load
from workers.servers import Servers

ENDLESS = ("env.goal=null", "total_steps=1000000000")
LEARNS = 800.0  # s for a run to reach its goal, on a machine with tenfold load


def last_line(run: TrainingRun) -> str:
    return run.output.strip().splitlines()[-1]


@pytest.mark.slow
@pytest.mark.parametrize("sampling", ["gathered", "streaming"])
def test_cartpole_is_solved_through_rabbitmq_and_redis(tmp_path: Path, servers: Servers, sampling: str) -> None:
    urls = {"broker_url": servers.broker_url, "redis_url": servers.redis_url}
    with TrainingRun(tmp_path, f"sampling={sampling}", **urls, executed=True) as run:
        assert run.wait(LEARNS) == 0, run.output
    assert last_line(run).startswith("solved: the mean return of the last 100 training episodes reached 475")
    assert json.loads((run.folder / "outcome.json").read_text())["mean_return"] >= 475
    assert (run.folder / "learning_curve.png").stat().st_size > 5_000
    assert list((run.folder / "tensorboard").iterdir())
    assert list((run.folder / "checkpoints").glob("*.safetensors"))
    assert {p.name for p in (run.folder / "logs").iterdir()} == {"learner.log", "actor-0.log", "actor-1.log"}
    account, last = run.account(), run.metrics()[-1]
    assert account["steps"]["learned"] == last["steps"]
    assert account["steps"]["stale"] == last["stale_steps"]
    assert account["steps"]["made"] % account["made"] == 0, "segments differ in their numbers of steps"


@pytest.mark.slow
@pytest.mark.parametrize("sampling", ["gathered", "streaming"])
def test_cartpole_is_learned_without_installed_servers_and_compiler(
    tmp_path: Path, embedded: Servers, sampling: str
) -> None:
    none = {"CC": "no-such-compiler", "WARREN_CACHE": str(tmp_path / "cache")}
    settings = "broker=embedded", f"sampling={sampling}", "env.goal=150"
    with TrainingRun(tmp_path, *settings, environment=none) as run:
        assert run.wait(LEARNS) == 0, run.output
    assert last_line(run).startswith("solved: the mean return of the last 100 training episodes reached 150")
    assert "embedded" in run.output
    assert run.output.count("torch computes small networks") == 1 and "(no-such-compiler)" in run.output


@pytest.mark.slow
def test_run_ends_after_its_seconds_and_can_be_resumed(tmp_path: Path, servers: Servers) -> None:
    urls = {"broker_url": servers.broker_url, "redis_url": servers.redis_url}
    evaluation = ("evaluation.every=1000", "evaluation.episodes=3", "evaluation.keep_best=true")
    with TrainingRun(tmp_path, "env.goal=null", "seconds=2", *evaluation, **urls) as run:
        assert run.wait() == 0, run.output
    outcome = json.loads((run.folder / "outcome.json").read_text())
    evaluated = read_metrics(run.folder, EVALUATIONS)
    assert evaluated[-1]["steps"] == outcome["steps"] and "best evaluation" in run.output
    best = max(evaluated, key=lambda point: point["mean_return"])
    assert load(run.folder, best=True).version == best["version"]
    assert (outcome["state"], outcome["steps"]) == ("finished", run.metrics()[-1]["steps"])
    assert 0.0 < outcome["seconds"] < outcome["launcher_seconds"]
    assert last_line(run).startswith("finished: ")
    more = (f"resume={run.folder}", f"total_steps={outcome['steps'] + 2_000}", "run=chosen")
    with TrainingRun(tmp_path, *more, **urls) as again:
        assert again.wait() == 0, again.output
    assert [line.split()[-1] for line in again.output.splitlines() if line.startswith("run name")][-1] == "chosen"
    assert again.metrics()[-1]["steps"] > outcome["steps"]


def hears_of_weights(run: TrainingRun, rabbitmqctl: Callable[..., list[str]]) -> list[str]:
    """Return the queues of actors that are bound to the exchange of weights."""
    bindings = [line.split("\t") for line in rabbitmqctl("list_bindings", "source_name", "destination_name")]
    exchange = f"warren.{run.name}.event.weights"
    return [queue for source, queue in bindings if source == exchange and queue.startswith(f"{exchange}.actor-")]


def shows_its_topology(run: TrainingRun, rabbitmqctl: Callable[..., list[str]]) -> bool:
    """Return whether the broker shows the exchanges, queues, bounds and bindings of a live run.

    A listing is not a snapshot: on a busy machine it may miss a queue that is in use.
    """
    prefix = f"warren.{run.name}"
    exchanges = dict(line.split("\t")[:2] for line in rabbitmqctl("list_exchanges", "name", "type"))
    queues = {line.split("\t")[0]: line for line in rabbitmqctl("list_queues", "name", "arguments")}
    bindings = [line.split("\t") for line in rabbitmqctl("list_bindings", "source_name", "destination_name")]
    kinds = {
        "actor": "direct",
        "learner": "direct",
        "event.weights": "fanout",
        "event.status": "fanout",
        "dead": "topic",
    }
    bound = (("actor", "actor.main"), ("learner", "learner.main"), ("dead", "dead.learner"))
    weights = hears_of_weights(run, rabbitmqctl)
    return (
        all(exchanges.get(f"{prefix}.{name}") == kind for name, kind in kinds.items())
        and "reject-publish" in queues.get(f"{prefix}.learner.main", "")
        and len(weights) == 2
        and all("drop-head" in queues.get(name, "") for name in weights)
        and all(f'{{"x-max-length",{EVENT_LENGTH}}}' in queues.get(name, "") for name in weights)
        and all([f"{prefix}.{source}", f"{prefix}.{destination}"] in bindings for source, destination in bound)
    )


@pytest.mark.slow
def test_ctrl_c_stops_everything_and_the_run_can_be_resumed(
    tmp_path: Path, servers: Servers, rabbitmqctl: Callable[..., list[str]]
) -> None:
    urls = {"broker_url": servers.broker_url, "redis_url": servers.redis_url}
    with TrainingRun(tmp_path, *ENDLESS, "metrics.port=0", "log_format=json", **urls) as run:
        run.until(lambda: shows_its_topology(run, rabbitmqctl))
        run.after_updates(3)
        (url,) = re.findall(r"metrics for Prometheus: (\S+)", run.output)

        def page() -> str:
            with urllib.request.urlopen(url, timeout=120) as reply:
                return str(reply.read().decode())

        wanted = (
            r'warren_process_answers{process="actor-1"} 1\.0',
            r"warren_dead_letters 0\.0",
            r'warren_learner_updates_total{player="main",process="learner"} [1-9]',
        )
        run.until(lambda: all(re.search(pattern, read) for read in [page()] for pattern in wanted))
        name, processes = run.name, [run.role(role) for role in ("learner", "actor-0", "actor-1")]
        run.process.send_signal(signal.SIGINT)
        assert run.wait() == 130
    assert not [process for process in processes if process.is_running()]
    for kind in ("list_queues", "list_exchanges"):  # the broker removes exclusive queues a moment later
        until(lambda kind=kind: not [line for line in rabbitmqctl(kind, "name") if name in line])
    stopped = json.loads((run.folder / "outcome.json").read_text())
    updates = run.metrics()
    assert stopped["state"] == "stopped"
    for name in ("learner", "actor-0"):
        lines = [json.loads(line) for line in (run.folder / "logs" / f"{name}.log").read_text().splitlines()]
        assert lines and {line["run"] for line in lines[1:]} == {run.name}, lines
        assert {line["role"] for line in lines[1:]} == {name.partition("-")[0]} and lines[-1]["version"] >= 3
    assert stopped["steps"] == updates[-1]["steps"]

    with TrainingRun(tmp_path, f"resume={run.folder}", f"total_steps={stopped['steps'] + 5_000}", **urls) as again:
        assert again.wait() == 0, again.output
    resumed = again.metrics()[len(updates) :]
    assert resumed[0]["version"] == updates[-1]["version"] + 1
    assert resumed[0]["steps"] - updates[-1]["steps"] == updates[1]["steps"] - updates[0]["steps"]
    assert resumed[-1]["steps"] >= stopped["steps"] + 5_000
    assert "finished" in last_line(again)


def test_a_second_ctrl_c_kills_at_once(tmp_path: Path, servers: Servers) -> None:
    urls = {"broker_url": servers.broker_url, "redis_url": servers.redis_url}
    with TrainingRun(
        tmp_path, *ENDLESS, "grace=1000", **urls
    ) as run:  # the first alone would wait longer than the test
        run.after_updates(1)
        learner, actor = run.role("learner"), run.role("actor-0")
        learner.suspend()  # a learner that cannot stop by itself
        run.process.send_signal(signal.SIGINT)
        run.until(lambda: "stopping" in run.output)
        run.process.send_signal(signal.SIGINT)
        assert run.wait() == 130
    until(lambda: not learner.is_running() and not actor.is_running())


@pytest.mark.slow
def test_two_runs_on_the_same_servers_never_see_each_other(tmp_path: Path, servers: Servers) -> None:
    urls = {"broker_url": servers.broker_url, "redis_url": servers.redis_url}
    small = ("env.goal=null", "total_steps=6000", "actors=1", "algorithm.minibatch_size=64")
    with (
        TrainingRun(tmp_path, *small, "unroll_length=64", "network.hidden_sizes=[16]", trial="a", **urls) as a,
        TrainingRun(tmp_path, *small, "unroll_length=32", "sampling=streaming", trial="b", **urls) as b,
    ):
        # Weights or segments of the other run would not fit the network, and be refused with an error.
        assert a.wait() == 0, a.output
        assert b.wait() == 0, b.output
    for run in (a, b):
        steps = [update["steps"] for update in run.metrics()]
        assert steps == sorted(steps)
        assert "error" not in "".join(path.read_text() for path in (run.folder / "logs").iterdir()).lower()
