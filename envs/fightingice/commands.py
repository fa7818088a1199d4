"""FightingICE's actions by name, and the keys that a person would press for each.

Digits are positions of a stick as on a keypad, for a character that looks to the right: 6 is forward, 2 down, 5
neutral. The keys are those of pyftg's CommandCenter, which follows the game's own.
"""

from __future__ import annotations

from typing import Any

from envs.fightingice.protocol import message

KEYS = {
    "STAND": "5", "FORWARD_WALK": "6", "DASH": "6 5 6", "BACK_STEP": "4 5 4", "CROUCH": "2", "JUMP": "8",
    "FOR_JUMP": "9", "BACK_JUMP": "7", "STAND_GUARD": "4", "CROUCH_GUARD": "1", "THROW_A": "4A", "THROW_B": "4B",
    "STAND_A": "5A", "STAND_B": "5B", "CROUCH_A": "2A", "CROUCH_B": "2B", "STAND_FA": "6A", "STAND_FB": "6B",
    "CROUCH_FA": "3A", "CROUCH_FB": "3B", "AIR_FA": "9A", "AIR_FB": "9B", "AIR_UA": "8A", "AIR_UB": "8B",
    "STAND_D_DF_FA": "2 3 6A", "STAND_D_DF_FB": "2 3 6B", "STAND_F_D_DFA": "6 2 3A", "STAND_F_D_DFB": "6 2 3B",
    "STAND_D_DB_BA": "2 1 4A", "STAND_D_DB_BB": "2 1 4B", "STAND_D_DF_FC": "2 3 6C",
}  # fmt: skip
ACTIONS = tuple(KEYS)
FRAMES = 4  # least frames of an action: the longest takes as many to type, with a frame to let go
_MIRRORED = {"1": "3", "3": "1", "4": "6", "6": "4", "7": "9", "9": "7"}
_PRESSED = {"1": "LD", "2": "D", "3": "RD", "4": "L", "5": "", "6": "R", "7": "LU", "8": "U", "9": "RU"}
_LET_GO = message("Key")


def typed(action: str, looks_right: bool, frames: int) -> list[Any]:
    """Return the keys of `frames` frames. A stick that is only moved is held; buttons are pressed once and let go."""
    keys = []
    for stroke in KEYS[action].split():
        place = stroke[0] if looks_right else _MIRRORED.get(stroke[0], stroke[0])
        keys.append(message("Key", **dict.fromkeys([*_PRESSED[place], *stroke[1:]], True)))
    held = _LET_GO if KEYS[action][-1].isalpha() else keys[-1]
    return (keys + [held] * frames)[:frames]
