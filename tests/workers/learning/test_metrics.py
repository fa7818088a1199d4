"""Tests of a run's figures: exact means, a clock without pauses, files that survive a kill."""

from __future__ import annotations

import errno
import json
import time
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.waiting import until
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.summary.writer import event_file_writer
from tensorboard.summary.writer.record_writer import RecordWriter

from warren.files import append_whole
from workers.config.schema import Config, EnvConfig
from workers.learning import curve, metrics
from workers.learning.metrics import WINDOW, MetricsLog, Progress, read_metrics


def episodes(*returns: float) -> np.ndarray:
    return np.array([(value, 10.0) for value in returns], dtype=np.float32).reshape(-1, 2)


def at(monkeypatch: pytest.MonkeyPatch, now: float) -> None:
    monkeypatch.setattr(time, "time", lambda: now)


def test_the_mean_return_is_of_exactly_the_last_hundred_episodes() -> None:
    progress = Progress()
    progress.add(episodes(*range(99)), steps=990)
    assert progress.mean_return is None
    assert progress.figures()["mean_return"] == np.mean(range(99))
    assert progress.figures()["window"] == 99
    progress.add(episodes(99), steps=10)
    assert progress.mean_return == np.mean(range(100))
    progress.add(episodes(1000), steps=10)
    assert progress.mean_return == np.mean([*range(1, 100), 1000])
    assert (progress.episodes, progress.steps, len(progress.returns)) == (101, 1010, WINDOW)


def test_before_the_first_episode_there_is_no_mean() -> None:
    progress = Progress()
    progress.add(episodes(), steps=64)
    assert (progress.mean_return, progress.figures()["mean_return"], progress.figures()["mean_length"]) == (None,) * 3


def test_steps_per_second_are_those_of_the_last_ten_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    progress = Progress()
    assert progress.steps_per_second == 0.0
    at(monkeypatch, 101.0)
    progress.start(100.0)
    for now in range(102, 200, 2):
        at(monkeypatch, float(now))
        progress.add(episodes(), 1000 if now < 150 else 2000)
        assert 499 < progress.steps_per_second < 1001
    assert progress.steps_per_second == pytest.approx(1000)
    at(monkeypatch, 209.0)
    assert progress.steps_per_second == 0.0


def test_steps_that_come_in_bursts_between_long_updates_make_no_high_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    progress = Progress()
    progress.start(0.0)
    for burst in range(1, 6):
        for number in range(4):  # four segments, a millisecond apart, and then 12 s of updates
            at(monkeypatch, 12.0 * burst + 0.001 * number)
            progress.add(episodes(), 300)
            assert progress.steps_per_second < 101
        assert progress.steps_per_second == pytest.approx(100, rel=0.01)


def test_a_resumed_run_has_the_figures_of_the_stopped_one() -> None:
    progress = Progress(version=7, updates=7, stale_steps=12)
    progress.add(episodes(*range(150)), steps=1500)
    meta = json.loads(json.dumps(progress.to_meta()))
    resumed = Progress.from_meta(meta)
    assert resumed.to_meta() == progress.to_meta()
    resumed.add(episodes(1.0), steps=1)
    assert resumed.mean_return == np.mean([*range(51, 150), 1.0])


def test_a_resumed_run_has_the_figures_of_its_episodes() -> None:
    progress = Progress()
    progress.add(
        np.array([[3.0, 10.0, 1.0, 2.0], [5.0, 10.0, 2.0, 3.0]], np.float32), 20, ["return_score", "return_speed"]
    )
    resumed = Progress.from_meta(json.loads(json.dumps(progress.to_meta())))
    assert resumed.means() == progress.means() == {"return_score": 1.5, "return_speed": 2.5}
    older = {name: value for name, value in progress.to_meta().items() if name != "others"}
    assert Progress.from_meta(older).means() == {}
    assert Progress.from_meta({**older, "channels": {"score": [1.0, 2.0]}}).means() == {"return_score": 1.5}


def test_pauses_do_not_count_as_training(monkeypatch: pytest.MonkeyPatch) -> None:
    progress = Progress()
    progress.start(first_step_at=100.0)
    at(monkeypatch, 130.0)
    progress.add(episodes(), 10)
    progress.start(first_step_at=99.0)  # a slower actor's; the clock is already running
    at(monkeypatch, 140.0)
    progress.add(episodes(), 10)
    assert progress.training_seconds == 40.0

    at(monkeypatch, 1000.0)
    resumed = Progress.from_meta(progress.to_meta())
    resumed.start(first_step_at=1005.0)
    at(monkeypatch, 1010.0)
    resumed.add(episodes(), 10)
    assert resumed.training_seconds == 45.0


def test_a_restarted_learner_counts_no_training_time_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    progress = Progress()
    progress.start(first_step_at=100.0)
    at(monkeypatch, 150.0)
    progress.add(episodes(), 10)
    at(monkeypatch, 160.0)
    restarted = Progress.from_meta(progress.to_meta())
    restarted.start(first_step_at=100.0)  # the actors have lived on
    at(monkeypatch, 165.0)
    restarted.add(episodes(), 10)
    assert restarted.training_seconds == 55.0


def point(steps: int, mean: float | None) -> dict[str, Any]:
    return {"steps": steps, "mean_return": mean, "training_seconds": 1.5, "version": steps // 10}


def test_the_metrics_log_writes_lines_and_tensorboard_scalars(tmp_path: Path) -> None:
    began, log = time.time(), MetricsLog(tmp_path)
    log.write(point(10, None), {"policy": 0.5})
    log.write(point(20, 3.25), {"policy": 0.25})
    assert [p["steps"] for p in read_metrics(tmp_path)] == [10, 20], "each line is on the disk once it is written"
    log.close()
    points = read_metrics(tmp_path)
    assert points[1]["losses"] == {"policy": 0.25}
    assert began <= points[0]["time"] <= points[1]["time"] <= time.time()
    board = EventAccumulator(str(tmp_path / "tensorboard"))
    board.Reload()
    assert [(e.step, e.value) for e in board.Scalars("run/mean_return")] == [(20, 3.25)]
    assert [(e.step, e.value) for e in board.Scalars("loss/policy")] == [(10, 0.5), (20, 0.25)]


def test_an_incomplete_line_is_cut_off_and_the_log_continues(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path)
    log.write(point(10, 1.0), {})
    log.close()
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"steps": 20, "mean_re')
    assert [p["steps"] for p in read_metrics(tmp_path)] == [10]
    log = MetricsLog(tmp_path)
    log.write(point(30, 2.0), {})
    log.close()
    assert [p["steps"] for p in read_metrics(tmp_path)] == [10, 30]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_after_a_full_disk_points_are_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "BOARD_AGAIN", 0.0)
    log = MetricsLog(tmp_path)
    log.write(point(10, 1.0), {})
    with monkeypatch.context() as full:

        class Full(RecordWriter):  # type: ignore[misc]
            def write(self, data: bytes) -> None:
                raise OSError(errno.ENOSPC, "No space left on device")

        full.setattr(event_file_writer, "RecordWriter", Full)
        full.setattr(metrics, "append_whole", Full.write)
        log._close_board()
        for steps in (20, 30):

            def refused(steps: int = steps) -> bool:
                try:
                    log.write(point(steps, 2.0), {})
                except OSError:
                    return log._opened is None
                return False

            until(refused)
    log.write(point(40, 3.0), {})
    log.close()
    assert [p["steps"] for p in read_metrics(tmp_path)] == [10, 40]
    board = EventAccumulator(str(tmp_path / "tensorboard"))
    board.Reload()
    # Files of the same second are read by name, so number 10 comes before number 9.
    assert sorted(event.step for event in board.Scalars("run/mean_return")) == [10, 40]


def test_a_line_without_room_on_the_disk_is_not_written_in_part(tmp_path: Path) -> None:
    path = tmp_path / "lines"

    class Short(FileIO):
        room = 12

        def write(self, data: Any) -> int:
            return super().write(data[: self.room - self.tell()])

    with Short(path, "ab") as file:
        append_whole(file, b"whole\n")
        with pytest.raises(OSError, match="No space left"):
            append_whole(file, b"not whole\n")
    assert path.read_bytes() == b"whole\n"


def test_a_mean_return_is_over_the_episodes_of_the_window() -> None:
    progress = Progress(3)
    progress.add(np.array([[9.0, 1.0], [1.0, 1.0]]), 2)
    assert progress.mean_return is None
    progress.add(np.array([[2.0, 1.0], [3.0, 1.0]]), 2)
    assert progress.mean_return == 2.0
    assert Progress.from_meta(progress.to_meta(), 2).mean_return == 2.5


def test_a_folder_without_metrics_has_no_points_and_no_curve(tmp_path: Path) -> None:
    assert read_metrics(tmp_path) == []
    assert curve.draw(tmp_path, Config()) is None
    (tmp_path / "metrics.jsonl").write_text(json.dumps(point(10, None)) + "\n")
    assert curve.draw(tmp_path, Config()) is None
    assert not (tmp_path / "learning_curve.png").exists()


@pytest.mark.parametrize("goal", [None, 475.0])
def test_the_learning_curve_is_a_picture_with_a_line_in_it(tmp_path: Path, goal: float | None) -> None:
    from matplotlib.image import imread

    lines = [json.dumps(point(steps, steps / 10)) for steps in range(0, 5000, 100)]
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    path = curve.draw(tmp_path, Config(env=EnvConfig(goal=goal)))
    assert path == tmp_path / "learning_curve.png"
    picture = imread(path)[..., :3]
    height, width, _ = picture.shape
    assert height > 300 < width
    blue = (picture[..., 2] > 0.6) & (picture[..., 0] < 0.3)
    assert blue.any(axis=0).mean() > 0.5, "the curve spans the picture"
    green = (picture[..., 1] > 0.5) & (picture[..., 0] < 0.35) & (picture[..., 2] < 0.35)
    assert green.any() == (goal is not None)
