"""What the league's services are sent and answer with: plain mappings, which the codec can carry, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, NamedTuple

from league.matchmaking import Decision
from league.matchmaking.view import ModelRef
from league.state.league_state import Match
from league.state.periods import LearningPeriod, Outcome


class Invitation(NamedTuple):
    """A match, and what plays its away side: a frozen model, or None for the newest weights of that player."""

    match: Match
    model: ModelRef | None


def invitation_to_wire(invitation: Invitation) -> dict[str, Any]:
    """As `league.request` answers."""
    return {"match": asdict(invitation.match), "model": str(invitation.model or "")}


def invitation_from_wire(given: Mapping[str, Any]) -> Invitation:
    """What `invitation_to_wire` made."""
    return Invitation(Match(**given["match"]), model_from_wire(given["model"]))


def period_to_wire(period: LearningPeriod, kind: str) -> dict[str, Any]:
    """As `league.open_period` answers, with the kind of the player."""
    fields = {name: getattr(period, name) for name in LearningPeriod.__dataclass_fields__}
    fields |= {"rules": dict(period.rules), "hyperparameters": dict(period.hyperparameters)}
    return {"period": {**fields, "model": str(period.model or "")}, "kind": kind}


def period_from_wire(given: Mapping[str, Any]) -> tuple[LearningPeriod, str]:
    """(period, kind of the player): what `period_to_wire` made."""
    fields = dict(given["period"])
    return LearningPeriod(**{**fields, "model": model_from_wire(fields["model"])}), given["kind"]


def outcome_to_wire(outcome: Outcome) -> dict[str, Any]:
    """As `league.close_period` answers."""
    decision = asdict(outcome.decision)
    return {"status": outcome.status, "start": str(outcome.start or ""), "decision": decision}


def outcome_from_wire(given: Mapping[str, Any]) -> Outcome:
    """What `outcome_to_wire` made."""
    return Outcome(given["status"], model_from_wire(given["start"]), Decision(**given["decision"]))


def model_from_wire(text: str) -> ModelRef | None:
    """A model's name, "" for none."""
    return ModelRef.parse(text) if text else None
