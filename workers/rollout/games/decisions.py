"""The pending decisions of several GamesInPlay, made by one forward pass for each model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from workers.rollout.games.games_in_play import DecisionRequest, GamesInPlay


def decide(plays: Sequence[GamesInPlay], generator: torch.Generator) -> list[np.ndarray]:
    """Return the next moves in the games of each of `plays`, int64 [N], by one forward pass per model to move."""
    by_model: dict[tuple[int, bool], list[tuple[GamesInPlay, DecisionRequest]]] = {}
    for play in plays:
        for request in play.requests():
            by_model.setdefault((id(request.policy), request.learns), []).append((play, request))
    for parts in by_model.values():
        _decide_together(parts, generator)
    return [play.moves() for play in plays]


def _decide_together(parts: Sequence[tuple[GamesInPlay, DecisionRequest]], generator: torch.Generator) -> None:
    """Make the decisions of `parts`, all of one model, by one forward pass."""
    first = parts[0][1]
    drawn_by = _drawn_by(parts, generator)
    if len(parts) == 1:
        observation, mask, before = first.observation, first.action_mask, first.memory
    else:
        observation = np.concatenate([request.observation for _, request in parts])
        mask = np.concatenate([request.action_mask for _, request in parts])
        before = {name: torch.cat([request.memory[name] for _, request in parts]) for name in first.memory}
    value = any(request.value for _, request in parts)
    action, extras, memory = first.policy.step(observation, before, action_mask=mask, value=value, **drawn_by)
    begin = 0
    for play, request in parts:
        rows = slice(begin, begin + len(request.rows))
        begin = rows.stop
        said = {name: part[rows] for name, part in extras.items()}
        play.take_decisions(request, action[rows], said, {name: part[rows] for name, part in memory.items()})


def _drawn_by(parts: Sequence[tuple[GamesInPlay, DecisionRequest]], generator: torch.Generator) -> dict[str, Any]:
    noises = [play.noise(request, generator) for play, request in parts]
    if all(noise is None for noise in noises):
        return {"generator": generator}
    drawn = [
        torch.empty(request.action_mask.shape).exponential_(generator=generator).numpy() if noise is None else noise
        for noise, (_, request) in zip(noises, parts, strict=True)
    ]
    return {"noise": np.concatenate(drawn)}
