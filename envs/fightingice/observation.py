"""The observation of a FightingICE player: one vector, the same from either side.

Player 2's stage is mirrored, so each player sees itself as the one that began on the left. Values are near -1 to 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

STAGE_WIDTH, STAGE_HEIGHT, FULL_ENERGY = 960, 640, 300  # from the game's GameSetting and LaunchSetting
STATES = ("stand", "crouch", "air", "down")
NUM_ACTIONS = 56  # values of GrpcAction, a character's present action
PROJECTILES = 2  # per player, the newest first

_BODY = (
    "hp", "energy", "x", "y", "speed_x", "speed_y", "looks_right", "in_control", "remaining_frame", "hit_confirm",
    "hit_count",
)  # fmt: skip
_ATTACK = (
    "live",
    "x",
    "y",
    "width",
    "height",
    "damage",
    "start_up",
    "active",
    "current_frame",
    "speed_x",
    "knocks_down",
)
# The name of each number. Of both characters: hit points, position (centre, 0 to 1 of the stage), speed (30 pixels a
# frame are 1), frames until it may move again (60 are 1), whether its last attack hit, hits in a row (10 are 1), which
# of four states it is in and which of 56 actions it does, its attack and its projectiles: damage (100 are 1), frames
# (60 are 1), the area that hits. Then how much of the round and of the game is left.
FIELDS = (
    *(
        f"{who}.{field}"
        for who in ("me", "other")
        for field in (
            *_BODY,
            *(f"state.{state}" for state in STATES),
            *(f"action.{action}" for action in range(NUM_ACTIONS)),
            *(f"attack.{part}" for part in _ATTACK),
            *(f"projectile_{i}.{part}" for i in range(PROJECTILES) for part in _ATTACK),
        )
    ),
    "round_left",
    "rounds_left",
)


def observation(frame: Any, player: int, max_hps: tuple[int, int], frames: int, rounds: int) -> np.ndarray:
    """Return float32 [len(FIELDS)] of a FrameData for `player`, 0 or 1; zeros before the fight begins.

    `max_hps`: hit points of the two at a round's beginning. `frames` of a round, `rounds` of a game.
    """
    if frame.empty_flag or len(frame.character_data) < 2:
        return np.zeros(len(FIELDS), np.float32)
    values: list[float] = []
    for who in (player, 1 - player):
        character = frame.character_data[who]
        values += _body(character, max_hps[who], mirrored=player == 1)
        values += _attack(character.attack_data, mirrored=player == 1)
        flying = [one for one in frame.projectile_data if one.player_number == (who == 0)][::-1]
        for i in range(PROJECTILES):
            values += _attack(flying[i], mirrored=player == 1) if i < len(flying) else [0.0] * len(_ATTACK)
    values += [1 - frame.current_frame_number / frames, (rounds - frame.current_round) / rounds]
    return np.array(values, np.float32)


def _body(character: Any, max_hp: int, mirrored: bool) -> list[float]:
    x = (character.left + character.right) / 2 / STAGE_WIDTH
    values = [
        max(character.hp, 0) / max(max_hp, 1),
        character.energy / FULL_ENERGY,
        1 - x if mirrored else x,
        (character.top + character.bottom) / 2 / STAGE_HEIGHT,
        (-character.speed_x if mirrored else character.speed_x) / 30,
        character.speed_y / 30,
        float(character.front != mirrored),
        float(character.control),
        min(character.remaining_frame / 60, 2.0),
        float(character.hit_confirm),
        min(character.hit_count / 10, 2.0),
    ]
    state, action = [0.0] * len(STATES), [0.0] * NUM_ACTIONS
    if 0 <= character.state < len(STATES):
        state[character.state] = 1.0
    if 0 <= character.action < NUM_ACTIONS:
        action[character.action] = 1.0
    return values + state + action


def _attack(attack: Any, mirrored: bool) -> list[float]:
    if attack.empty_flag or not attack.ByteSize():
        return [0.0] * len(_ATTACK)
    area = attack.current_hit_area
    x = (area.left + area.right) / 2 / STAGE_WIDTH
    return [
        float(attack.is_live),
        1 - x if mirrored else x,
        (area.top + area.bottom) / 2 / STAGE_HEIGHT,
        (area.right - area.left) / STAGE_WIDTH,
        (area.bottom - area.top) / STAGE_HEIGHT,
        attack.hit_damage / 100,
        attack.start_up / 60,
        attack.active / 60,
        attack.current_frame / 60,
        (-attack.speed_x if mirrored else attack.speed_x) / 30,
        float(attack.down_prop),
    ]
