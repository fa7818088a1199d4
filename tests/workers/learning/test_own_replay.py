"""A learner with a replay of the user's own, examples/replay/combined.py: it trains, resumes, and fails in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_replaying import ReplayRun

from agents.algorithms.dqn import DQN
from agents.replay.own import OwnBuffer
from warren.errors import ConfigurationError
from workers.runtime.segment_ledger import Count

COMBINED = f"{Path(__file__).resolve().parents[3] / 'examples/replay/combined.py'}:build"


@pytest.fixture(autouse=True)
def _(one_thread: None) -> None:
    pass


class DQNRun(ReplayRun):
    """A run of CartPole by DQN, with the example's buffer."""

    def __init__(self, folder: Path, **replay: Any) -> None:
        super().__init__(folder, **{"buffer": COMBINED, "buffer_settings": {"newest": 4, "among": 32}, **replay})
        self.session.config.algorithm = {"name": "dqn", "learning_rate": 0.003, "double": True}
        self.session.config.network = {"discrete_actions": {"greedy": True}, "value": False, "hidden_sizes": [32]}


def test_dqn_learns_from_a_replay_of_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    update = DQN.update
    monkeypatch.setattr(DQN, "update", lambda self, batch: seen.append(batch[0]) or update(self, batch))
    run = DQNRun(tmp_path, samples_per_insert=4.0)
    trainer = run.trainer()
    before = trainer.state.digest()
    payloads = [run.payload() for _ in range(4)]
    for payload in payloads:
        assert trainer.learn([payload]) == [None]
    assert type(trainer._source.buffer) is OwnBuffer and len(trainer._source.buffer) == 128
    assert trainer.progress.updates == len(seen) == 16 and trainer.state.digest() != before
    newest = payloads[-1]["trajectory"]["observation"].reshape(-1, 4)
    for drawn in seen[-8:]:
        assert drawn.num_slots == 16
        assert all((newest == observation).all(1).any() for observation in drawn.observation[0][:4])
    assert run.settled[-1] == {"stored": [(4, 32)]}, "its message is acknowledged once it is stored"


def test_a_replay_of_the_users_own_is_in_the_checkpoint_and_resumed(tmp_path: Path) -> None:
    run = DQNRun(tmp_path, in_checkpoint=True)
    trainer = run.trainer()
    trainer.learn([run.payload(), run.payload()])
    trainer.outlets.checkpoint()
    resumed = run.trainer()
    assert run.kept == [Count(), Count(2, 64)] and len(resumed._source.buffer) == 64
    run.session.config.replay.buffer = None
    run.session.config.replay.buffer_settings = {}
    assert len(run.trainer()._source.buffer) == 0, "the built-in buffer does not take it up"


def test_a_failing_replay_of_the_users_own_ends_the_run_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "from agents.replay import ReplayBuffer\n\nclass Own(ReplayBuffer):\n    def add(self, *segment):\n"
        "        super().add(*segment)\n        self.typo += 1\n\n"
        "def build(settings, options):\n    return Own(**vars(options))\n"
    )
    run = DQNRun(tmp_path, buffer=f"{tmp_path / 'own.py'}:build", buffer_settings={})
    with pytest.raises(ConfigurationError, match=r"replay.buffer .*: add\(\) failed at .*own.py:6: AttributeError"):
        run.trainer().learn([run.payload()])
