"""A small FightingICE with the game's options, protocol and order of messages, but a fight of its own.

Like the game, it accepts connections one at a time by their first byte, and none after a silent one. A fighter walks
by R or L; a press of A within reach takes 20 hit points. The program stands in for `java ... Main`.
"""

from __future__ import annotations

import argparse
import socket
import threading
from collections import deque
from typing import Any

from envs.fightingice import protocol
from envs.fightingice.protocol import Line, Lost, message

DELAY, REACH, DAMAGE = 15, 200, 20  # frames; pixels; hit points
PROGRAMS = {"Sleeper"}  # AIs that the game includes


class Fighter:
    def __init__(self, x: int, hp: int) -> None:
        self.x, self.hp, self.pressed = x, hp, False

    def data(self, player: int, other: Fighter) -> Any:
        attack = message("AttackData", is_live=self.pressed, hit_damage=DAMAGE if self.pressed else 0)
        return message(
            "CharacterData", player_number=player == 0, hp=self.hp, energy=30, x=self.x, y=465, left=self.x,
            right=self.x + 40, top=435, bottom=640, action=27 if self.pressed else 1, front=self.x <= other.x,
            control=True, attack_data=attack,
        )  # fmt: skip


class Server:
    """A server of consecutive games until it is closed. `heard`: each RunGameRequest and InitializeRequest."""

    def __init__(self, port: int = 0, rounds: int = 1, frames: int = 120, hp: int = 100) -> None:
        self.rounds, self.frames, self.hp = rounds, frames, hp
        self.heard: list[Any] = []
        self.broken = False  # disconnect during the next game
        self._listening = socket.create_server(("127.0.0.1", port))
        self.port = self._listening.getsockname()[1]
        self._players: dict[int, Line] = {}
        self._asked: tuple[Any, Line] | None = None
        self._changed = threading.Condition()
        for job in (self._accept, self._play):
            threading.Thread(target=job, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def close(self) -> None:
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                line = Line(self._listening.accept()[0])
                kind = line.byte()
                if kind == protocol.RUN_GAME:
                    request = line.hear("RunGameRequest")
                    with self._changed:
                        ready = self._asked is None
                        line.say(
                            message("RunGameResponse", status_code=0 if ready else 1, response_message="not ready")
                        )
                        if ready:
                            self.heard.append(request)
                            self._asked = request, line
                            self._changed.notify_all()
                elif kind == protocol.PLAYER:
                    request = line.hear("InitializeRequest")
                    with self._changed:
                        self.heard.append(request)
                        self._players[0 if request.player_number else 1] = line
                        self._changed.notify_all()
            except (OSError, Lost):
                return

    def _play(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._asked is not None and set(self._players) >= set(self._external()))
                assert self._asked is not None
                line = self._asked[1]
            try:
                self._game()
                line_over = [*self._players.values(), line]
                for one in line_over:
                    one._connection.sendall(protocol.OVER)
            except (OSError, Lost):
                for one in (*self._players.values(), line):
                    one.close()
            with self._changed:
                self._players, self._asked = {}, None

    def _external(self) -> list[int]:
        assert self._asked is not None
        request = self._asked[0]
        names = (request.player_1, request.player_2)
        return [player for player, name in enumerate(names) if name != "Keyboard" and name not in PROGRAMS]

    def _say(self, **fields: Any) -> None:
        for line in self._players.values():
            line.say(message("PlayerGameState", **fields), protocol.STATE)

    def _game(self) -> None:
        self._say(state_flag=protocol.INITIALIZE, game_data=message("GameData", max_hps=[self.hp, self.hp]))
        for number in range(1, self.rounds + 1):
            fighters = (Fighter(300, self.hp), Fighter(620, self.hp))
            seen = deque([message("FrameData", empty_flag=True)] * DELAY, DELAY)
            frame = 0
            while frame < self.frames and min(fighter.hp for fighter in fighters) > 0:
                now = message(
                    "FrameData", current_frame_number=frame, current_round=number,
                    character_data=[fighters[i].data(i, fighters[1 - i]) for i in range(2)],
                )  # fmt: skip
                self._say(state_flag=protocol.PROCESSING, is_control=True, frame_data=seen[0], non_delay_frame_data=now)
                seen.append(now)
                if self.broken:
                    raise Lost("as a test wants it")
                for player, line in self._players.items():
                    self._press(fighters, player, line.hear("Key"))
                frame += 1
            left = [fighter.hp for fighter in fighters]
            flag = protocol.GAME_END if number == self.rounds else protocol.ROUND_END
            self._say(
                state_flag=flag,
                round_result=message("RoundResult", current_round=number, remaining_hps=left, elapsed_frame=frame),
            )

    def _press(self, fighters: tuple[Fighter, Fighter], player: int, key: Any) -> None:
        me, other = fighters[player], fighters[1 - player]
        me.x = min(max(me.x + 10 * (key.R - key.L), 0), 900)
        if key.A and not me.pressed and abs(me.x - other.x) < REACH:
            other.hp -= DAMAGE
        me.pressed = key.A


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for option in ("--port", "-r", "-f"):
        parser.add_argument(option, type=int)
    parser.add_argument("--limithp", type=int, nargs=2)
    options, _ = parser.parse_known_args()
    Server(options.port, options.r, options.f, options.limithp[0])
    print("INFO: Waiting to launch a game", flush=True)
    threading.Event().wait()
