from collections.abc import Iterator
from pathlib import Path

import pytest
from support.calling import Calling

from workers.servers import Servers


@pytest.fixture
def calling(servers: Servers, run_name: str, tmp_path: Path) -> Iterator[Calling]:
    """Yield a run with services, a solver, and workers to start and to kill."""
    run = Calling(servers.broker_url, servers.redis_url, run_name, tmp_path)
    try:
        yield run
    finally:
        run.close()


@pytest.fixture(params=["servers", "embedded"])
def calling_either(request: pytest.FixtureRequest, run_name: str, tmp_path: Path) -> Iterator[Calling]:
    found = request.getfixturevalue(request.param)
    calling = Calling(found.broker_url, found.redis_url, run_name, tmp_path)
    try:
        calling.start()
        yield calling
    finally:
        calling.close()
