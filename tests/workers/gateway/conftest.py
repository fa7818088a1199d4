from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from support.gateways import Gateway


@pytest.fixture
def gateways() -> Iterator[Any]:
    """Make gateways, and close them."""
    made: list[Gateway] = []

    def make(*args: Any, **kwargs: Any) -> Gateway:
        made.append(Gateway(*args, **kwargs))
        return made[-1]

    yield make
    for gateway in made:
        gateway.close()
