"""Tests of JSON logs: one object per line, with fields of process and record, readable as text in search of errors."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from warren import log_fields
from workers.launch.processes.failure import failure_in

ENDING = """
from tasks.worker.celery_worker import log_to_stderr
from warren.log_fields import tell
log_to_stderr("INFO", "json")
tell(run="some-run", role="actor")
raise ValueError("no such card")
"""


@pytest.fixture(autouse=True)
def fields(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(log_fields, "_fields", {})
    yield


def written(message: str, *arguments: Any, **more: Any) -> dict[str, Any]:
    record = logging.getLogger("workers.some").makeRecord(
        "workers.some", logging.WARNING, "file.py", 1, message, arguments, more.pop("exc_info", None), extra=more
    )
    line = log_fields.JsonFormatter().format(record)
    assert "\n" not in line
    found = json.loads(line)
    assert isinstance(found, dict)
    return found


def test_a_record_holds_the_fields_of_its_process_and_its_own() -> None:
    log_fields.tell(run="some-run", role="learner", player="main", version=7)
    log_fields.tell(version=8)
    told = written("line one\nand %d", 2, match="3fa2", player="hunter", other="left out")
    assert told.pop("time").startswith("20") and told == {
        "level": "WARNING", "logger": "workers.some", "message": "line one\nand 2", "run": "some-run",
        "role": "learner", "player": "hunter", "version": 8, "match": "3fa2",
    }  # fmt: skip


def test_a_traceback_is_a_field_of_its_record() -> None:
    try:
        raise ValueError("no such card")
    except ValueError as error:
        told = written("it failed", exc_info=(type(error), error, error.__traceback__))
    assert told["exception"].startswith("Traceback") and told["exception"].endswith("ValueError: no such card")


def test_an_exception_that_ends_a_process_is_logged_as_json_and_found() -> None:
    done = subprocess.run([sys.executable, "-c", ENDING], capture_output=True, text=True, check=False)
    (line,) = done.stderr.splitlines()
    assert done.returncode == 1 and json.loads(line)["role"] == "actor"
    failure = failure_in(f"some text before\n{line}\n")
    assert failure is not None and failure.error == "ValueError: no such card"


@pytest.mark.parametrize("line", ["{", '{"message": 1}', '{"message": "no time"}', "a text"])
def test_lines_other_than_records_stay_unchanged(line: str) -> None:
    assert log_fields.as_text(f'{line} "message"') == f'{line} "message"'
