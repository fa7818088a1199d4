"""The panel in a real terminal: Ctrl-C is not echoed, and the terminal's settings are restored."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import termios
import time

from support.waiting import PATIENCE

SCRIPT = """
import signal, sys, time
from workers.ui.training_view import View
stopped = []
signal.signal(signal.SIGINT, lambda *_: stopped.append(1))
with View("project/trial", goal=475.0, total_steps=1000) as view:
    while not stopped:
        view.show(None, {}, "3 of 3 alive", ["actor-0 does not answer"])
        time.sleep(0.05)
    view.say("stopping")
print("over")
"""


def test_ctrl_c_is_not_echoed_into_the_panel_and_echo_comes_back() -> None:
    controller, terminal = pty.openpty()
    before = termios.tcgetattr(terminal)
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}

    def own_terminal() -> None:
        os.setsid()
        import fcntl

        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    child = subprocess.Popen(
        [sys.executable, "-c", SCRIPT], stdin=terminal, stdout=terminal, stderr=terminal, env=environment,
        preexec_fn=own_terminal,
    )  # fmt: skip
    shown, asked, deadline = b"", False, time.monotonic() + PATIENCE
    while b"over" not in shown and time.monotonic() < deadline:
        ready, _, _ = select.select([controller], [], [], 0.2)
        if ready:
            shown += os.read(controller, 65536)
        if not asked and b"does not answer" in shown:
            asked = True
            os.write(controller, b"\x03")
    assert child.wait(PATIENCE) == 0
    assert b"over" in shown and b"^C" not in shown, shown[-2000:]
    assert termios.tcgetattr(terminal)[3] == before[3]
    os.close(controller)
    os.close(terminal)


BACKGROUND = """
import os, signal, sys
from workers.ui.training_view import View
child = os.fork()
if child:
    os.setpgid(child, child)
    _, status = os.waitpid(child, os.WUNTRACED)
    print("stopped" if os.WIFSTOPPED(status) else "ran")
    if os.WIFSTOPPED(status):
        os.kill(child, signal.SIGKILL)
else:
    os.setpgid(0, 0)  # as a shell's job in the background
    with View("project/trial", goal=475.0, total_steps=1000) as view:
        view.say("begun")
    os._exit(0)
"""


def test_a_launcher_in_the_background_of_a_terminal_is_not_stopped() -> None:
    controller, terminal = pty.openpty()

    def own_terminal() -> None:
        os.setsid()
        import fcntl

        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    child = subprocess.Popen(
        [sys.executable, "-c", BACKGROUND], stdin=terminal, stdout=terminal, stderr=terminal,
        env={**os.environ, "TERM": "xterm"}, preexec_fn=own_terminal,
    )  # fmt: skip
    shown, deadline = b"", time.monotonic() + PATIENCE
    while b"ran" not in shown and b"stopped" not in shown and time.monotonic() < deadline:
        ready, _, _ = select.select([controller], [], [], 0.2)
        if ready:
            shown += os.read(controller, 65536)
    child.wait(PATIENCE)
    assert b"ran" in shown and b"begun" in shown, shown
    os.close(controller)
    os.close(terminal)
