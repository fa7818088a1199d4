"""FightingICE's wire protocol: the messages of its protos/*.proto, and their framing.

A connection begins with one byte for its purpose; each message after it is four bytes of its length, little-endian, and
then the message. pyftg implements the same, but pins an old protobuf.
"""

from __future__ import annotations

import socket
import struct
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from warren.errors import WarrenError

PLAYER, RUN_GAME, CLOSE_GAME = b"\x01", b"\x02", b"\x05"  # purposes of a connection
OVER, STATE = b"\x00", b"\x01"  # the game's messages to a player; OVER also to the connection that asked for the game
SUCCESS = 0
INITIALIZE, INIT_ROUND, PROCESSING, ROUND_END, GAME_END = range(1, 6)  # state_flag of a PlayerGameState
MOST = 1 << 24  # bytes of a message

_F = descriptor_pb2.FieldDescriptorProto
_TYPES = {"int": _F.TYPE_INT32, "bool": _F.TYPE_BOOL, "str": _F.TYPE_STRING, "bytes": _F.TYPE_BYTES}
# Message -> {field: (number, type)}; "[...]" is repeated; a message's name stands for that message; enums are numbers.
_MESSAGES: dict[str, dict[str, tuple[int, str]]] = {
    "RunGameRequest": {
        "character_1": (1, "str"), "character_2": (2, "str"), "player_1": (3, "str"), "player_2": (4, "str"),
        "game_number": (5, "int"),
    },
    "RunGameResponse": {"status_code": (1, "int"), "response_message": (2, "str")},
    "InitializeRequest": {"player_number": (1, "bool"), "player_name": (2, "str"), "is_blind": (3, "bool")},
    "PlayerGameState": {
        "state_flag": (1, "int"), "is_control": (2, "bool"), "frame_data": (3, "FrameData"),
        "non_delay_frame_data": (4, "FrameData"), "game_data": (7, "GameData"), "round_result": (8, "RoundResult"),
    },
    "HitArea": {"left": (1, "int"), "right": (2, "int"), "top": (3, "int"), "bottom": (4, "int")},
    "AttackData": {
        "setting_hit_area": (1, "HitArea"), "setting_speed_x": (2, "int"), "setting_speed_y": (3, "int"),
        "current_hit_area": (4, "HitArea"), "current_frame": (5, "int"), "player_number": (6, "bool"),
        "speed_x": (7, "int"), "speed_y": (8, "int"), "start_up": (9, "int"), "active": (10, "int"),
        "hit_damage": (11, "int"), "guard_damage": (12, "int"), "start_add_energy": (13, "int"),
        "hit_add_energy": (14, "int"), "guard_add_energy": (15, "int"), "give_energy": (16, "int"),
        "impact_x": (17, "int"), "impact_y": (18, "int"), "give_guard_recov": (19, "int"), "attack_type": (20, "int"),
        "down_prop": (21, "bool"), "is_projectile": (22, "bool"), "is_live": (23, "bool"), "empty_flag": (24, "bool"),
        "identifier": (25, "str"),
    },
    "CharacterData": {
        "player_number": (1, "bool"), "hp": (2, "int"), "energy": (3, "int"), "x": (4, "int"), "y": (5, "int"),
        "left": (6, "int"), "right": (7, "int"), "top": (8, "int"), "bottom": (9, "int"), "speed_x": (10, "int"),
        "speed_y": (11, "int"), "state": (12, "int"), "action": (13, "int"), "front": (14, "bool"),
        "control": (15, "bool"), "attack_data": (16, "AttackData"), "remaining_frame": (17, "int"),
        "hit_confirm": (18, "bool"), "graphic_size_x": (19, "int"), "graphic_size_y": (20, "int"),
        "graphic_adjust_x": (21, "int"), "hit_count": (22, "int"), "last_hit_frame": (23, "int"),
        "projectile_attack": (24, "[AttackData]"),
    },
    "FrameData": {
        "character_data": (1, "[CharacterData]"), "current_frame_number": (2, "int"), "current_round": (3, "int"),
        "projectile_data": (4, "[AttackData]"), "empty_flag": (5, "bool"), "front": (6, "[bool]"),
    },
    "GameData": {
        "max_hps": (1, "[int]"), "max_energies": (2, "[int]"), "character_names": (3, "[str]"),
        "ai_names": (4, "[str]"),
    },
    "RoundResult": {"current_round": (1, "int"), "remaining_hps": (2, "[int]"), "elapsed_frame": (3, "int")},
    "Key": {"A": (1, "bool"), "B": (2, "bool"), "C": (3, "bool"), "U": (4, "bool"), "R": (5, "bool"), "D": (6, "bool"),
            "L": (7, "bool")},
}  # fmt: skip


def _classes() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(
        name="warren/fightingice.proto", package="warren.fightingice", syntax="proto3"
    )
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            repeated, kind = kind.startswith("["), kind.strip("[]")
            added = message.field.add(name=field, number=number)
            added.label = _F.LABEL_REPEATED if repeated else _F.LABEL_OPTIONAL
            if kind in _TYPES:
                added.type = _TYPES[kind]
            else:
                added.type, added.type_name = _F.TYPE_MESSAGE, f".warren.fightingice.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"warren.fightingice.{name}"))
        for name in _MESSAGES
    }


_CLASSES = _classes()


def message(name: str, **fields: Any) -> Any:
    """Return a message of the protocol: "Key", "FrameData", ..."""
    return _CLASSES[name](**fields)


class Lost(WarrenError):
    """Raised if the other side of a connection is gone, silent, or sends something that is not a message."""


class Line:
    """One connection that sends and receives messages or single bytes."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection = connection
        self._read = connection.makefile("rb")

    def say(self, message: Any, first: bytes = b"") -> None:
        """Send `message`, after the byte `first` if one is given. Raises Lost."""
        body = message.SerializeToString()
        try:
            self._connection.sendall(first + struct.pack("<i", len(body)) + body)
        except OSError as error:
            raise Lost(f"the connection broke: {error}") from error

    def byte(self) -> bytes:
        """Read the next byte. Raises Lost."""
        return self._bytes(1)

    def hear(self, name: str) -> Any:
        """Read the next message, which must be a `name`. Raises Lost."""
        (length,) = struct.unpack("<i", self._bytes(4))
        if not 0 <= length <= MOST:
            raise Lost(f"a message of {length:,} bytes was announced, which this protocol does not allow")
        heard = _CLASSES[name]()
        try:
            heard.ParseFromString(self._bytes(length))
        except Exception as error:
            raise Lost(f"what should be a {name} cannot be read: {error}") from error
        return heard

    def close(self) -> None:
        """End the connection."""
        self._read.close()
        self._connection.close()

    def _bytes(self, number: int) -> bytes:
        try:
            got = self._read.read(number)
        except OSError as error:
            raise Lost(f"no answer: {error}") from error
        if got is None or len(got) < number:
            raise Lost("the connection was closed")
        return got
