"""The one error tree: every error that a user can meet. A message names what is at fault, the value and the remedy."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class WarrenError(Exception):
    """Root of every error raised on purpose; a role prints its message and exits with `exit_status`.

    `is_refusal`: a service that raises it refuses what it cannot do now; nothing has failed.
    """

    exit_status = 2
    is_refusal = False


class ConfigurationError(WarrenError):
    """Raised before anything starts, when settings are wrong; `problems` holds all of them."""

    def __init__(self, problems: str | Iterable[str]) -> None:
        self.problems = [problems] if isinstance(problems, str) else list(problems)
        super().__init__("\n".join(self.problems))


class UnknownName(ConfigurationError):
    """Raised when a registry or a table has no entry of the name asked for; lists near names."""

    def __init__(self, kind: str, name: str, known: Iterable[str], remedy: str = "") -> None:
        self.kind, self.name = kind, name
        super().__init__(unknown_name(kind, name, known, remedy))


class IllegalAction(WarrenError):
    """Raised when a policy plays a move that the rules of the game do not allow there."""


class CheckpointError(WarrenError):
    """Raised when a checkpoint is missing, damaged, or of another network."""


class ReplayError(WarrenError):
    """Raised when a recorded match cannot be read, or does not come to its recorded result when it is played again."""


class NotFinite(WarrenError):
    """Raised when a loss or a gradient is NaN or infinite; says which, and in which update.

    The weights were not changed. A learner that ends with it is not restarted.
    """

    exit_status = 65  # EX_DATAERR of sysexits.h; no other error has it


class WireError(WarrenError):
    """Root of the errors of messages and of the servers that carry them."""


class CodecError(WireError):
    """Raised when a value cannot be encoded (names the field) or bytes cannot be decoded (says where)."""


class ClaimError(WireError):
    """Raised when the bytes behind a claim check are gone (its time to live passed) or fail their checksum."""


class ClaimGone(ClaimError):
    """Raised when nothing is behind a claim check any more: its message was acknowledged, or its time has passed."""


class ClaimUsed(ClaimGone):
    """Raised when the message of a claim check was processed before: it is redelivered, or was published twice."""


class BrokerError(WireError):
    """Raised when the broker or Redis is down, refuses the password, or goes away for longer than allowed."""


class ServerAway(BrokerError):
    """Raised when the broker or Redis does not answer now but may soon: down, unknown to the name service, loading."""


class CallError(WireError):
    """Root of the errors of a call that got no result; `service` is the name of the called service."""

    def __init__(self, service: str, message: str) -> None:
        self.service = service
        super().__init__(message)


class NoSuchService(CallError):
    """Raised when no worker of the run has ever offered a service of that name; lists near names."""


class NobodyServing(CallError):
    """Raised when a service exists and no worker serves it; says how long the caller waited for one."""


class DeadlinePassed(CallError):
    """Raised when no answer came in time; a worker drops the call if it has not started it."""


class WorkerLost(CallError):
    """Raised when the worker that held the call, or its connection, died: the call may have run, in part or fully."""


class DeliveriesExceeded(CallError):
    """Raised for a message whose workers died while they ran it, as many times as it may be delivered."""

    def __reduce__(self) -> tuple[type, tuple[str, str]]:  # Celery wraps errors that cannot be copied
        return type(self), (self.service, str(self))


class TimeLimitExceeded(BaseException):
    """Raised in a service that runs for longer than its time limit.

    Not an Exception: a service that catches those would run on.
    """


class CallCancelled(CallError):
    """Raised by the result of a call that its caller cancelled."""


class RemoteFailure(CallError):
    """Raised when the service raised; `kind`: the class of its error; `traceback`: the worker's traceback as text."""

    def __init__(self, service: str, kind: str, message: str, traceback: str = "") -> None:
        self.kind, self.remote_message, self.traceback = kind, message, traceback
        super().__init__(service, f"{service} failed with {kind}: {message}\n{traceback}".rstrip())


class LeagueError(WarrenError):
    """Root of the league's errors: the message names the player, match or model, and the remedy."""


class LeagueAbsent(LeagueError):
    """Raised while Redis holds no league that is ready: it is still being created, or restored from its folder."""


class MatchmakingError(LeagueError):
    """Raised when a player has nobody to play against, or a matchmaker is configured so that it cannot choose."""

    is_refusal = True


class PlayerError(LeagueError):
    """Raised for a player that does not exist, exists already, is paused, or may not do what was asked of it."""

    is_refusal = True


class PlayerUnavailable(PlayerError):
    """Raised for a player that is paused, or that another learner trains: ask again later."""


class PlayerStopped(PlayerError):
    """Raised for a player that no longer learns, since it was frozen or removed: its learner's work is done."""


class PoolError(LeagueError):
    """Raised when the model pool lacks a model, or when a frozen one would change."""


def unknown_name(kind: str, name: str, known: Iterable[str], remedy: str = "") -> str:
    """Return a sentence that says that no `kind` is called `name`, with near names, or with all if none is near."""
    names = sorted(known)
    near = difflib.get_close_matches(str(name), names, n=3, cutoff=0.5)
    if near:
        hint = f"did you mean {' or '.join(near)}?"
    elif names and len(names) <= 20:
        hint = f"known: {', '.join(names)}"
    else:
        hint = ""
    is_place = remedy.startswith(("in ", "of ", "at ", "below ", "("))  # where it was looked for
    stop = ";" if hint or not is_place else ""
    hint += ";" if hint.startswith("known: ") and remedy and not is_place else ""
    return " ".join(part for part in (f"{kind} {name!r} does not exist{stop}", hint, remedy) if part).rstrip(";")
