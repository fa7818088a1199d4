"""Policies: from an observation to an action and its log-probability. `build_policy` makes one for two spaces."""

from agents.policies.build import build_policy
from agents.policies.distribution import Distribution
from agents.policies.policy import ActionBatch, Evaluation, Policy
from agents.policies.slot_memory import SeatMemories, SlotMemory

__all__ = ["ActionBatch", "Distribution", "Evaluation", "Policy", "SeatMemories", "SlotMemory", "build_policy"]
