"""Trackers: each gets hyperparameters, every point and final figures; a failing one ends nothing."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
from support.waiting import until
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from warren.errors import ConfigurationError
from workers.config import trackers
from workers.config.schema import BrokerConfig, Config
from workers.config.trackers import Tracked, Tracker
from workers.learning.metrics import MetricsLog
from workers.learning.trackers import csv_file
from workers.learning.trackers.csv_file import CsvFile
from workers.learning.trackers.told import Trackers, hyperparameters

OWN = """
from workers.config.trackers import Tracker

class Mine(Tracker):
    said = []
    def begin(self, tracked):
        self.said.append(("begin", tracked.hyperparameters["seed"]))
    def point(self, figures, losses):
        self.said.append(("point", figures["steps"], losses["entropy"]))
    def end(self, figures):
        self.said.append(("end", figures["steps"]))

def wrong():
    return 7
"""


def tracked(folder: Path, last_version: int = -1) -> Tracked:
    return Tracked("some-run", "main", folder, "cartpole", last_version, {"seed": 3, "algorithm.learning_rate": 0.001})


def point(version: int, **more: Any) -> dict[str, Any]:
    return {"steps": 100 * version, "version": version, "mean_return": None if version < 2 else 1.5 * version, **more}


def lived(tracker: Tracker, folder: Path, *versions: int, last_version: int = -1) -> None:
    told = Trackers([tracker], tracked(folder, last_version))
    for version in versions:
        told.point(point(version), {"entropy": 0.5})
    told.end()


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "metrics.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_table_has_a_row_per_update_and_continues_with_its_run(tmp_path: Path) -> None:
    lived(CsvFile(), tmp_path, 1, 2, 3)
    with (tmp_path / "metrics.csv").open("a") as file:
        file.write("400,4")  # by a killed learner
    lived(CsvFile(), tmp_path, 3, 4, last_version=2)
    assert [row["version"] for row in rows(tmp_path)] == ["1", "2", "3", "4"]
    assert rows(tmp_path)[0]["mean_return"] == "" and rows(tmp_path)[3]["loss/entropy"] == "0.5"


def test_a_new_figure_is_a_new_column(tmp_path: Path) -> None:
    told = Trackers([CsvFile()], tracked(tmp_path))
    told.point(point(1), {})
    told.point(point(2, return_goals=7), {"kl": 0.1})
    assert [(row["return_goals"], row["loss/kl"]) for row in rows(tmp_path)] == [("", ""), ("7", "0.1")]


def test_a_full_disk_at_a_new_column_leaves_a_table_that_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*given: object) -> None:
        raise OSError("no space left")

    told = Trackers([CsvFile()], tracked(tmp_path))
    told.point(point(1), {})
    with monkeypatch.context() as patch, pytest.raises(OSError, match="no space left"):
        patch.setattr(csv_file, "write_whole", full)
        told.point(point(2), {"kl": 0.1})
    told.point(point(3), {"kl": 0.2})
    assert [(row["version"], row["loss/kl"]) for row in rows(tmp_path)] == [("1", ""), ("3", "0.2")]


def test_a_users_own_tracker_gets_every_point(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    (mine,) = trackers.made(["tensorboard", f"{tmp_path / 'mine.py'}:Mine"])
    lived(mine, tmp_path, 1, 2)
    assert mine.said == [("begin", 3), ("point", 100, 0.5), ("point", 200, 0.5), ("end", 200)]  # type: ignore[attr-defined]


def test_wrong_tracker_names_are_all_reported(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    unknown, wrong = trackers.problems(["cvs", "csv", f"{tmp_path / 'mine.py'}:wrong"])
    assert unknown.startswith("trackers: tracker 'cvs' does not exist; did you mean csv")
    assert "is not a workers.config.trackers.Tracker" in wrong
    (unlike,) = trackers.problems(["x"])
    assert unlike.endswith("known: csv, mlflow, tensorboard, wandb; or your own: file.py:NAME")


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trackers.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r"wandb is not installed; install Warren's wandb"):
        trackers.made(["wandb"])


def test_a_failing_tracker_keeps_no_figures_from_others(tmp_path: Path) -> None:
    class Failing(Tracker):
        def point(self, *_: Any) -> None:
            raise OSError("no room")

    class Late(Tracker):
        def begin(self, tracked: Tracked) -> None:
            raise OSError("no network")

    told = Trackers([Late(), Failing(), CsvFile()], tracked(tmp_path))
    with pytest.raises(OSError, match="no room"):
        told.point(point(1), {})
    told.end()
    assert len(rows(tmp_path)) == 1


def test_hyperparameters_hold_no_secrets() -> None:
    config = Config(broker=BrokerConfig(url="amqp://a:secret@host//"), algorithm={"learning_rate": 0.01})
    found = hyperparameters(config)
    assert found["algorithm.learning_rate"] == 0.01 and found["env.id"] == "CartPole-v1"
    assert "secret" not in str(found)


def test_tensorboard_holds_hyperparameters_and_final_figures(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path, hyperparameters={"seed": 3, "network.sizes": [64, 64]})
    for version in (1, 2, 3):
        log.write(point(version), {})
    log.close()
    board = EventAccumulator(str(tmp_path / "tensorboard"))
    board.Reload()
    assert "hyperparameters/text_summary" in board.Tags()["tensors"]
    assert board.Scalars("final/mean_return")[-1].value == 4.5
    assert "hparams" in board.summary_metadata["_hparams_/session_start_info"].plugin_data.plugin_name
    quiet = MetricsLog(tmp_path / "quiet" if (tmp_path / "quiet").mkdir() is None else tmp_path, has_board=False)
    quiet.write(point(1), {})
    quiet.close()
    assert [path.name for path in (tmp_path / "quiet").iterdir()] == ["metrics.jsonl"]


def test_wandb_offline_keeps_a_run(tmp_path: Path) -> None:
    pytest.importorskip("wandb", reason="wandb is not installed")
    from workers.learning.trackers.wandb_run import WandbRun

    lived(WandbRun(), tmp_path, 1, 2)
    (kept,) = (tmp_path / "wandb").glob("offline-run-*/*.wandb")
    until(lambda: kept.stat().st_size > 500)  # a process of wandb's own writes it


def test_mlflow_keeps_parameters_and_figures_over_a_resume(tmp_path: Path) -> None:
    pytest.importorskip("mlflow", reason="mlflow is not installed")
    from mlflow import MlflowClient

    from workers.learning.trackers.mlflow_run import MlflowRun

    lived(MlflowRun(), tmp_path, 1, 2)
    lived(MlflowRun(), tmp_path, 3, last_version=2)
    client = MlflowClient((tmp_path / "mlruns").as_uri())
    experiment = client.get_experiment_by_name("cartpole")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.data.params["seed"] == "3" and run.info.status == "FINISHED"
    assert [one.step for one in client.get_metric_history(run.info.run_id, "mean_return")] == [200, 300]
    assert run.data.metrics["final/mean_return"] == 4.5
