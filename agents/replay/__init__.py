"""Replay: steps that are kept, and drawn again and again; bounded storage, draws by chance or by priority."""

from agents.replay.buffer import Draw, ReplayBuffer
from agents.replay.limiter import Limiter
from agents.replay.sum_tree import SumTree

__all__ = ["Draw", "Limiter", "ReplayBuffer", "SumTree"]
