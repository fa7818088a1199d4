"""Full collections of roles: they visit no module that was loaded before the work began."""

from __future__ import annotations

import subprocess
import sys

ENTERED = """
import gc
from workers.config import roles
from workers.config.schema import Config
from workers.runtime import role

role.verify = role.log_to_stderr = lambda *given, **named: None
role.connect, role.Session = lambda config: (), lambda *given, **named: None
for turn in range(2):
    role.enter(Config(), roles.ACTOR)
    print(gc.get_freeze_count())
    kept = [[] for _ in range(1000)]
"""


def test_a_role_spares_its_modules_once() -> None:
    done = subprocess.run([sys.executable, "-c", ENTERED], capture_output=True, text=True, check=True)
    first, second = map(int, done.stdout.split())
    assert first > 50_000, "torch and the rest"
    assert second == first, "later objects are collected"
