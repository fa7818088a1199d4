"""A league in memory, built from events, for tests without Redis."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from league.matchmaking.view import Player
from league.rules.settings import Settings
from league.state.league_state import LeagueState


def league(**settings: Any) -> LeagueState:
    state = LeagueState()
    state.apply({"event": "created", **Settings(**settings).to_fields()})
    return state


def add(state: LeagueState, name: str, kind: str = "self_play", **fields: Any) -> Player:
    """Add a player; a name with an @ is a snapshot of the player before the @."""
    parent, at, _ = name.partition("@")
    event = {
        "event": "added",
        "name": name,
        "slot": str(len(state.players)),
        "kind": kind,
        "config": json.dumps(fields.get("config", {})),
        "parent": parent if at else "",
        "model": name if at else "",
        "initial": "",
        "frozen": "1" if at or fields.get("frozen") else "0",
        "rules": json.dumps(fields.get("rules", {})),
        "hyperparameters": json.dumps(fields.get("hyperparameters", {})),
        "elo": str(fields.get("elo", 1200.0)),
    }
    state.apply(event)
    return state.players[name]


def set_win_rate(state: LeagueState, home: str, away: str, rate: float, games: float = 50.0) -> None:
    """Write the cells of two players as if `games` had been played."""
    one, other = state.players[home].slot, state.players[away].slot
    state.payoff.cells[one, other] = (rate * games, 0.0, (1.0 - rate) * games)
    state.payoff.cells[other, one] = ((1.0 - rate) * games, 0.0, rate * games)


def set_return(state: LeagueState, one: str, other: str, edge: float, games: int = 50) -> None:
    """Add evaluation games: `one` gains `edge` per game from `other` in either seat; self-play gains nothing."""
    here, there = state.players[one].slot, state.players[other].slot
    for first, second, mean in ((here, there, edge), (there, here, -edge), (here, here, 0.0), (there, there, 0.0)):
        state.empirical_game.add(first, second, games, mean * games, mean * mean * games)


def named(state: LeagueState, probabilities: np.ndarray) -> dict[str, float]:
    """Return player's name -> probability, without zeros."""
    return {state.roster.by_slot[slot].name: float(p) for slot, p in enumerate(probabilities) if p > 0.0}
