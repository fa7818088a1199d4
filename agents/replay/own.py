"""A user's own buffer, named by `file.py:NAME` or `module:NAME`: made and checked at the start, and at each draw."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from agents.replay.buffer import ReplayBuffer
from agents.replay.interface import Buffer, BufferOptions, Draw, checked_priorities
from agents.trajectories import Trajectory
from warren.errors import CheckpointError, ConfigurationError
from warren.user_code import blame, call, find, where

SETTING = "replay.buffer"
ARGUMENTS = {
    "add": ("trajectory", "source", "number"),
    "draw": ("count", "weight_exponent"),
    "set_priorities": ("draw", "priorities"),
    "state": (),
    "load_state": ("arrays", "meta"),
}
ADVICE = "derive it from agents.replay.ReplayBuffer, or see agents.replay.Buffer"
OF, STATE, META = "buffer", "state", "meta"  # keys of the state in a file; META is the file's own array
TAKEN = (META, "file", "allow_pickle")  # the last two are parameters of numpy.savez, which takes arrays by name too


def build_buffer(
    name: str | None, settings: Mapping[str, Any], options: BufferOptions, in_checkpoint: bool = False
) -> Buffer:
    """Return the buffer that `name` names, made with its `settings`; the built-in one for None.

    `in_checkpoint`: checkpoints are to hold it. Raises ConfigurationError with all that is wrong with a user's own.
    """
    if name is None:
        return ReplayBuffer(**vars(options))
    if not all(name.rpartition(":")):
        raise ConfigurationError(
            f"{SETTING}: {name!r} names no function; write path/to/file.py:build or module:build, or leave it out for "
            "Warren's own buffer, which draws evenly or by priority as the algorithm needs"
        )
    with blame(f"{SETTING} {name!r}"):
        theirs = call(f"{SETTING} {name!r}", find(SETTING, name), dict(settings), options)
        if problems := list(_problems(name, theirs, options, in_checkpoint)):
            raise ConfigurationError(problems)
    return OwnBuffer(name, theirs, options)


def _problems(name: str, theirs: Any, options: BufferOptions, in_checkpoint: bool) -> Iterator[str]:
    """Yield a sentence for each thing that the user's object lacks for this run."""
    made, asked = f"{SETTING}: {name!r} made a {type(theirs).__name__}", ["add", "draw"]
    if options.priority_exponent is not None:
        asked.append("set_priorities")
    lacking = [method for method in asked if not callable(getattr(theirs, method, None))]
    if not hasattr(theirs, "__len__"):
        lacking.append("__len__")
    lacking += [one for one in ("startable", *["together"][: options.groups]) if not hasattr(theirs, one)]
    if lacking:
        yield f"{made} without {', '.join(lacking)}, which this run's algorithm needs; {ADVICE}"
    elif not isinstance(theirs.startable, int | np.integer):
        yield f"{made} whose startable is {theirs.startable!r}, not a number of sequences; make it a property"
    kept = [method for method in ("state", "load_state") if callable(getattr(theirs, method, None))]
    if in_checkpoint and len(kept) < 2:
        yield (
            f"replay.in_checkpoint: {name!r} made a {type(theirs).__name__} without state() and load_state(), so no "
            "checkpoint can hold it; add them, or leave replay.in_checkpoint out"
        )
    for method in (*asked, *(kept if in_checkpoint else ())):
        taken = ARGUMENTS[method]
        if method not in lacking and not _takes(getattr(theirs, method), len(taken)):
            yield f"{made} whose {method}() does not take ({', '.join(taken)}); give it these arguments"


def _takes(method: Callable[..., Any], count: int) -> bool:
    """Return whether `method` can be called with `count` positional arguments."""
    try:
        inspect.signature(method).bind(*range(count))
    except TypeError:
        return False
    except ValueError:  # C code without a signature
        return True
    return True


class OwnBuffer:
    """A Buffer around a user's object: its failures name the user's line, and its draws are checked."""

    def __init__(self, name: str, theirs: Any, options: BufferOptions) -> None:
        self.theirs, self._name, self._options = theirs, name, options
        self._blame = {method: blame(f"{SETTING} {name!r}: {method}()") for method in ARGUMENTS}
        self._asking = blame(f"{SETTING} {name!r}")

    @property
    def startable(self) -> int:
        """See Buffer."""
        with self._asking:
            return int(self.theirs.startable)

    @property
    def together(self) -> int:
        """See Buffer."""
        with self._asking:
            return int(getattr(self.theirs, "together", 1))

    def __len__(self) -> int:
        """See Buffer."""
        with self._asking:
            return len(self.theirs)

    def add(self, trajectory: Trajectory, source: str = "", number: int = 0) -> None:
        """See Buffer. Raises ConfigurationError."""
        with self._blame["add"]:
            self.theirs.add(trajectory, source, number)

    def draw(self, count: int, weight_exponent: float = 0.0) -> Draw:
        """See Buffer; an algorithm that draws by priority gets weights of 1 where there are none.

        Raises ConfigurationError for what is not a Draw of this many sequences.
        """
        with self._blame["draw"]:
            made = self.theirs.draw(count, weight_exponent)
        said = f"{SETTING} {self._name!r}: draw({count}, {weight_exponent:g}) gave"
        if not isinstance(made, Draw) or not isinstance(made.trajectory, Trajectory):
            raise ConfigurationError(f"{said} a {type(made).__name__}; return an agents.replay.Draw of a Trajectory")
        shape, wanted = made.trajectory.terminated.shape, (self._options.length, count * self.together)
        if shape != wanted:
            raise ConfigurationError(
                f"{said} a Trajectory of {list(shape)} steps x slots; this run's algorithm needs {list(wanted)}"
            )
        if made.weights is None and self._options.priority_exponent is None:
            return made
        weights = np.asarray(np.ones(wanted[1]) if made.weights is None else made.weights, np.float32)
        if weights.shape != wanted[1:] or not (np.isfinite(weights) & (weights >= 0)).all():
            raise ConfigurationError(
                f"{said} weights of shape {list(weights.shape)}; give [{wanted[1]}] finite numbers of at least 0, or "
                "None"
            )
        return Draw(made.trajectory, made.items, made.counted, weights)

    def set_priorities(self, draw: Draw, priorities: np.ndarray) -> None:
        """See Buffer; do nothing where the user's buffer takes none. Raises ConfigurationError."""
        given = checked_priorities(priorities, draw.trajectory.num_slots)
        if hasattr(self.theirs, "set_priorities"):
            with self._blame["set_priorities"]:
                self.theirs.set_priorities(draw, given)

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """See Buffer. Raises ConfigurationError for a state that no file can hold without pickling."""
        with self._blame["state"]:
            arrays, meta = self.theirs.state()
            arrays = {str(name): np.asarray(array) for name, array in arrays.items()}
            json.dumps(meta)
        if wrong := [name for name, array in arrays.items() if array.dtype.hasobject or name in TAKEN]:
            raise ConfigurationError(
                f"{SETTING} {self._name!r}: state() gave {', '.join(wrong)}, which a checkpoint cannot hold; give "
                f"arrays of numbers or booleans, none of them called {', '.join(TAKEN)}"
            )
        return arrays, {OF: type(self.theirs).__name__, STATE: meta}

    def load_state(self, arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any]) -> None:
        """See Buffer. Raises CheckpointError for another buffer's state, and for whatever the user's code raises."""
        if (of := meta.get(OF, ReplayBuffer.__name__)) != (mine := type(self.theirs).__name__):
            raise CheckpointError(f"it was written by a {of}, and this run's replay.buffer is a {mine}")
        try:
            self.theirs.load_state(arrays, meta[STATE])
        except CheckpointError:
            raise
        except Exception as error:
            what = f"{type(error).__name__}: {error}"
            raise CheckpointError(f"load_state() of {self._name!r} failed{where(error)}: {what}") from error
