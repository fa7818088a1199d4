"""Q-learning of a team: the values of its agents, mixed into one of the whole game (QMIX), or summed (VDN)."""

from agents.algorithms.qmix.algorithm import QMIX
from agents.algorithms.qmix.config import QMIXConfig
from agents.algorithms.qmix.mixer import Mixer, Sum

__all__ = ["QMIX", "Mixer", "QMIXConfig", "Sum"]
