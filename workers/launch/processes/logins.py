"""The logins that a launcher hands its processes: each gets only that of its own role."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from warren.errors import BrokerError, ConfigurationError
from workers.launch.spec import ProcessSpec, ServersSpec
from workers.rights import accounts
from workers.servers import check
from workers.servers.running import Servers


class Logins:
    """The logins of one run's processes: the launcher's own, unless WARREN_PASSWORDS names a file of others."""

    def __init__(self, run: str, found: Servers) -> None:
        self._run, self._found, self._accounts = run, found, accounts.given()

    def check(self, specs: Iterable[ProcessSpec], given: ServersSpec) -> None:
        """Log in as each role. Raises ConfigurationError, or BrokerError for a user that a server refuses."""
        roles = sorted({spec.rights for spec in specs if spec.rights})
        if self._accounts is None or not roles:
            return
        if given.broker_url or given.redis_url:
            raise ConfigurationError(
                f"broker.url, broker.redis_url: every process reads them, with the login in them; with "
                f"{accounts.VARIABLE} give them as WARREN_BROKER_URL and WARREN_REDIS_URL"
            )
        if self._found.kind != "rabbitmq":
            raise ConfigurationError(f"{accounts.VARIABLE}: a Redis broker has no rights of roles; use RabbitMQ")
        for role in roles:
            try:
                check(*self._urls(self._accounts, role))
            except BrokerError as error:
                raise BrokerError(f"{error} ({accounts.VARIABLE}; `{accounts.MADE_BY}` makes the users)") from None

    def of(self, spec: ProcessSpec, environment: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of a process of `spec`, without the logins of others."""
        if self._accounts is None or not spec.rights:
            return dict(environment)
        urls = self._accounts.environment(spec.rights, self._run, self._found.broker_url, self._found.redis_url)
        return accounts.without_logins(environment) | urls

    def _urls(self, known: accounts.Accounts, role: str) -> tuple[str, str]:
        return known.urls(role, self._run, self._found.broker_url, self._found.redis_url)
