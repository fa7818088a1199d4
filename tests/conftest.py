"""Fixtures on real servers: a private RabbitMQ and Redis for the whole session, started when a test first asks.

Where they are not installed, tests that need them are skipped, but fail in CI (the variable CI is set): a green CI run
has tested everything. The servers end with pytest, however it ends (see workers/servers/guard.py).
"""

from __future__ import annotations

import secrets
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from support import brokers
from support.brokers import lacking
from support.own_redis import OwnRedis

from warren.errors import BrokerError
from workers import servers as finding
from workers.servers import Machine, Servers, debian
from workers.servers.checks import check_broker

pytest_plugins = ["support.optional"]
SERVER_FIXTURES = {"servers", "private_servers", "own_servers", "rabbitmqctl", "broker_url", "redis_url"}
SERVER_FIXTURES |= {"embedded", "embedded_url"}


# An example's duration depends on the load of the machine alone.
settings.register_profile("warren", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("warren")

# These tests kill processes and restart servers: more than two at a time would delay each other.
FAULTS, LAUNCHERS = "faults/", "launchers of faults/"
LONGEST_FIRST = (FAULTS, LAUNCHERS, "integration/test_page_commands.py")
WAITING = "integration/"  # these wait for servers and processes, the others compute
ALL_BEGUN = 0.6  # the share of the other groups that begins before the last waiting one


def group(file: str) -> str:
    """Return the group of tests that one pytest-xdist worker runs in sequence; `file`: a path below tests/."""
    if not file.startswith(FAULTS):
        return file
    return LAUNCHERS if "launcher" in file else FAULTS


def beginnings(groups: Iterable[str]) -> dict[str, float]:
    """Return when to begin each group, as a number to sort by.

    The longest come first. Waiting groups follow, mixed with computing ones, which keeps the processors busy
    throughout. The many short ones come last, so that no process is left with a long one at the end.
    """
    names = [*dict.fromkeys(groups)]
    when = {name: float(LONGEST_FIRST.index(name) - len(LONGEST_FIRST)) for name in names if name in LONGEST_FIRST}
    for waits, share in ((True, ALL_BEGUN), (False, 1.0)):
        alike = [name for name in names if name not in when and name.startswith(WAITING) == waits]
        when |= {name: share * place / len(alike) for place, name in enumerate(alike)}
    return when


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests that use servers (`-m "not servers"` runs the rest), group them for pytest-xdist, and sort the groups.

    All tests of a file run in one worker, which has servers of its own. Those of faults/ run first, in two workers.
    """
    here = Path(__file__).parent
    groups = {}
    for item in items:
        if SERVER_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.servers)
        file = item.path.relative_to(here).as_posix() if item.path.is_relative_to(here) else str(item.path)
        groups[item] = group(file)
        item.add_marker(pytest.mark.xdist_group(groups[item]))
    if hasattr(config, "workerinput"):  # a worker of pytest-xdist
        when = beginnings(groups.values())
        items.sort(key=lambda item: when[groups[item]])


@pytest.fixture(autouse=True)
def no_descriptor_left_for_signals() -> Iterator[None]:
    """Fail a test that leaves its wakeup descriptor set: a later file may get that number, and a signal corrupt it."""
    yield
    if threading.current_thread() is threading.main_thread():
        assert signal.set_wakeup_fd(-1) == -1, "the test left its descriptor set as the one that signals are written to"


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Limit torch to one thread: on a busy machine, a second one makes updates of tiny batches ten times slower."""
    import torch  # not for tests without it

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def by_torch() -> Iterator[None]:
    """Compute perceptrons with torch: the compiled library uses the generator's numbers differently."""
    from agents.native import library  # not for tests without torch

    library.choose("torch")
    yield
    library.choose("auto")


@pytest.fixture(scope="session")
def servers(session_servers: Servers) -> Servers:
    """Return RabbitMQ and Redis (see support/brokers.py). All tests share them: use names made from `run_name`."""
    return session_servers


@pytest.fixture(scope="session")
def session_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Yield `servers` under a name that no module overrides."""
    if not brokers.GIVEN and (missing := debian.missing(Machine())):
        lacking(f"{' and '.join(missing)} not installed")
    with brokers.start(tmp_path_factory.mktemp("servers")) as found:
        yield found


@pytest.fixture(scope="session")
def private_servers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Yield private servers even where others are given, for tests of private servers."""
    if not brokers.GIVEN:
        yield request.getfixturevalue("session_servers")
        return
    if missing := debian.missing(Machine()):
        lacking(f"{' and '.join(missing)} not installed")
    with finding.acquire("private", folder=tmp_path_factory.mktemp("private-servers")) as found:
        yield found


@pytest.fixture(scope="session")
def harmed_servers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Yield servers that tests damage one after another: private ones, or the given ones."""
    if brokers.GIVEN:
        yield request.getfixturevalue("session_servers")
        return
    with brokers.start(tmp_path_factory.mktemp("harmed-servers")) as found:
        yield found


@pytest.fixture
def own_servers(servers: Servers, harmed_servers: Servers) -> Iterator[Servers]:
    """Yield servers that a test may damage. The broker is restarted afterwards; the test undoes anything else."""
    yield harmed_servers
    try:
        check_broker(harmed_servers.broker_url)
    except BrokerError:
        brokers.control(harmed_servers, "start_app")


@pytest.fixture
def rabbitmqctl(servers: Servers) -> Callable[..., list[str]]:
    """Return a function that runs `rabbitmqctl COMMAND COLUMN...` and returns its lines without the header."""
    return lambda command, *columns: brokers.control(servers, command, "--no-table-headers", *columns)


@pytest.fixture
def broker_url(servers: Servers) -> str:
    """Return the URL of the session's RabbitMQ."""
    return servers.broker_url


@pytest.fixture
def redis_url(servers: Servers) -> str:
    """Return the URL of the session's Redis."""
    return servers.redis_url


@pytest.fixture(scope="session")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Yield the embedded server, broker and Redis in one; all tests share it."""
    try:
        found = finding.acquire("embedded", folder=tmp_path_factory.mktemp("embedded"))
    except BrokerError as error:
        lacking(str(error))
    with found:
        yield found


@pytest.fixture
def embedded_url(embedded: Servers) -> str:
    """Return the URL of the embedded broker."""
    return embedded.broker_url


@pytest.fixture
def run_name() -> str:
    """Return a run name that is unique to the test, for all that it creates on shared servers."""
    return f"test-{secrets.token_hex(6)}"


@pytest.fixture
def own_redis(tmp_path: Path, servers: object) -> Iterator[OwnRedis]:
    """Yield a Redis of the test's own, if the session has servers."""
    made = OwnRedis(tmp_path / "redis")
    yield made
    made.kill()
