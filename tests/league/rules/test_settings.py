"""league.rules.settings: what a league may be created with."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import pytest

from league.rules.settings import Settings
from warren.errors import ConfigurationError


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"decay": nan}, "decay=nan is not in"),
        ({"elo_k": inf}, "elo_k=inf is not 0 or more, and finite"),
        ({"elo_k": -1.0}, "elo_k=-1.0 is not 0 or more, and finite"),
        ({"elo_initial": nan}, "elo_initial=nan is not finite"),
        ({"memory": inf}, "memory=inf s is not within 1 and 1,000,000,000 s"),
        ({"on_reset": "keep"}, "on_reset='keep': write 'count' or 'drop'"),
        ({"snapshots_inherit": "yes"}, "snapshots_inherit='yes' is neither true nor false"),
    ],
)
def test_settings_that_redis_cannot_count_by_are_refused(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^league {problem}"):
        Settings(**given)
