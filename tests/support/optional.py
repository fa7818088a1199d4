"""Last lines of a test session: optional tests that did not run, and their remedies."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

import pytest

EXTRA = ".venv/bin/pip install -c constraints.txt -e '.[{}]'".format
# The first pattern that matches a reason gives the remedy.
REMEDIES = (
    (r"(?i)stable.baselines3|sb3.contrib", EXTRA("peers")),
    (r"multi_agent_ale_py", EXTRA("atari-two")),
    (r"ale_py|cv2", EXTRA("atari")),
    (r"envpool", EXTRA("envpool")),
    (r"vizdoom", EXTRA("vizdoom")),
    (r"mpe2", EXTRA("mpe")),
    (r"minatar", EXTRA("minatar")),
    (r"slimevolleygym", EXTRA("slimevolley")),
    (r"box2d|Box2D|pygame", EXTRA("box2d")),
    (r"pyspiel|open_spiel|pettingzoo", EXTRA("games")),
    (r"onnx", EXTRA("onnx")),
    (r"playwright|chromium", "make dashboard-test, and the package chromium of the distribution"),
    (r"starlette", EXTRA("dashboard")),
    (r"h5py", EXTRA("minari")),
    (r"kubernetes-validate|kubernetes_validate|mypy", EXTRA("dev")),
    (r"gfootball", "make gfootball"),
    (r"optuna", EXTRA("optuna")),
    (r"opentelemetry", EXTRA("otel")),
    (r"wandb", EXTRA("wandb")),
    (r"mlflow", EXTRA("mlflow")),
    (r"Horovod", "make horovod"),
    (r"WARREN_FIGHTINGICE", "the game, built as docs/environments.md says"),
    (r"pyftg", "a virtual environment of its own, with pip install -e . pyftg (it pins an old protobuf)"),
    (r"no C compiler", "a C compiler: cc, gcc or clang"),
    (r"no C\+\+ compiler", "a C++ compiler: the package g++ of the distribution"),
    (r"^(Skipped: )?node ", "Node.js 18.11 or newer: the package nodejs of the distribution"),
    (r"levels of", "a processor of another architecture: x86-64, or for some of them ARM"),
    (r"no GPU", "a machine with a GPU and torch's build for it"),
    (r"^(Skipped: )?make is", "GNU make"),
    (r"glibc", "a Linux with glibc"),
    (r"docker", "Docker with its plugin for Compose"),
    (r"kubectl", "kubectl"),
    (r"no checkout|git is not", "a clone of the repository, with git"),
    (r"openssl", "openssl"),
    (r"curl", "curl"),
    (r"redis-server|RabbitMQ|rabbitmq|Redis", "python -m workers.servers install"),
    (r"network namespace", "iproute2, as root, on Linux"),
    (r"(takes|needs) root|only root can", "run the tests as root"),
    (r"root may|interpreter that an ordinary user", "run the tests as another user than root"),
    (r"/dev/shm", "a machine with /dev/shm"),
    (r"Linux", "Linux"),
)


def remedy(reason: str) -> str | None:
    """Return the remedy for tests skipped for `reason`; None if the table has none."""
    return next((text for pattern, text in REMEDIES if re.search(pattern, reason)), None)


def summary(reasons: Iterable[str]) -> list[str]:
    """Return a line per remedy with the number of tests that need it; `reasons`: one per skipped test."""
    counts = Counter(remedy(reason) or reason.removeprefix("Skipped: ") for reason in reasons)
    return [f"{count:4d}  {text}" for text, count in counts.most_common()]


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the lines of `summary` below pytest's own."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = [report.longrepr[2] for report in skipped if isinstance(report.longrepr, tuple)]
    if lines := summary(reasons):
        terminalreporter.section(f"{len(reasons)} optional tests did not run here; they need")
        for line in lines:
            terminalreporter.write_line(line)
