"""Tests of processes that are forked rather than started: they behave like fresh ones, and end with their launcher."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.own_processes import living
from support.waiting import until

from workers.servers import forks
from workers.servers.forks import ENVIRONMENT, ForkedGuard, differing

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux alone")

ROOT = Path(__file__).resolve().parents[3]

# A launcher: begins a fork server, starts and stops the processes that its standard input names, tells statuses.
HOST = """
import json, os, sys
from pathlib import Path
from workers.servers.forks import Forks
from workers.servers.process import Child

children = {}
with Forks.begin() as forks:
    forks.say = lambda line: print(json.dumps({"said": line}), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        name = asked["name"]
        if "module" in asked:
            given = {**os.environ, **asked.get("environment", {})}
            command = [sys.executable, "-m", asked["module"], "a", "b c"]
            forked_by = forks if asked["fork"] else None
            children[name] = Child(name, command, Path(f"{name}.log"), given, asked.get("grace", 120.0), forked_by)
            told = {"guard": children[name]._guard.pid}
        elif asked.get("wait"):
            told = {"status": children[name]._guard.wait(120)}
        elif asked.get("stop"):
            children[name].stop()
            told = {"status": children[name].status}
        print(json.dumps({"server": forks.pid, **told}), flush=True)
"""

PROBE = """
import atexit, json, os, signal, sys, threading, time
atexit.register(lambda: print("at exit"))
seen = {
    "argv": sys.argv[1:], "file": os.path.basename(sys.argv[0]), "name": __name__, "spec": __spec__.name,
    "folder": os.getcwd(), "path": sys.path[0], "environment": dict(os.environ),
    "stdin": sys.stdin.read(), "alone": os.getsid(0) == os.getpid(), "threads": threading.active_count(),
    "signals": [str(signal.getsignal(n)) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)],
    "files": sorted(os.listdir("/proc/self/fd"))[:4],
    "line": open("/proc/self/cmdline").read().replace("\\0", " ").strip(),
    "buffered": [type(sys.stdout.buffer).__name__, sys.stdout.write_through, sys.stderr.errors],
}
while not os.path.exists("go"):
    time.sleep(0.01)
print(json.dumps(seen))
"""

ENDINGS = {
    "import sys; sys.exit(65)": 65,
    "raise SystemExit": 0,
    "import os; os._exit(3)": 3,
    "import os; os.kill(os.getpid(), 9)": 137,
    "import os, signal; os.kill(os.getpid(), signal.SIGTERM)": 143,
    "1 / 0": 1,
    "pass": 0,
}


class Host:
    """The launcher of HOST; `folder` holds the modules and logs of its processes."""

    def __init__(self, folder: Path, code: str = HOST) -> None:
        self.folder, self.said = folder, []  # type: tuple[Path, list[str]]
        (folder / "host.py").write_text(code)
        self.process = subprocess.Popen(
            [sys.executable, "host.py"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=folder,
            env={**os.environ, **ENVIRONMENT, "PYTHONPATH": f"{folder}:{ROOT}"},
        )

    def ask(self, name: str, **words: Any) -> dict[str, Any]:
        self.send(name, **words)
        return self.answer()

    def send(self, name: str, **words: Any) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps({"name": name, **words}) + "\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout
        while "said" in (told := json.loads(self.process.stdout.readline())):
            self.said.append(told["said"])
        return dict(told)

    def start(self, name: str, code: str, fork: bool = True, **words: Any) -> dict[str, Any]:
        """Start a process of the module `name` with this code."""
        (self.folder / f"{name}.py").write_text(code)
        return self.ask(name, module=name, fork=fork, **words)

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def child(self, told: dict[str, Any]) -> psutil.Process:
        """Wait for the process below a guard; return it."""
        return until(lambda: next(iter(psutil.Process(told["guard"]).children()), None))


def test_an_environment_too_large_for_a_request_is_named(host: Host) -> None:
    large = {f"WARREN_{number}": "x" * 100_000 for number in range(10)}
    host.start("probe", "pass", environment=large)
    assert host.ask("probe", wait=True)["status"] == 0
    (line,) = host.said
    assert "forked (the environment is too large: a request has 1," in line


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path)
    yield made
    made.process.kill()
    made.process.communicate()


def was_forked(host: Host, told: dict[str, Any]) -> bool:
    return psutil.Process(told["guard"]).ppid() == told["server"]


FOREVER = "import time; print('begun', flush=True); time.sleep(600)"


def test_a_forked_process_sees_what_a_fresh_one_sees(host: Host) -> None:
    for unbuffered in ("", "1"):
        seen = []
        for fork in (True, False):
            told = host.start("probe", PROBE, fork, environment={"PYTHONUNBUFFERED": unbuffered, "WARREN_X": "y"})
            assert was_forked(host, told) == fork
            (host.folder / "go").touch()
            assert host.ask("probe", wait=True)["status"] == 0, host.log("probe")
            (host.folder / "go").unlink()
            *_, answer, last = host.log("probe").splitlines()
            assert last == "at exit"
            seen.append(json.loads(answer))
        assert seen[0] == seen[1]
        assert seen[0]["environment"]["WARREN_X"] == "y"


def test_the_exit_status_and_the_traceback_are_those_of_a_fresh_process(host: Host) -> None:
    for number, (code, status) in enumerate(ENDINGS.items()):
        host.start(f"ending{number}", code)
        assert host.ask(f"ending{number}", wait=True)["status"] == status, code
    error = host.log(f"ending{[*ENDINGS].index('1 / 0')}")
    assert error.startswith('Traceback (most recent call last):\n  File "<frozen runpy>"')
    assert error.rstrip().endswith("ZeroDivisionError: division by zero")


LEAVING = """
import atexit, ctypes, sys, threading

class Told:
    def __init__(self, name):
        self.name = name
    def __del__(self):
        print(self.name, "destroyed", flush=True)

def work():
    local = Told("local")
    sys.exit(7)

kept = Told("global")
main = threading.main_thread()
atexit.register(lambda: print("at exit", [one.name for one in threading.enumerate() if one is not main]))
threading.Thread(target=lambda: (main.join(), print("thread ends"))).start()
ctypes.CDLL(None).printf(b"from C\\n")
work()
"""


def test_at_its_end_it_waits_for_threads_and_writes_out_but_destroys_no_module(host: Host) -> None:
    host.start("leaving", LEAVING, environment={"PYTHONUNBUFFERED": ""})
    assert host.ask("leaving", wait=True)["status"] == 7
    told = host.log("leaving").splitlines()
    told.remove("from C")  # wherever: C has a buffer of its own
    assert told == ["local destroyed", "thread ends", "at exit []"]


def test_an_output_that_cannot_be_written_at_its_end_is_told(host: Host) -> None:
    code = "import os, sys; os.dup2(os.open('/dev/full', os.O_WRONLY), 1); print('lost'); sys.exit(0)"
    host.start("full", code, environment={"PYTHONUNBUFFERED": ""})
    assert host.ask("full", wait=True)["status"] == 120
    assert "No space left on device" in host.log("full")


def test_a_process_that_does_not_stop_in_time_is_killed(host: Host) -> None:
    host.start("deaf", f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {FOREVER}", grace=0.5)
    host.start("good", f"import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(7)); {FOREVER}")
    until(lambda: "begun" in host.log("deaf") and "begun" in host.log("good"))
    assert host.ask("deaf", stop=True)["status"] == 137
    assert host.ask("good", stop=True)["status"] == 7


# Holds each forked process before it has a session and signal handlers of its own, until there is a file "go".
HELD = """
import os, signal, time
begin_session = os.setsid
def setsid():
    if callable(signal.getsignal(signal.SIGTERM)):  # its guard's
        while not os.path.exists("go"):
            time.sleep(0.01)
    begin_session()
os.setsid = setsid
"""


def test_a_process_stopped_while_it_is_forked_ends_at_once(tmp_path: Path) -> None:
    host = Host(tmp_path, HELD + HOST)
    try:
        child = host.child(host.start("new", FOREVER))
        host.send("new", stop=True)
        until(lambda: signal.SIGTERM in pending(child))
        (tmp_path / "go").touch()
        assert host.answer()["status"] == 143
    finally:
        host.process.kill()
        host.process.communicate()


def pending(process: psutil.Process) -> set[signal.Signals]:
    """Return the signals that the process blocks and has been sent."""
    (bits,) = re.findall(r"^ShdPnd:\t(\w+)$", Path(f"/proc/{process.pid}/status").read_text(), re.MULTILINE)
    return {number for number in signal.Signals if int(bits, 16) >> (number - 1) & 1}


@pytest.mark.parametrize("victims", ["launcher", "launcher and fork server", "guard"])
def test_a_forked_process_ends_with_its_launcher_or_guard_however_those_end(host: Host, victims: str) -> None:
    told = host.start("forever", FOREVER)
    left = [host.child(told), psutil.Process(told["guard"])]
    assert was_forked(host, told)
    if victims == "guard":
        os.kill(told["guard"], signal.SIGKILL)
        assert host.ask("forever", wait=True)["status"] == 137
    else:
        left.append(psutil.Process(told["server"]))
        for victim in [host.process.pid, told["server"]][: 2 if "server" in victims else 1]:
            os.kill(victim, signal.SIGKILL)
    until(lambda: not living(left))


def test_processes_outlive_the_fork_server_and_later_ones_start_by_exec(host: Host) -> None:
    first = host.start("first", FOREVER)
    process = host.child(first)
    os.kill(first["server"], signal.SIGKILL)
    second, third = host.start("second", FOREVER), host.start("third", FOREVER)
    for told in (second, third):
        assert psutil.Process(told["guard"]).ppid() == host.process.pid
    assert process.is_running()
    assert host.ask("first", stop=True)["status"] == 143
    (line,) = host.said
    assert line.startswith("warning: no more processes can be forked (it has ended)")


def test_a_module_that_was_edited_is_read_anew(host: Host) -> None:
    for word in ("one", "other"):
        host.start("edited", f"import neighbour; print({word!r}, neighbour.word)")
        (host.folder / "neighbour.py").write_text(f"word = {word + '!'!r}")
        host.ask("edited", wait=True)
        host.start("edited", f"import neighbour; print({word!r}, neighbour.word)")
        assert host.ask("edited", wait=True)["status"] == 0
        assert host.log("edited").splitlines()[-1] == f"{word} {word}!"


def test_a_variable_that_imports_may_have_read_is_set_by_exec(host: Host) -> None:
    for name, value, forked in (
        ("WARREN_RANK", "3", True),
        ("CUDA_VISIBLE_DEVICES", "1", True),
        ("OMP_NUM_THREADS", "2", False),
        ("PYTHONHASHSEED", "0", False),
        ("LD_PRELOAD", "", False),
    ):
        told = host.start("reader", f"import os; print(os.environ[{name!r}]); {FOREVER}", environment={name: value})
        until(lambda: "begun" in host.log("reader").splitlines()[-1:])
        assert host.log("reader").splitlines()[-2] == value
        assert was_forked(host, told) == forked, name
        host.ask("reader", stop=True)
        (host.folder / "reader.log").unlink()


def test_only_variables_that_imports_may_have_read_differ() -> None:
    ours = {"PATH": "/bin", "MKL_NUM_THREADS": "1", "WARREN_RUN": "a"}
    assert differing(ours, ours) == []
    assert differing(ours, {"PATH": "/bin", "MKL_NUM_THREADS": "1"}) == []
    assert differing(ours, {**ours, "PATH": "/usr/bin", "TORCH_HOME": "/t"}) == ["PATH", "TORCH_HOME"]
    assert differing(ours, {"PATH": "/bin", "WARREN_RUN": "b"}) == ["MKL_NUM_THREADS"]


def test_a_process_with_threads_is_not_forked(tmp_path: Path) -> None:
    code = "import threading; from workers.servers.forks import Forks\n"
    code += "threading.Thread(target=threading.Event().wait, daemon=True).start(); print(Forks.begin())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "None\n"


class Shared:
    """The socket of a guard; a second thread polls the guard as soon as the first one has read from it.

    `met`: the second poll waits for the first, or has ended.
    """

    def __init__(self, control: socket.socket) -> None:
        self._control, self._pool, self._lock = control, ThreadPoolExecutor(1), threading.Lock()
        self.guard, self.met = ForkedGuard(0, self), threading.Event()  # type: ignore[arg-type]
        self.guard._polling = self  # type: ignore[assignment]
        self.second: Any = None

    def recv(self, size: int, flags: int) -> bytes:
        told = self._control.recv(size, flags)
        if self.second is None:
            self.second = self._pool.submit(self.guard.poll)
            self.second.add_done_callback(lambda _: self.met.set())
            assert self.met.wait(60.0)
        return told

    def close(self) -> None:
        self._control.close()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self.met.set()
            assert self._lock.acquire(timeout=60.0)

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_two_threads_that_poll_a_process_learn_its_status() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        theirs.send(b"7")
    shared = Shared(ours)
    assert shared.guard.poll() == 7
    assert shared.second.result(60.0) == 7


def test_a_wait_goes_on_when_another_threads_poll_sees_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()
    guard, select = ForkedGuard(0, ours), forks.select.select

    def after_another_poll(*given: Any) -> Any:
        theirs.send(b"7")
        theirs.close()
        assert guard.poll() == 7
        return select(*given)

    monkeypatch.setattr(forks.select, "select", after_another_poll)
    assert guard.wait(60.0) == 7
