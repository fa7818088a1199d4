"""Test of a killed learner with a replay: confirmed steps are in the replay again, or counted as not kept."""

import re
import signal
from pathlib import Path

import pytest
from support.training_run import TrainingRun

from agents.replay import ReplayBuffer, saving
from workers.servers import Servers

OWN = Path(__file__).parents[1] / "support" / "from_replay.py"
CAPACITY, STEPS, SEGMENT = 100_000, 50, 50 * 64
SETTINGS = (
    "algorithm=own", f"algorithm.name={OWN}:build", "env.num_envs=64", f"unroll_length={STEPS}", "sampling=streaming",
    f"replay.capacity={CAPACITY}", "replay.batch=32", "replay.samples_per_insert=2", "replay.begin_at=512",
    "replay.in_checkpoint=true", "checkpoint_every=1", "env.goal=null", "total_steps=1000000000", "actors=1",
)  # fmt: skip


@pytest.mark.slow
def test_a_killed_learners_replay_is_restored_and_lost_steps_are_counted(tmp_path: Path, servers: Servers) -> None:
    with TrainingRun(tmp_path, *SETTINGS, broker_url=servers.broker_url, redis_url=servers.redis_url) as run:
        kept = run.folder / "checkpoints" / "replay.npz"
        run.until(lambda: (run.metrics() or [{"steps": 0}])[-1]["steps"] > CAPACITY)
        kept.unlink()
        run.until(kept.exists)
        run.role("learner").kill()
        log = run.folder / "logs" / "learner.log"
        run.until(lambda: "took up a replay" in log.read_text())
        run.after_updates(2)
        run.process.send_signal(signal.SIGINT)
        assert run.wait() == 130, run.output
    assert "learner ended with status 137" in run.output
    account = run.account()
    (taken_up,) = re.findall(r"took up a replay of ([\d,]+) steps", log.read_text())
    assert int(taken_up.replace(",", "")) >= SEGMENT
    buffer = ReplayBuffer(CAPACITY)
    segments, steps = saving.load(kept, buffer)["stored"]
    assert (segments, steps) == (
        account["stored"] - account["not_kept"], account["steps"]["stored"] - account["steps"]["not_kept"],
    )  # fmt: skip
    assert len(buffer) == min(CAPACITY, steps) and buffer.ring.written * STEPS == steps
