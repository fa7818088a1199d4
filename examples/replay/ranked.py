"""A replay that draws by the rank of priorities (Schaul et al. 2016, section 3.3, rank-based prioritisation).

python -m workers.train experiment=cartpole_dqn algorithm.prioritized=true replay.buffer=examples/replay/ranked.py:build
"""

from dataclasses import dataclass

import numpy as np

from agents.configuration import parse
from agents.replay import ReplayBuffer
from warren.errors import ConfigurationError


@dataclass(frozen=True)
class Config:
    sort_every: int = 100  # draws for which the ranks stay, since sorting takes time

    def __post_init__(self):
        if self.sort_every < 1:
            raise ConfigurationError(
                f"replay.buffer_settings: sort_every={self.sort_every} is not at least 1; raise it"
            )


class Ranked(ReplayBuffer):
    """Draws item i with P(i) = rank(i)^-alpha / sum over j of rank(j)^-alpha; rank 1 has the greatest priority.

    alpha is replay.priority_exponent.
    """

    def __init__(self, config, **options):
        super().__init__(**options)
        self.alpha, self.config, self.draws = options["priority_exponent"], config, 0

    def sort(self):
        """Rank all items that may be drawn: those with a priority above 0, equal ones by their numbers."""
        items = np.flatnonzero(self.tree.priorities)
        self.by_rank = items[np.argsort(-self.tree.priorities[items], kind="stable")]
        chance = np.arange(1, len(items) + 1) ** -float(self.alpha)
        self.chance = chance / chance.sum()
        self.sums = self.chance.cumsum()

    def draw(self, count, weight_exponent=0.0):
        if self.draws % self.config.sort_every == 0:
            self.sort()
        self.draws += 1
        ranks = self.drawn_ranks(count)
        if (self.tree.priorities[self.by_rank[ranks]] == 0).any():  # overwritten, and its sequence has no end yet
            self.sort()
            ranks = self.drawn_ranks(count)
        weights = (len(self.chance) * self.chance[ranks]) ** -weight_exponent
        return self.of_items(self.by_rank[ranks], (weights / weights.max()).astype(np.float32).repeat(self.together))

    def drawn_ranks(self, count):
        """Draw one rank, from 0 on, in each of `count` parts of equal probability."""
        parts = (np.arange(count) + self.generator.random(count)) / count
        return np.minimum(self.sums.searchsorted(parts, side="right"), len(self.sums) - 1)


def build(settings, options):
    if options.priority_exponent is None:
        raise ConfigurationError("replay.buffer: Ranked draws by priority; give algorithm.prioritized=true")
    return Ranked(parse(Config, "replay.buffer_settings", settings), **vars(options))
