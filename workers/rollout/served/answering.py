"""An actor that decides on request, for environments that other processes step, always by the newest weights."""

from __future__ import annotations

from typing import Any

from workers.rollout.actor import ActorRole


class AnsweringRole(ActorRole):
    """Loads new weights as they come; an actor that steps its own environments loads them between rollouts."""

    def on_weights(self, payload: dict[str, Any]) -> None:
        super().on_weights(payload)
        self.load_newest()

    def catch_up(self) -> None:
        super().catch_up()
        self.load_newest()
