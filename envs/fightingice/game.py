"""A running FightingICE: started here, without a window, on a port of the loopback interface, or one that runs already.

A game started here ends with this process, however that ends, and leaves no files: its log folder is removed.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from envs.fightingice.protocol import RUN_GAME, SUCCESS, Line, Lost, message
from warren.errors import ConfigurationError, WarrenError

FOLDER = "WARREN_FIGHTINGICE"  # in the environment: where the built game is
READY = b"Waiting to launch a game"  # in its log
PATIENCE = 60.0  # s within which it has to start, or answer
CLASSES = ("FightingICE.jar", "classes", "bin")  # paths of its classes, in a release or a build by docs/environments.md
# When this process ends, the guard's standard input ends; it then kills the game and removes the game's folder, $0.
_GUARD = """
exec 3<&0
"$@" &
game=$!
(cat <&3 >/dev/null; kill -9 $game; while kill -0 $game; do sleep .05; done; rm -rf "$0") 2>/dev/null &
wait $game
"""


class Game:
    """One process of the game, or with `address` ("host:port") one that runs already, in --pyftg-mode.

    `folder`: that of the game, with data/, lib/ and its classes. `memory`: MB of its heap. `frames` a round, `rounds` a
    game, `hp` of both at a round's beginning. Raises ConfigurationError if something is missing.
    """

    def __init__(
        self, folder: str | None, address: str | None, *, memory: int, frames: int, rounds: int, hp: int
    ) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._place: Path | None = None
        self._folder: Path | None = None
        if address is not None:
            host, colon, port = address.rpartition(":")
            if not colon or not port.isdigit():
                raise ConfigurationError(f"fightingice: address={address!r} must be host:port, as in 127.0.0.1:31415")
            self._address = (host, int(port))
            return
        self._folder = _found(folder)
        self._options = [f"-Xmx{memory}m", *(f"-r {rounds} -f {frames} --limithp {hp} {hp}".split())]
        self._start()

    @property
    def own(self) -> bool:
        """Return True if this process started the game."""
        return self._process is not None

    def connect(self) -> Line:
        """Open a connection. Raises WarrenError if the game is gone."""
        try:
            connection = socket.create_connection(self._address, PATIENCE)
        except OSError as error:
            raise WarrenError(f"FightingICE does not answer at {self._where()}: {error}{self._last_words()}") from error
        return Line(connection)

    def run(self, characters: tuple[str, str], players: tuple[str, str]) -> Line:
        """Begin a game, which waits for its players; the returned connection gets one byte when the game is over."""
        self._clear_logs()
        request = message(
            "RunGameRequest", character_1=characters[0], character_2=characters[1], player_1=players[0],
            player_2=players[1], game_number=1,
        )  # fmt: skip
        deadline = time.monotonic() + PATIENCE
        while True:
            line = self.connect()
            try:
                line.say(request, RUN_GAME)
                answer = line.hear("RunGameResponse")
            except Lost as error:
                raise WarrenError(f"FightingICE at {self._where()}: {error}{self._last_words()}") from error
            if answer.status_code == SUCCESS:
                return line
            line.close()
            if time.monotonic() > deadline:
                raise WarrenError(f"FightingICE at {self._where()} begins no game: {answer.response_message}")
            time.sleep(0.02)  # it is still ending the last game

    def opponents(self) -> list[str]:
        """Return the names of the game's own AIs, if its folder is known."""
        return sorted(file.stem for file in (self._folder / "data" / "ai").glob("*.jar")) if self._folder else []

    def restart(self) -> None:
        """Start a new process in place of one whose game is not over."""
        self._stop()
        self._start()

    def close(self) -> None:
        """End the game's process, if it was started here."""
        self._stop()

    def why(self, error: Exception) -> WarrenError:
        """Return the error to raise when a game broke off."""
        return WarrenError(f"FightingICE at {self._where()}: {error}{self._last_words()}")

    def _start(self) -> None:
        assert self._folder is not None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._address = free.getsockname()
        self._place = Path(tempfile.mkdtemp(prefix="warren-fightingice-"))
        (self._place / "data").symlink_to(self._folder / "data")
        heap, *options = self._options
        jars = [self._folder / name for name in CLASSES if (self._folder / name).exists()]
        jars += sorted((self._folder / "lib").rglob("*.jar"))
        command = [
            # A serial collector: the games of a machine share its cores.
            "java", heap, "-XX:+UseSerialGC", "-cp", os.pathsep.join(map(str, jars)), "Main", "--lightweight-mode",
            "--input-sync", "--pyftg-mode", "--mute", "--non-delay", "2", "--port", str(self._address[1]), *options,
        ]  # fmt: skip
        with (self._place / "output").open("wb") as output:
            self._process = subprocess.Popen(
                ["sh", "-c", _GUARD, str(self._place), *command], cwd=self._place, stdin=subprocess.PIPE, stdout=output,
                stderr=output, env={**os.environ, "SERVER_HOST": "127.0.0.1"}, start_new_session=True,
            )  # fmt: skip
        # Read its log, and open no connection: a silent one would end the thread that accepts connections.
        deadline = time.monotonic() + PATIENCE
        while READY not in (self._place / "output").read_bytes():
            if self._process.poll() is not None or time.monotonic() > deadline:
                words = self._last_words()
                self._stop()
                raise ConfigurationError(f"FightingICE in {self._folder} did not start{words}")
            time.sleep(0.02)

    def _stop(self) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()  # its guard then kills it
            self._process.wait()
            self._process = None
        if self._place is not None:
            shutil.rmtree(self._place, ignore_errors=True)
            self._place = None

    def _clear_logs(self) -> None:
        """Remove the files of finished games: eleven megabytes of sound a round."""
        if self._place is not None:
            for file in (self._place / "log").rglob("*"):
                if file.is_file():
                    file.unlink(missing_ok=True)

    def _where(self) -> str:
        return f"{self._address[0]}:{self._address[1]}"

    def _last_words(self) -> str:
        if self._place is None:
            return ""
        lines = (self._place / "output").read_text(encoding="utf-8", errors="replace").splitlines()[-5:]
        return "".join(f"\n  {line}" for line in lines)


def _found(folder: str | None) -> Path:
    """Return the game's folder. Raises ConfigurationError that lists everything missing."""
    given = folder or os.environ.get(FOLDER)
    if not given:
        raise ConfigurationError(
            f"fightingice: where is the game? set {FOLDER}=FOLDER, or +env.kwargs.game=FOLDER; "
            "docs/environments.md says how it is built"
        )
    path = Path(given).expanduser().resolve()
    problems = []
    for name, there in (
        ("data/characters", (path / "data" / "characters").is_dir()),
        ("lib", (path / "lib").is_dir()),
        (f"its classes ({', '.join(CLASSES)})", any((path / name).exists() for name in CLASSES)),
    ):
        if not there:
            problems.append(f"fightingice: {path} has no {name}; docs/environments.md says how the game is built")
    if shutil.which("java") is None:
        problems.append("fightingice: java is not there; on Debian or Ubuntu: apt-get install default-jre-headless")
    if problems:
        raise ConfigurationError(problems)
    return path
