"""The run folder of a league as a launcher and a keeper leave it, made without servers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from agents import checkpoints
from workers.config.league import LeagueConfig
from workers.config.schema import Config, to_yaml
from workers.leagues.local import LocalLeague

ROCK_PAPER_SCISSORS: dict[str, Any] = {
    "env": "matrix:rps",
    "players": {"main": {"kind": "self_play"}},
    "network": {"name": "mlp", "hidden_sizes": [4]},
    "games": 8,
    "match_games": 8,
    "unroll_length": 4,
    "lanes": 8,
    "period_steps": 64,
}


def save_league(folder: Path, settings: dict[str, Any], rounds: int) -> LocalLeague:
    """Let a league learn for `rounds` rounds, save it to `folder` and return it."""
    events: list[dict[str, Any]] = []
    local = LocalLeague(LeagueConfig.from_dict(settings), lambda event: events.append(dict(event)))
    for _ in range(rounds):
        local.round()
    models = folder / "league" / "models"
    models.mkdir(parents=True)
    (folder / "config.yaml").write_text(to_yaml(Config(league=settings)))
    lines = [json.dumps({"id": f"{number}-0", "fields": event}) for number, event in enumerate(events, 1)]
    (folder / "league" / "league.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "league" / "returns.json").write_text(json.dumps(cells(local)))
    for name, policy in local.frozen.items():
        model = local.league.state.players[name].model
        (models / f"{model}.safetensors").write_bytes(checkpoints.weights_to_bytes(policy, {}))
    for name, trainee in local.trainees.items():
        place = folder / "players" / name / "checkpoints"
        checkpoints.save(place, f"{trainee.version:08d}", trainee.policy, trainee.algorithm, {})
    return local


def cells(local: LocalLeague) -> list[list[float]]:
    """Return the evaluator's returns as returns.json holds them: slots, games, sum, sum of squares."""
    slots = local.league.state.roster.historical
    sums = local.returns._of(slots)
    pairs = ((row, column) for row in range(len(slots)) for column in range(len(slots)))
    return [
        [int(slots[row]), int(slots[column]), *map(float, sums[row, column])]
        for row, column in pairs
        if sums[row, column, 0] > 0.0
    ]
