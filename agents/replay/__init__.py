"""Replay: steps that are kept, and drawn again and again; bounded storage, draws by chance or by priority."""

from agents.replay.buffer import ReplayBuffer
from agents.replay.interface import Buffer, BufferOptions, Draw
from agents.replay.limiter import Limiter
from agents.replay.own import build_buffer
from agents.replay.sum_tree import SumTree

__all__ = ["Buffer", "BufferOptions", "Draw", "Limiter", "ReplayBuffer", "SumTree", "build_buffer"]
