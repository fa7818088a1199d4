"""Dramatiq's no-ops, for `benchmarks.calls`. It runs by the Python of an environment that has dramatiq[rabbitmq].

`python dramatiq_peer.py URL FOLDER` starts two worker processes of 8 threads, prints "ready", and reads lines from its
input: "send N" sends N messages and answers "sent"; "stop" and "go" suspend and resume the worker processes.
Each call adds one to its thread's count, 8 bytes in a file of FOLDER.
"""

import itertools
import mmap
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import dramatiq
from dramatiq.brokers.rabbitmq import RabbitmqBroker

URL = os.environ.setdefault("NOOPS_URL", sys.argv[1] if len(sys.argv) > 1 else "")
FOLDER = Path(os.environ.setdefault("NOOPS_FOLDER", sys.argv[2] if len(sys.argv) > 2 else ""))
mine = threading.local()

dramatiq.set_broker(RabbitmqBroker(url=URL))


@dramatiq.actor(max_retries=0, queue_name=f"noops-{FOLDER.name}")
def noop(number):
    if not hasattr(mine, "view"):  # a count per thread: threads would overwrite each other's
        with (FOLDER / f"{os.getpid()}-{threading.get_ident()}").open("w+b") as file:
            file.write(bytes(8))
            file.flush()
            mine.view, mine.count = mmap.mmap(file.fileno(), 8), itertools.count(1)
    mine.view[:8] = next(mine.count).to_bytes(8, "little")


def main():
    command = [sys.executable, "-m", "dramatiq", Path(__file__).stem, "-p", "2", "-t", "8"]
    workers = subprocess.Popen(
        command, cwd=Path(__file__).parent, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        print("ready", flush=True)
        for line in sys.stdin:
            what, _, number = line.strip().partition(" ")
            if what == "send":
                for index in range(int(number)):
                    noop.send(index)
                print("sent", flush=True)
            else:
                os.killpg(workers.pid, signal.SIGSTOP if what == "stop" else signal.SIGCONT)
                print("done", flush=True)
    finally:
        os.killpg(workers.pid, signal.SIGCONT)
        workers.terminate()
        try:
            workers.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(workers.pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
