"""A replay that puts some of the newest steps into every draw (Zhang & Sutton 2017, combined experience replay).

python -m workers.train experiment=cartpole_dqn replay.buffer=examples/replay/combined.py:build
"""

from dataclasses import dataclass

from agents.configuration import parse
from agents.replay import ReplayBuffer
from warren.errors import ConfigurationError


@dataclass(frozen=True)
class Config:
    newest: int = 8  # sequences of each draw that are of the steps stored last
    among: int = 512  # of how many steps stored last these are drawn

    def __post_init__(self):
        if self.newest < 1 or self.among < 1:
            raise ConfigurationError(
                f"replay.buffer_settings: newest={self.newest}, among={self.among} are not both at least 1; raise them"
            )


class Combined(ReplayBuffer):
    """Draws evenly, and then replaces the first `newest` sequences by some of the newest steps."""

    def __init__(self, config, **options):
        super().__init__(**options)
        self.config = config

    def draw(self, count, weight_exponent=0.0):
        items, newest = self.draw_items(count), self.newest(self.config.among)
        if len(newest):  # none, if the last segments are shorter than a sequence
            some = min(self.config.newest, count)
            items[:some] = self.generator.choice(newest, some)
        return self.of_items(items)


def build(settings, options):
    if options.priority_exponent is not None:
        raise ConfigurationError(
            "replay.buffer: Combined draws evenly, not by priority; give algorithm.prioritized=false"
        )
    return Combined(parse(Config, "replay.buffer_settings", settings), **vars(options))
