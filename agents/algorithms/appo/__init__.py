"""APPO: PPO's clipped epochs on V-trace's advantages, for data of older weights."""

from agents.algorithms.appo.algorithm import APPO
from agents.algorithms.appo.config import APPOConfig

__all__ = ["APPO", "APPOConfig"]
