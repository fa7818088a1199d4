"""Arguments and answers of the league's services as plain mappings, which the codec can carry, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, NamedTuple

from league.matchmaking import Decision
from league.matchmaking.view import ModelRef
from league.state.league_state import Match
from league.state.periods import LearningPeriod, Outcome
from league.state.records import OTHERS


class Invitation(NamedTuple):
    """A match, and the frozen model of its away side, or None for the newest weights of that player.

    `others`: the same for further opponents, if there are more.
    """

    match: Match
    model: ModelRef | None
    others: tuple[ModelRef | None, ...] = ()

    @property
    def models(self) -> tuple[ModelRef | None, ...]:
        """Return the models of all opponents by place."""
        return (self.model, *self.others)


def invitation_to_wire(invitation: Invitation) -> dict[str, Any]:
    """Return the answer of `league.request`."""
    match = invitation.match
    kept = () if match.others else OTHERS
    fields = {name: value for name, value in asdict(match).items() if name not in ("id", *kept)}
    told = {"match": {"match": match.id, **fields}, "model": str(invitation.model or "")}
    return told | ({"others": [str(model or "") for model in invitation.others]} if match.others else {})


def invitation_from_wire(given: Mapping[str, Any]) -> Invitation:
    """Return the invitation that `invitation_to_wire` was given."""
    fields = dict(given["match"]) | {name: tuple(given["match"].get(name, ())) for name in OTHERS}
    others = tuple(map(model_from_wire, given.get("others", ())))
    return Invitation(Match(fields.pop("match"), **fields), model_from_wire(given["model"]), others)


def period_to_wire(period: LearningPeriod, kind: str) -> dict[str, Any]:
    """Return the answer of `league.open_period`, with the kind of the player."""
    fields = {name: getattr(period, name) for name in LearningPeriod.__dataclass_fields__}
    fields |= {"rules": dict(period.rules), "hyperparameters": dict(period.hyperparameters)}
    return {"period": {**fields, "model": str(period.model or "")}, "kind": kind}


def period_from_wire(given: Mapping[str, Any]) -> tuple[LearningPeriod, str]:
    """Return the (period, kind of the player) that `period_to_wire` was given."""
    fields = dict(given["period"])
    return LearningPeriod(**{**fields, "model": model_from_wire(fields["model"])}), given["kind"]


def outcome_to_wire(outcome: Outcome) -> dict[str, Any]:
    """Return the answer of `league.close_period`."""
    decision = asdict(outcome.decision)
    return {"status": outcome.status, "start": str(outcome.start or ""), "decision": decision}


def outcome_from_wire(given: Mapping[str, Any]) -> Outcome:
    """Return the outcome that `outcome_to_wire` was given."""
    return Outcome(given["status"], model_from_wire(given["start"]), Decision(**given["decision"]))


def model_from_wire(text: str) -> ModelRef | None:
    """Return the model of that name, None for ""."""
    return ModelRef.parse(text) if text else None
