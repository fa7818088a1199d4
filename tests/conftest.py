"""Fixtures on real servers: a private RabbitMQ and Redis for the whole session, started when a test first asks.

Where they are not installed, tests that need them skip on a laptop and fail in CI (the variable CI is set), so that a
green CI run has tested everything. Their processes end with pytest, however it ends (see workers/servers/guard.py).
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


# The duration of an example only tells how busy the machine is.
settings.register_profile("warren", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("warren")

# Processes are killed and servers restarted: more than two of these at a time would make each other late.
FAULTS, LAUNCHERS = "faults/", "launchers of faults/"
LONGEST_FIRST = (FAULTS, LAUNCHERS, "integration/test_page_commands.py")
WAITING = "integration/"  # these wait for servers and processes, the others compute
ALL_BEGUN = 0.6  # the share of the others ahead of the last that waits


def group(file: str) -> str:
    """Return the group of tests that one process of pytest-xdist runs in turn; `file`: a path below tests/."""
    if not file.startswith(FAULTS):
        return file
    return LAUNCHERS if "launcher" in file else FAULTS


def beginnings(groups: Iterable[str]) -> dict[str, float]:
    """Return when to begin each group, as a number to sort by.

    The longest first; then those that wait among those that compute, so that processors are idle neither now nor
    later. The many short ones come last: no process is left with a long one at the end.
    """
    names = [*dict.fromkeys(groups)]
    when = {name: float(LONGEST_FIRST.index(name) - len(LONGEST_FIRST)) for name in names if name in LONGEST_FIRST}
    for waits, share in ((True, ALL_BEGUN), (False, 1.0)):
        alike = [name for name in names if name not in when and name.startswith(WAITING) == waits]
        when |= {name: share * place / len(alike) for place, name in enumerate(alike)}
    return when


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark `servers` whatever uses them: `-m "not servers"` runs the rest. Say what two processes may share.

    A file stays with one process of pytest-xdist, which has servers of its own; all faults go to two, and first.
    """
    here = Path(__file__).parent
    groups = {}
    for item in items:
        if SERVER_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.servers)
        file = item.path.relative_to(here).as_posix() if item.path.is_relative_to(here) else str(item.path)
        groups[item] = group(file)
        item.add_marker(pytest.mark.xdist_group(groups[item]))
    if hasattr(config, "workerinput"):  # one of several processes
        when = beginnings(groups.values())
        items.sort(key=lambda item: when[groups[item]])


@pytest.fixture(autouse=True)
def no_descriptor_left_for_signals() -> Iterator[None]:
    """Fail a test that leaves a descriptor for signals: its number becomes another file's, which a signal breaks."""
    yield
    if threading.current_thread() is threading.main_thread():
        assert signal.set_wakeup_fd(-1) == -1, "signals would still be written to a descriptor of this test's"


@pytest.fixture
def one_thread() -> Iterator[None]:
    """For tiny batches: on a busy machine, handing them to a second thread makes an update ten times slower."""
    import torch  # not for tests without it

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def by_torch() -> Iterator[None]:
    """Compute perceptrons by torch: the compiled library draws by other numbers of the generator."""
    from agents.native import library  # not for tests without torch

    library.choose("torch")
    yield
    library.choose("auto")


@pytest.fixture(scope="session")
def servers(session_servers: Servers) -> Servers:
    """RabbitMQ and Redis (see support/brokers.py), shared by all tests: keep to names made of `run_name`."""
    return session_servers


@pytest.fixture(scope="session")
def session_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """`servers`, under a name that no module overrides."""
    if not brokers.GIVEN and (missing := debian.missing(Machine())):
        lacking(f"{' and '.join(missing)} not installed")
    with brokers.start(tmp_path_factory.mktemp("servers")) as found:
        yield found


@pytest.fixture(scope="session")
def private_servers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Private servers, also where others are given, for tests that are about just these."""
    if not brokers.GIVEN:
        yield request.getfixturevalue("session_servers")
        return
    if missing := debian.missing(Machine()):
        lacking(f"{' and '.join(missing)} not installed")
    with finding.acquire("private", folder=tmp_path_factory.mktemp("private-servers")) as found:
        yield found


@pytest.fixture(scope="session")
def harmed_servers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Servers that one test after the other harms: private ones, or the given ones."""
    if brokers.GIVEN:
        yield request.getfixturevalue("session_servers")
        return
    with brokers.start(tmp_path_factory.mktemp("harmed-servers")) as found:
        yield found


@pytest.fixture
def own_servers(servers: Servers, harmed_servers: Servers) -> Iterator[Servers]:
    """Servers for a test to harm, whose broker is up again afterwards; it has to undo whatever else it does to them."""
    yield harmed_servers
    try:
        check_broker(harmed_servers.broker_url)
    except BrokerError:
        brokers.control(harmed_servers, "start_app")


@pytest.fixture
def rabbitmqctl(servers: Servers) -> Callable[..., list[str]]:
    """`rabbitmqctl COMMAND COLUMN...` against the session's RabbitMQ: its lines, without a header."""
    return lambda command, *columns: brokers.control(servers, command, "--no-table-headers", *columns)


@pytest.fixture
def broker_url(servers: Servers) -> str:
    """URL of the session's RabbitMQ."""
    return servers.broker_url


@pytest.fixture
def redis_url(servers: Servers) -> str:
    """URL of the session's Redis."""
    return servers.redis_url


@pytest.fixture(scope="session")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """The embedded server, broker and Redis in one; shared by all tests."""
    try:
        found = finding.acquire("embedded", folder=tmp_path_factory.mktemp("embedded"))
    except BrokerError as error:
        lacking(str(error))
    with found:
        yield found


@pytest.fixture
def embedded_url(embedded: Servers) -> str:
    """URL of a broker without RabbitMQ."""
    return embedded.broker_url


@pytest.fixture
def run_name() -> str:
    """A name that no other test has: whatever a test makes on a shared server carries it."""
    return f"test-{secrets.token_hex(6)}"


@pytest.fixture
def own_redis(tmp_path: Path, servers: object) -> Iterator[OwnRedis]:
    """A Redis of the test's own, where the session has servers at all."""
    made = OwnRedis(tmp_path / "redis")
    yield made
    made.kill()
