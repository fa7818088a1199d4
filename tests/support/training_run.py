"""A training run as a user starts it, observed from outside through its run folder and its processes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from support.launched import Launched
from workers.runtime.segment_ledger import REASONS


class TrainingRun(Launched):
    """`python -m workers.train` on servers of its own choice, or on those whose URLs are given."""

    def __init__(
        self,
        folder: Path,
        *overrides: str,
        broker_url: str | None = None,
        redis_url: str | None = None,
        trial: str = "t",
        environment: Mapping[str, str] = {},
        executed: bool = False,
    ) -> None:
        self.folder = folder / "project" / trial
        urls = {"WARREN_BROKER_URL": broker_url, "WARREN_REDIS_URL": redis_url or broker_url} if broker_url else {}
        resumes = any(override.startswith("resume=") for override in overrides)
        place: tuple[str, ...] = () if resumes else (f"folder={folder}", "project=project", f"trial={trial}")
        if not resumes and not any(override.startswith("grace=") for override in overrides):
            place += ("grace=60",)  # long enough for a process that a busy machine stalls to end by itself
        super().__init__(
            folder / f"{trial}.log",
            "workers.train",
            *place,
            *overrides,
            given={**urls, **environment},
            executed=executed,
        )

    @property
    def name(self) -> str:
        """Return the run's name on the servers."""
        self.until(lambda: "run name" in self.output)
        return next(line.split()[-1] for line in self.output.splitlines() if line.startswith("run name"))

    def metrics(self) -> list[dict[str, Any]]:
        """Return the metrics of every update so far."""
        path = self.folder / "metrics.jsonl"
        if not path.exists():
            return []
        return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]

    def account(self, lost: int = 0) -> dict[str, Any]:
        """Check that the account of an ended run adds up for all segments and steps made; return it."""
        found: dict[str, Any] = json.loads((self.folder / "segments.json").read_text())
        assert found == json.loads((self.folder / "outcome.json").read_text())["segments"]
        for numbers in (found, found["steps"]):
            assert numbers["made"] == sum(numbers[name] for name in ("learned", "stored", *REASONS, "in_flight")), found
        assert found["in_flight"] == found["unsent"] + found["waiting"] + found["lost"]
        assert found["lost"] == lost, found
        used = "stored" if found["stored"] else "learned"
        assert f"segments: {found['made']:,} made = {found[used]:,} {used}" in self.output
        return found

    def tracebacks(self) -> dict[str, str]:
        """Return the tracebacks in the run's logs: log -> text from the first one on. A clean end has none."""
        logs = {path.name: path.read_text() for path in (self.folder / "logs").iterdir()}
        return {name: text[text.index("Traceback") :] for name, text in logs.items() if "Traceback" in text}

    def after_updates(self, count: int) -> int:
        """Wait until `count` more updates have been made; return the number made in all."""
        target = len(self.metrics()) + count
        self.until(lambda: len(self.metrics()) >= target)
        return len(self.metrics())

    def role(self, name: str) -> psutil.Process:
        """Return the process of `learner` or `actor-0`, not its guard."""
        module, _, index = name.partition("-")

        def is_it(line: list[str]) -> bool:
            return f"workers.{module}" in line and (not index or f"actor_id={index}" in line)

        found: psutil.Process = self.until(lambda: next(iter(self.children(is_it)), None))
        return found
