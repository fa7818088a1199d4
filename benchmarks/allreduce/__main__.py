"""Two ranks that average their gradients: `python -m benchmarks.allreduce [--only PART]`. The last line is JSON.

ring      the average of a gradient of 1, 10 and 100 MB, by torch's gloo and by Horovod, each way of compression
step      a whole PPO update of one rank, and of two at the same total batch, of a small and a larger network
curves    CartPole by PPO, one rank beside two at the same total batch, and two that compress; 5 seeds
bits      1,000 steps of the optimizer by each backend and compression: the weights of both ranks, bit for bit
recovery  a rank is killed: seconds until the other has made an update; started again: until both have

Ranks are processes of this machine, of one thread each. If Horovod is not built (`make horovod`), it is left out, with
a line that says so.
"""

from __future__ import annotations

import argparse
import os
import secrets
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.allreduce import curves as allreduce_curves
from benchmarks.allreduce.processes import RankProcesses, rank_lines
from benchmarks.apparatus.report import finish
from workers import servers
from workers.learning.allreduce import horovod_ring
from workers.learning.allreduce.compression import NAMES, NOT_BY_HOROVOD

SIZES = (1.0, 10.0, 100.0)  # MB of float32
NETWORKS = ([64, 64], [512, 512])  # their gradients have 37 KB and 2.1 MB
UPDATES_OF_A_CURVE = 50
STEPS = 1000  # optimizer steps after which weights are compared; 40 per update
KILLS = 4


def turns(count: int, seconds: float) -> Iterator[int]:
    """Yield 0 .. count - 1, as long as the next one will probably end within `seconds` of the first one's beginning."""
    began = time.monotonic()
    for turn in range(count):
        used = time.monotonic() - began
        if turn and used + used / turn > seconds:
            print(f"{turn} rounds of {count}: another one would not end within --seconds {seconds:g}", flush=True)
            return
        yield turn


def compressions(backend: str) -> list[str]:
    """Return the compressions that `backend` can do."""
    return [name for name in NAMES if backend != "horovod" or name != NOT_BY_HOROVOD]


class Rounds:
    """The first rank's figures for each timed part: median ms of its rounds, and bytes that it sent."""

    def __init__(self) -> None:
        self.times: dict[str, list[float]] = {}
        self.sent: dict[str, int] = {}

    def add(self, key: str, line: dict[str, Any]) -> None:
        """Add the figures of one timed part in one round."""
        if line["learner"] == 0:
            self.times.setdefault(key, []).append(statistics.median(line["ms"]))
            self.sent[key] = line["sent"]

    def medians(self) -> dict[str, float]:
        """Print and return ms of each timed part, median over rounds."""
        found = {key: round(statistics.median(times), 3) for key, times in self.times.items()}
        for key, ms in found.items():
            spread = f"{min(self.times[key]):.2f} to {max(self.times[key]):.2f}"
            print(f"{key:40} {ms:10.2f} ms ({spread}) {self.sent[key]:12,} bytes a rank", flush=True)
        return found


def ring(options: argparse.Namespace) -> dict[str, Any]:
    """Return ms and bytes of averages, medians over rounds in which backends take turns."""
    rounds = Rounds()
    for turn in turns(options.rounds, options.seconds):
        for backend in options.backends:
            print(f"averages by {backend}, round {turn + 1} of {options.rounds}", flush=True)
            lines = rank_lines(
                2, options.limit, run=options.run(), backend=backend, part="average", megabytes=options.sizes,
                compressions=compressions(backend),
            )  # fmt: skip
            for line in lines:
                rounds.add(f"{backend} {line['megabytes']:g} MB {line['compression']}", line)
    found = rounds.medians()
    largest = f"{max(options.sizes):g} MB"
    report: dict[str, Any] = {"average_ms": found, "average_bytes": rounds.sent, "horovod_vs_gloo_100mb": None}
    if "horovod" in options.backends:  # ratio of speeds: above 1, Horovod is faster
        pairs = zip(rounds.times[f"torch {largest} none"], rounds.times[f"horovod {largest} none"], strict=True)
        report["horovod_vs_gloo_100mb"] = round(statistics.median(gloo / horovod for gloo, horovod in pairs), 3)
    report["time_vs_uncompressed"] = {
        key: round(ms / found[f"{key.rpartition(' ')[0]} none"], 3)
        for key, ms in found.items()
        if not key.endswith("none")
    }
    return report


def step(options: argparse.Namespace) -> dict[str, Any]:
    """Return ms of an update, median over rounds in which one rank and two take turns."""
    rounds = Rounds()
    for turn in turns(options.rounds, options.seconds):
        for backend in ("alone", *options.backends):
            print(f"updates by {backend}, round {turn + 1} of {options.rounds}", flush=True)
            lines = rank_lines(
                1 if backend == "alone" else 2, options.limit, run=options.run(), part="update", repeats=3,
                backend="torch" if backend == "alone" else backend, hidden_sizes=options.networks,
                compressions=["none"] if backend == "alone" else compressions(backend),
            )  # fmt: skip
            for line in lines:
                rounds.add(f"{line['parameters']} parameters, {backend} {line['compression']}", line)
    found = rounds.medians()
    speedup = {
        key: round(found[f"{key.partition(',')[0]}, alone none"] / ms, 3)
        for key, ms in found.items()
        if " alone " not in key
    }
    return {"update_ms": found, "update_bytes": rounds.sent, "speed_vs_one_rank": speedup}


def curves(options: argparse.Namespace) -> dict[str, Any]:
    """Return learning curves of one rank, of two, and of two that compress, all by torch's gloo."""
    return allreduce_curves.curves(
        options.folder, options.seeds, options.updates, options.seconds, options.run, options.picture
    )


def bits(options: argparse.Namespace) -> dict[str, Any]:
    """Return whether both ranks have equal weights after 1,000 steps; they are also compared before each update."""
    found = {}
    for backend in options.backends:
        lines = rank_lines(
            2, options.limit, run=options.run(), backend=backend, part="train", updates=options.equal_after // 40,
            compressions=compressions(backend),
        )  # fmt: skip
        for name in compressions(backend):
            of_ranks = [line for line in lines if line["compression"] == name]
            assert {line["learner"] for line in of_ranks} == {0, 1}
            steps = {line["optimizer_steps"] for line in of_ranks}
            assert min(steps) >= options.equal_after, steps
            equal = len({line["weights"] for line in of_ranks}) == 1
            found[f"{backend} {name}"] = equal
            print(f"{backend} {name}: after {min(steps):,} steps {'equal' if equal else 'NOT EQUAL'}", flush=True)
    return {"equal_bit_for_bit": found, "all_equal": all(found.values()), "optimizer_steps": options.equal_after}


def recovery(options: argparse.Namespace) -> dict[str, Any]:
    """Kill each of two ranks in turn, and start it again; return medians of all kills."""
    report: dict[str, Any] = {"recovery_s": None}
    for backend in options.backends:
        with RankProcesses(2, run=options.run(), backend=backend, part="train") as ranks:
            ranks.until(lambda line: line["size"] == 2 and line["updates"] >= 3, options.limit)
            share = options.seconds / len(options.backends)
            times = [killed_and_back(ranks, number % 2, options.limit) for number in turns(options.kills, share)]
        alone, together = ([round(one, 2) for one in column] for column in zip(*times, strict=True))
        print(f"{backend}: an update after {alone} s; of both {together} s after the start of the other", flush=True)
        name = "" if backend == "torch" else f"_{backend}"
        report |= {f"recovery_s{name}": statistics.median(alone), f"recovery_s{name}_of_each": alone}
        report |= {f"rejoined_s{name}": statistics.median(together), f"rejoined_s{name}_of_each": together}
    return report


def killed_and_back(ranks: RankProcesses, learner: int, limit: float) -> tuple[float, float]:
    """Return s from the rank's death until the other has made an update, and from its new start until both have."""

    def updated(size: int) -> float:
        line = ranks.until(lambda line: line["learner"] == 1 - learner and line["size"] == size, limit)
        return float(line["at"])

    killed = ranks.kill(learner)
    alone, started = updated(1) - killed, time.monotonic()
    ranks.start(learner)
    return alone, updated(2) - started


PARTS: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
    "ring": ring,
    "step": step,
    "curves": curves,
    "bits": bits,
    "recovery": recovery,
}


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=PARTS, action="append")
    parser.add_argument("--rounds", type=int, default=3, help="of `ring` and `step`")
    parser.add_argument("--seeds", type=int, default=5, help="of `curves`")
    parser.add_argument("--kills", type=int, default=KILLS, help="of each backend")
    parser.add_argument(
        "--seconds", type=float, default=220.0, help="of a part: fewer rounds, kills or seeds where it is longer"
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, short runs: whether it works")
    parser.add_argument("--no-horovod", action="store_true")
    parser.add_argument("--folder", type=Path, help="keeps curves there; the same command goes on with the rest")
    parser.add_argument("--picture", type=Path, help="draw the learning curves there")
    parser.add_argument("--servers", default="embedded", choices=servers.MODES, help="only Redis is used")
    parser.add_argument("--limit", type=float, default=600.0, help="s that ranks may take for a part")
    options = parser.parse_args(arguments)
    if options.seeds < 2:
        parser.error(f"--seeds {options.seeds}: one seed has no spread; give 2 or more")
    options.backends = ["torch"]
    if options.no_horovod:
        print("Horovod left out: --no-horovod")
    elif not horovod_ring.is_built():
        print("Horovod left out: it is not built (`make horovod`)")
    else:
        options.backends.append("horovod")
    options.sizes = [0.1] if options.quick else list(SIZES)
    options.networks = [[8]] if options.quick else [list(sizes) for sizes in NETWORKS]
    options.updates = 3 if options.quick else UPDATES_OF_A_CURVE
    options.equal_after = 80 if options.quick else STEPS
    options.run = lambda: f"bench-allreduce-{secrets.token_hex(4)}"
    return options


def main() -> None:
    """Run the parts, print their figures, end with JSON."""
    options = parsed()
    report: dict[str, Any] = {}
    with (
        tempfile.TemporaryDirectory(prefix="warren-bench-") as folder,
        servers.acquire(options.servers, folder=Path(folder), say=lambda line: print(line, file=sys.stderr)) as found,
    ):
        os.environ.update(found.environment(), OMP_NUM_THREADS="1")
        for name in options.only or PARTS:
            began = time.monotonic()
            report |= PARTS[name](options)
            report.setdefault("seconds", {})[name] = round(time.monotonic() - began, 1)
            print(f"{name} took {report['seconds'][name]:.0f} s", flush=True)
    finish("allreduce", report)


if __name__ == "__main__":
    main()
