"""Tests of an actor and a learner killed during a run: training goes on, and no confirmed segment is lost."""

import itertools
from pathlib import Path

import pytest
from support.training_run import TrainingRun

from workers.servers import Servers


@pytest.mark.slow
@pytest.mark.parametrize("sampling", ["gathered", "streaming"])
def test_training_solves_through_kills_of_actor_and_learner(tmp_path: Path, servers: Servers, sampling: str) -> None:
    urls = {"broker_url": servers.broker_url, "redis_url": servers.redis_url}
    # A lost round would take as long as this. None is lost: the broker redelivers a killed process's messages at once.
    with TrainingRun(tmp_path, f"sampling={sampling}", "round_timeout=30", "checkpoint_every=1", **urls) as run:
        run.after_updates(5)
        run.role("actor-0").kill()
        made = run.after_updates(5)
        run.role("learner").kill()
        run.until(lambda: len(run.metrics()) > made + 5)
        assert run.wait(600.0) == 0, run.output
    assert "actor-0 ended with status 137" in run.output
    assert "learner ended with status 137" in run.output
    assert run.output.strip().splitlines()[-1].startswith("solved")
    # Versions never decrease: otherwise actors would keep weights that are newer than the learner's.
    versions = [update["version"] for update in run.metrics()]
    assert all(later > earlier for earlier, later in itertools.pairwise(versions))
    account = run.account()
    # A learner that dies after its checkpoint and before it acknowledges leaves segments that are learned from again.
    again = account["repeated"] * account["steps"]["made"] // account["made"]  # steps; all segments are equally long
    assert account["steps"]["learned"] + again >= run.metrics()[-1]["steps"], (
        f"steps that the killed learner had learned from are missing: {account}"
    )
    if sampling == "streaming":
        assert account["learned"] > 20


def test_a_child_that_keeps_dying_ends_the_run_with_its_last_lines(tmp_path: Path, servers: Servers) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text(
        "import gymnasium\n"
        "class Broken(gymnasium.Wrapper):\n"
        "    steps = 0\n"
        "    def __init__(self): super().__init__(gymnasium.make('CartPole-v1'))\n"
        "    def step(self, action):\n"
        "        Broken.steps += 1\n"
        "        if Broken.steps > 5000: raise RuntimeError('the game has crashed')\n"
        "        return super().step(action)\n"
    )
    with TrainingRun(
        tmp_path,
        f"env.id={broken}:Broken",
        "sampling=streaming",
        "env.goal=null",
        "restarts=1",
        broker_url=servers.broker_url,
        redis_url=servers.redis_url,
    ) as run:
        assert run.wait() == 1
    assert "the game has crashed" in run.output
    assert "giving up (restarts=1)" in run.output
